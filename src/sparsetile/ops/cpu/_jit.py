"""From IR text to callable machine code, by way of an object file kept on disk."""

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparsetile.ops.cpu._isa import Isa, host

_log = logging.getLogger("sparsetile")
_MAGIC = b"sparsetile-object-1\n"
_alive: list[Any] = []  # engines own the code they loaded; the code is never unloaded


def cache_folder() -> Path:
    """Return the folder of compiled kernels: ``SPARSETILE_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("SPARSETILE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base.expanduser() / "sparsetile"


def load(ir: str, names: Sequence[str]) -> dict[str, int]:
    """Compile a module, or take it from disk, and return the addresses of its functions.

    Args:
        ir: LLVM IR of the whole module.
        names: Functions wanted.

    Returns:
        Address of each function, by name.
    """
    import llvmlite
    import llvmlite.binding as llvm

    isa = host()
    version = f"{llvmlite.__version__} {llvm.llvm_version_info}"
    key = hashlib.sha256("\0".join((ir, isa.cpu, isa.features, version)).encode()).hexdigest()
    path = cache_folder() / f"{key[:32]}.o"
    code = _read(path, key)
    if code is None:
        code = _target_machine(isa).emit_object(_parse(ir))
        _write(path, key, code)
    engine = llvm.create_mcjit_compiler(_parse(""), _target_machine(isa))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _alive.append(engine)
    return {name: engine.get_function_address(name) for name in names}


def assembly(ir: str, isa: Isa | None = None, triple: str | None = None) -> str:
    """Return the assembly of a module, for this processor or another, to be read or tested."""
    return _target_machine(isa or host(), triple).emit_assembly(_parse(ir))


def _parse(ir: str) -> Any:
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(ir)
    module.verify()
    return module


def _target_machine(isa: Isa, triple: str | None = None) -> Any:
    """Make LLVM's code generator. No IR passes run: the emitter already writes what they would."""
    import llvmlite.binding as llvm

    if triple is None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(triple)
    return target.create_target_machine(
        cpu=isa.cpu, features=isa.features, opt=3, reloc="default", codemodel="jitdefault"
    )


def _read(path: Path, key: str) -> bytes | None:
    """Read a kept object file; None when it is missing, damaged or of another kernel."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = _MAGIC + key.encode() + b"\n"
    digest, code = data[len(head) : len(head) + 32], data[len(head) + 32 :]
    if not data.startswith(head) or hashlib.sha256(code).digest() != digest:
        _log.info("ignoring a damaged or foreign kernel file: %s", path)
        return None
    return code


def _write(path: Path, key: str, code: bytes) -> None:
    """Keep an object file, whole or not at all; two processes may do so at once."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(_MAGIC + key.encode() + b"\n" + hashlib.sha256(code).digest() + code)
        os.replace(file.name, path)
    except OSError as error:
        _log.info("compiled kernels are not kept: %s", error)
