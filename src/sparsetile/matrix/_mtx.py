"""Matrices in Matrix Market's text format, `.mtx`, read and written by scipy."""

import os
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import message
from sparsetile.matrix._convert import spell_out, to_rows
from sparsetile.matrix._entries import DTYPES, Entries, bad_file
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._scipy import scipy_module

_FIX = "get the file again, or write it with write_matrix"
_BANNER = (
    ("%%matrixmarket",),
    ("matrix",),
    ("coordinate", "array"),
    ("real", "double", "integer", "pattern"),
    ("general", "symmetric", "skew-symmetric"),
)


class _Head(NamedTuple):
    """Banner and sizes of a file, and where its body starts."""

    dense: bool
    integers: bool
    shape: tuple[int, int]
    start: int


def read_mtx(path: Path) -> Entries:
    r"""Read a Matrix Market file, sparse or dense; `read_matrix` documents it.

    Args:
        path: The file.

    Returns:
        The stored elements, both triangles of symmetric ones; of a dense file the non-zero ones.

    Raises:
        ImportError: If there is no scipy.
        ValueError: If the file is damaged, or holds complex numbers.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.mtx")
        ...     head = "%%MatrixMarket matrix coordinate real symmetric"
        ...     _ = path.write_text(f"{head}\n2 2 1\n2 1 5.0\n")
        ...     read_mtx(path).values
        tensor([5., 5.], dtype=torch.float64)
    """
    reader = scipy_module("scipy.io").mmread
    head = _head_of(path)
    if head.dense and 0 in head.shape:
        # scipy 1.17 divides by the number of rows.
        none = torch.zeros(0, dtype=torch.int64)
        return Entries(head.shape, none, none, none.double())
    if head.integers:
        _check_integers(path, head.start)
    try:
        found = reader(str(path))
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:
        got, allowed = f"what scipy refuses: {error}", "a whole Matrix Market file"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX) from None
    if head.dense:
        rows, cols = np.nonzero(found)
        values = found[rows, cols]
    else:
        rows, cols, values = found.row, found.col, found.data
    parts = (torch.from_numpy(np.ascontiguousarray(part)) for part in (rows, cols, values))
    return Entries(head.shape, *parts)


def write_mtx(file: BufferedIOBase, A: BSR | Pattern) -> None:
    """Write elements row by row; `write_matrix` documents it.

    Args:
        file: Where to.
        A: A matrix, or a pattern for a file without values.

    Raises:
        ImportError: If there is no scipy.
        TypeError: If the values are neither real nor integers.

    Examples:
        >>> from io import BytesIO
        >>> file = BytesIO()
        >>> write_mtx(file, Pattern((2, 3), 1, [0, 1, 1], [2]))
        >>> file.getvalue().split()[-2:]
        [b'1', b'3']
    """
    if isinstance(A, Pattern):
        values = torch.ones(1).expand(A.nnzb, *A.blocksize)
        rows, field = to_rows(BSR(values, A.to("cpu")), drop_zeros=False), "pattern"
    else:
        if A.dtype not in (*DTYPES, torch.bfloat16) or A.dtype == torch.bool:
            allowed, fix = "floating and integer dtypes", "convert it, as with A.float()"
            raise TypeError(message("A", got=f"{A.dtype} values", allowed=allowed, fix=fix))
        real = A.dtype.is_floating_point
        rows, field = to_rows(A.detach().cpu(), drop_zeros=False), "real" if real else "integer"
    values = rows.values
    if field == "integer":
        values = values.long()
    elif values.dtype != torch.float64:
        values = values.float()
    entries = (values.numpy(), (spell_out(rows.crow).numpy(), rows.col.numpy()))
    sparse = scipy_module("scipy.sparse").coo_array(entries, shape=A.shape)
    # Left to itself scipy looks for symmetry, and may leave out a triangle.
    scipy_module("scipy.io").mmwrite(file, sparse, field=field, symmetry="general")


def _head_of(path: Path) -> _Head:
    """Read banner and sizes."""
    with path.open("rb") as file:
        banner = file.readline(2**20).decode("latin-1").lower().split()
        for at, known in enumerate(_BANNER):
            word = banner[at] if at < len(banner) else "nothing"
            if at == 3 and banner[2] == "array":
                known = known[:-1]
            if word not in known:
                allowed = f"{' or '.join(known)} as word {at + 1} of it"
                raise bad_file(path, got=repr(word[:40]), allowed=allowed, fix=_FIX, line=1)
        text, line = file.readline(2**20), 2
        while text.startswith(b"%") or (text and not text.strip()):
            text, line = file.readline(2**20), line + 1
        start, size = file.tell(), os.fstat(file.fileno()).st_size
    dense, words = banner[2] == "array", text.split()
    if len(words) != (2 if dense else 3) or not all(w.isdigit() and len(w) < 19 for w in words):
        got = repr(text[:40].decode("latin-1").strip())
        allowed = "rows and columns" if dense else "rows, columns and number of entries"
        raise bad_file(path, got=got, allowed=f"{allowed}, from 0 up", fix=_FIX, line=line)
    m, k, *more = (int(word) for word in words)
    whole = banner[4] == "general"
    if not whole and m != k:
        allowed = f"a square matrix, as line 1 calls it {banner[4]}"
        raise bad_file(path, got=f"{m}×{k}", allowed=allowed, fix=_FIX, line=line)
    # scipy takes memory for all that is announced before it looks whether it is there. An entry
    # has four bytes at least, a value of a dense file two; the last line may lack its end.
    count = (m * k if whole else m * (m - 1) // 2) if dense else more[0]
    if count * (2 if dense else 4) - 1 > size - start:
        got = f"{count} entries announced and {size - start} bytes that follow"
        raise bad_file(path, got=got, allowed="a whole file", fix=_FIX, line=line)
    return _Head(dense, banner[3] == "integer", (m, k), start)


def _check_integers(path: Path, start: int) -> None:
    """Refuse decimals in the body of a file of integers: scipy would cut 1.5 down to 1."""
    with path.open("rb") as file:
        file.seek(start)
        odd = file.read().translate(None, b"0123456789+- \t\r\n")
    if odd:
        got = f"{odd[:1].decode('latin-1')!r} among whole numbers"
        fix = 'write "real" for "integer" in line 1, or get the file again'
        raise bad_file(path, got=got, allowed="digits and signs", fix=fix)
