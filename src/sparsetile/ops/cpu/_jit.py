"""From a kernel's description to callable machine code, by way of an object file kept on disk."""

import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Hashable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from sparsetile._version import __version__
from sparsetile.ops.cpu._isa import Isa, host

_log = logging.getLogger("sparsetile")
_MAGIC = b"sparsetile-object-2\n"
_alive: list[Any] = []  # engines own the code they loaded; the code is never unloaded
_loaded: dict["Kernel", dict[str, int]] = {}


@runtime_checkable
class Kernel(Hashable, Protocol):
    """A frozen dataclass whose fields, with the instruction set, decide its code."""

    def ir(self) -> str:
        """Write the LLVM IR of the whole module."""


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


def load(kernel: Kernel, names: Sequence[str]) -> dict[str, int]:
    """Return the addresses of a kernel's functions, compiling it where neither memory nor disk has.

    Args:
        kernel: What the functions are to do.
        names: Functions wanted.

    Returns:
        Address of each function, by name.
    """
    found = _loaded.get(kernel)
    if found is None:
        engine = _engine(_object(kernel))
        functions = {name: engine.get_function_address(name) for name in names}
        found = _loaded.setdefault(kernel, functions)  # another thread may have been quicker
    return found


def owner(address: int) -> tuple[Kernel, str]:
    """Tell the kernel and the name of a loaded function."""
    for kernel, functions in _loaded.copy().items():
        for name, found in functions.items():
            if found == address:
                return kernel, name
    raise KeyError(f"no kernel has a function at {address:#x}")


def assembly(ir: str, isa: Isa | None = None, triple: str | None = None) -> str:
    """Return the assembly of a module, for this processor or another, to be read or tested."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(ir)
    module.verify()
    return _target_machine(isa or host(), triple).emit_assembly(module)


def _object(kernel: Kernel) -> bytes:
    """Return a kernel's object file, from disk or the compiler."""
    import llvmlite.binding as llvm

    key = _key(kernel)
    path = cache_folder() / f"{key[:32]}.o"
    code = _read(path, key)
    if code is None:
        code = _target_machine(host()).emit_object(llvm.parse_assembly(kernel.ir()))
        _write(path, key, code)
    return code


def _key(kernel: Kernel) -> str:
    """Spell what decides a kernel's code; its IR, slow to write, is not looked at."""
    import llvmlite
    import llvmlite.binding as llvm

    parts = (
        f"{type(kernel).__module__} {kernel!r}",
        repr(host()),
        f"llvmlite {llvmlite.__version__} {llvm.llvm_version_info}",
        _sources(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _sources() -> str:
    """Digest the modules that write the kernels, so that changed ones compile anew."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _engine(code: bytes) -> Any:
    """Load an object file into this process."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(host()))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _alive.append(engine)
    return engine


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
