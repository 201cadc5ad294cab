"""What a torch file asks for, found out before anything of it is built."""

import pickletools
import zipfile
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from sparsetile.matrix._bounded import BoundedFile

_MARK = object()
_CONSTANTS = {"NEWTRUE": True, "NEWFALSE": False, "NONE": None, "EMPTY_TUPLE": ()}
_PLAIN = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"})
_PAIRS = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_TENSOR = "torch._utils _rebuild_tensor_v2"
_STORAGES = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_NAMES = frozenset(
    {
        _TENSOR,
        "torch._utils _rebuild_parameter",
        "torch._utils _rebuild_sparse_tensor",
        "torch.serialization _get_layout",
        "torch Size",
        "collections OrderedDict",
        "sparsetile.matrix._bsr BSR",
        "sparsetile.matrix._pattern Pattern",
        *(f"torch {name}Storage" for name in (*_STORAGES, "ComplexFloat", "ComplexDouble")),
    }
)


class _Name(NamedTuple):
    """A function or class that the file names."""

    name: str


class _Storage(NamedTuple):
    """A run of numbers; torch compares its length with what is in the file."""

    length: int


class NotOneMatrixError(ValueError):
    """The file holds other things than one matrix."""


def scan_pt(path: Path) -> None:
    """Refuse a torch file that holds more than tensors, or tensors larger than their numbers.

    torch alone takes classes that ask for any amount of memory, and tensors that repeat one number.

    Args:
        path: The file.

    Raises:
        NotOneMatrixError: If it holds a dict, a list or other objects.
        ValueError: If it is damaged in another way. Other exceptions are possible then too.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.pt")
        ...     torch.save(torch.ones(1).expand(10**12), path)
        ...     scan_pt(path)
        Traceback (most recent call last):
        ValueError: a tensor of 1000000000000 values over 1 in the file
    """
    with BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("packed records, which torch does not write")
        if sum(entry.file_size for entry in entries) > path.stat().st_size:
            raise ValueError("records that overlap")
        pickles = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"{len(pickles)} records data.pkl")
        data = archive.read(pickles[0])
    _follow(data)


def _follow(data: bytes) -> None:
    """Go through a pickle without building what it names."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for op, arg, _ in pickletools.genops(data):
        name = op.name
        if name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _PLAIN:
            stack.append(arg)
        elif name == "GLOBAL":
            if arg not in _NAMES:
                raise NotOneMatrixError(f"an object {str(arg)[:80].replace(' ', '.')}")
            stack.append(_Name(str(arg)))
        elif name == "MARK":
            stack.append(_MARK)
        elif name == "TUPLE" or name in _PAIRS:
            count = _PAIRS.get(name) or stack[::-1].index(_MARK)
            items = tuple(_pop(stack) for _ in range(count))[::-1]
            if name == "TUPLE":
                stack.pop()
            stack.append(items)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[arg] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[arg])
        elif name == "BINPERSID":
            stack.append(_storage(_pop(stack)))
        elif name == "REDUCE":
            args, function = _pop(stack), _pop(stack)
            stack.append(_call(function, args))
        elif name in ("EMPTY_DICT", "EMPTY_LIST"):
            raise NotOneMatrixError(f"a {name[6:].lower()}")
        elif name not in ("PROTO", "STOP"):
            raise NotOneMatrixError(f"an object built by {name} of pickle")
    if len(stack) != 1:
        raise ValueError("a pickle that does not end in one object")


def _pop(stack: list[Any]) -> Any:
    item = stack.pop()
    if item is _MARK:
        raise ValueError("a pickle that takes more than it put down")
    return item


def _storage(found: Any) -> _Storage:
    if not isinstance(found, tuple) or len(found) != 5 or not isinstance(found[4], int):
        raise ValueError("a storage that torch does not write")
    return _Storage(found[4])


def _call(function: Any, args: Any) -> object:
    """Stand for the result of a call; tensors are compared with their storage."""
    if not isinstance(function, _Name) or not isinstance(args, tuple):
        raise ValueError("a call of what is no function")
    if function.name == _TENSOR:
        storage, size = args[0], args[2]
        if not isinstance(storage, _Storage) or not isinstance(size, tuple) or len(size) > 64:
            raise ValueError("a tensor that torch does not write")
        if not all(isinstance(side, int) and side >= 0 for side in size):
            raise ValueError(f"a tensor of sizes {str(size)[:80]}")
        if prod(size) > storage.length:
            raise ValueError(f"a tensor of {prod(size)} values over {storage.length} in the file")
    return function if function.name.endswith("Storage") else object()
