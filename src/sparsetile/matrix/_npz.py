"""Matrices in scipy's archives, `.npz`."""

import zipfile
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import torch
from numpy.lib import format as npy

from sparsetile.matrix._bounded import BoundedFile
from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import message
from sparsetile.matrix._entries import DTYPES, Entries, Stored, bad_file
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._scipy import from_scipy, scipy_module, to_scipy

_FIX = "write it again with scipy.sparse.save_npz"
_ARRAYS = (
    *("format", "_is_array", "shape", "data", "offsets"),
    *("indices", "indptr", "row", "col", "coords"),
)
_HEADS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
# What deflate makes of a byte at most.
_UNPACKED = 1032


def read_npz(path: Path) -> Stored:
    """Read what scipy's `save_npz` wrote; `load` documents it.

    Args:
        path: The file.

    Returns:
        The matrix, in its own blocks where it has them.

    Raises:
        ImportError: If there is no scipy.
        ValueError: If the archive is damaged, or announces more than it holds.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.npz")
        ...     with path.open("wb") as file:
        ...         write_npz(file, BSR.from_dense(torch.eye(4), 2))
        ...     read_npz(path).content
        BSR(4×4, blocksize=2, density=0.50, 2 blocks, float32, cpu)
    """
    sparse = scipy_module("scipy.sparse")
    try:
        size = _size_of(path)
        with BoundedFile(path) as file:
            found = sparse.load_npz(file)
        if found.format in ("csr", "csc", "bsr"):
            # Conversion follows the offsets wherever they point.
            found.check_format(full_check=True)
        dtype = torch.from_numpy(found.data[:0]).dtype
        if dtype not in DTYPES:
            raise ValueError(f"{dtype} values")
        if found.format == "dia" and found.shape[1] > size:
            # scipy spells out every column that the shape has.
            raise ValueError(f"diagonals of {found.shape[1]} columns in {size} bytes")
        if found.format == "bsr":
            return Stored(from_scipy(found, None, drop_zero_blocks=False), size)
        found = found.tocoo()
        # Unlike from_scipy this asks for no memory that the rows of the shape alone would take.
        parts = (torch.from_numpy(part) for part in (found.row, found.col, found.data))
        return Stored(Entries((int(found.shape[0]), int(found.shape[1])), *parts), size)
    except Exception as error:  # of zipfile, zlib, struct, numpy or scipy: whatever is damaged
        got = f"what scipy refuses: {' '.join(str(error).split())[:300]}"
        allowed = "a sparse matrix of real numbers"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX) from None


def write_npz(file: BufferedIOBase, A: BSR | Pattern) -> None:
    """Write as scipy's `save_npz` does; `save` documents it.

    Args:
        file: Where to.
        A: A matrix, or a pattern, which becomes a matrix of `True`.

    Raises:
        ImportError: If there is no scipy.
        TypeError: If the values are neither real nor integers.

    Examples:
        >>> from io import BytesIO
        >>> file = BytesIO()
        >>> write_npz(file, Pattern((2, 3), 1, [0, 1, 1], [2]))
        >>> scipy_module("scipy.sparse").load_npz(BytesIO(file.getvalue())).format
        'bsr'
    """
    if isinstance(A, Pattern):
        values = torch.ones(A.nnzb, *A.blocksize, dtype=torch.bool)
        A = BSR(values, A.to("cpu"))
    elif A.dtype in (torch.float16, torch.bfloat16):
        A = A.float()
    if A.dtype not in DTYPES:
        allowed, fix = "floating and integer dtypes", "convert it, as with A.float()"
        raise TypeError(message("A", got=f"{A.dtype} values", allowed=allowed, fix=fix))
    found = to_scipy(A, "csr" if A.pattern.ragged else "bsr", drop_zeros=False)
    scipy_module("scipy.sparse").save_npz(file, found)


def _size_of(path: Path) -> int:
    """Add up the arrays that are read; refuse those whose heads announce more than is there."""
    with BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(set(names)) != len(names):
            raise ValueError("two arrays of one name")
        odd = [name for name in names if not name.endswith(".npy")]
        if odd:
            raise ValueError(f"{odd[0][:40]!r}, which is no array")
        total = 0
        for name in _ARRAYS:
            if f"{name}.npy" in names:
                info = archive.getinfo(f"{name}.npy")
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{name} is packed by method {info.compress_type}")
                most = path.stat().st_size
                most *= 1 if info.compress_type == zipfile.ZIP_STORED else _UNPACKED
                with archive.open(info) as member:
                    claim = _claim_of(name, member)
                if claim > min(info.file_size, most):
                    raise ValueError(f"{name} of {claim} bytes in {info.file_size}")
                total += claim
    return total


def _claim_of(name: str, file: Any) -> int:
    """Bytes that an array has by its head."""
    version = npy.read_magic(file)
    if version not in _HEADS:
        raise ValueError(f"{name} in version {version} of npy")
    shape, _, dtype = _HEADS[version](file)
    if dtype.kind not in "biufcSU" or (dtype.itemsize == 0 and 0 not in shape):
        raise ValueError(f"{name} of dtype {dtype}")
    count = 1
    for length in shape:
        if length < 0:
            raise ValueError(f"{name} of shape {shape}")
        count *= int(length)
    return count * dtype.itemsize
