"""Matrices in Matrix Market's text format, `.mtx`.

Read with numpy: scipy 1.17's own reader ends the process on some damaged files. Written by scipy.
"""

import os
import re
import warnings
from collections.abc import Sequence
from io import BufferedIOBase, TextIOWrapper
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, Shaped

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
_WHOLE = r"[+-]?\d+"
_REAL = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity|nan)"
_LONGEST = 2**20


class _Head(NamedTuple):
    """Banner and sizes of a file; `entries` lines follow line `line`."""

    dense: bool
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int
    line: int


def read_mtx(path: Path) -> Entries:
    r"""Read a Matrix Market file, sparse or dense; `read_matrix` documents it.

    Args:
        path: The file.

    Returns:
        The stored elements, both triangles of symmetric ones; of a dense file the non-zero ones.

    Raises:
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
    # One byte is one character in latin-1, so that any bytes at all can be read.
    with path.open(encoding="latin-1") as file:
        head = _head_of(path, file)
        table = _table_of(path, file, head)
    values = table["value"] if head.field != "pattern" else np.ones(len(table))
    if head.dense:
        rows, cols = _places_of(head)
        kept = values != 0
        rows, cols, values = rows[kept], cols[kept], values[kept]
    else:
        rows, cols = table["row"] - 1, table["column"] - 1
        for what, index, size in (("row", rows, head.shape[0]), ("column", cols, head.shape[1])):
            outside = (index < 0) | (index >= size)
            if outside.any():
                at = int(outside.argmax())
                got, allowed = f"{what} {index[at] + 1} in entry {at + 1}", f"1 to {size}"
                raise bad_file(path, got=got, allowed=allowed, fix=_FIX)
    if head.symmetry != "general":
        rows, cols, values = _mirror(path, head, rows, cols, values)
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


def _head_of(path: Path, file: TextIOWrapper) -> _Head:
    """Read banner and sizes."""
    banner = file.readline(_LONGEST).lower().split()
    for at, words in enumerate(_BANNER):
        word = banner[at] if at < len(banner) else "nothing"
        known = words[:-1] if at == 3 and banner[2] == "array" else words
        if word not in known:
            allowed = f"{' or '.join(known)} as word {at + 1} of it"
            raise bad_file(path, got=repr(word[:40]), allowed=allowed, fix=_FIX, line=1)
    text, line = file.readline(_LONGEST), 2
    while text.startswith("%") or (text and not text.strip()):
        text, line = file.readline(_LONGEST), line + 1
    dense, field, symmetry = banner[2] == "array", banner[3], banner[4]
    sizes = text.split()
    if len(sizes) != (2 if dense else 3) or not all(re.fullmatch("[0-9]{1,18}", s) for s in sizes):
        allowed = "rows and columns" if dense else "rows, columns and number of entries"
        got, allowed = repr(text[:40].strip()), f"{allowed}, from 0 up"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=line)
    m, k, *more = (int(size) for size in sizes)
    if symmetry != "general" and m != k:
        allowed = f"a square matrix, as line 1 calls it {symmetry}"
        raise bad_file(path, got=f"{m}×{k}", allowed=allowed, fix=_FIX, line=line)
    triangle = {"general": m * k, "symmetric": m * (m + 1) // 2, "skew-symmetric": m * (m - 1) // 2}
    entries = triangle[symmetry] if dense else more[0]
    # No memory for what cannot be there: a value and the end of its line are two bytes at least,
    # with row and column four; the last line may lack its end.
    size = os.fstat(file.fileno()).st_size
    if entries * (2 if dense else 4) - 1 > size:
        got = f"{entries} entries announced in a file of {size} bytes"
        raise bad_file(path, got=got, allowed="a whole file", fix=_FIX, line=line)
    return _Head(dense, field, symmetry, (m, k), entries, line)


def _table_of(path: Path, file: TextIOWrapper, head: _Head) -> Shaped[np.ndarray, " entries"]:
    """Read the lines after the head, one entry a line."""
    names = [] if head.dense else ["row", "column"]
    columns = [(name, "i8") for name in names]
    if head.field != "pattern":
        columns.append(("value", "i8" if head.field == "integer" else "f8"))
    start = file.tell()
    try:
        with warnings.catch_warnings():
            # numpy warns of a body without a line.
            warnings.simplefilter("ignore", UserWarning)
            table = np.loadtxt(file, dtype=columns, comments=None, ndmin=1)
    except ValueError as error:
        file.seek(start)
        line, text = _first_odd(file, [_REAL if t == "f8" else _WHOLE for _, t in columns])
        got = f"{text[:40].strip()!r}" if text else f"what numpy cannot read ({error})"
        what = "a real" if head.field in ("real", "double") else "a whole"
        allowed = " and ".join([*names, *([f"{what} number"] if head.field != "pattern" else [])])
        at = head.line + line if text else None
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=at) from None
    if len(table) != head.entries:
        got = f"{len(table)} entries"
        allowed = f"{head.entries}, as line {head.line} says"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX)
    return table


def _first_odd(file: TextIOWrapper, words: Sequence[str]) -> tuple[int, str]:
    """Find the first line that is not made of such words, counted from 1; no text if none is."""
    entry = r"\s+".join(words)
    form = re.compile(rf"\s*{entry}\s*|\s*", re.ASCII | re.IGNORECASE)
    for line, text in enumerate(file, start=1):
        if not form.fullmatch(text) or re.search(r"\d{19}", text):
            return line, text
    return 0, ""


def _places_of(head: _Head) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Row and column of each value of a dense file: column by column, maybe a triangle."""
    m, k = head.shape
    if head.symmetry == "general":
        return np.tile(np.arange(m), k), np.arange(k).repeat(m)
    cols, rows = np.triu_indices(m, 1 if head.symmetry == "skew-symmetric" else 0)
    return rows, cols


def _mirror(
    path: Path,
    head: _Head,
    rows: Int64[np.ndarray, " n"],
    cols: Int64[np.ndarray, " n"],
    values: Shaped[np.ndarray, " n"],
) -> tuple[Int64[np.ndarray, " t"], Int64[np.ndarray, " t"], Shaped[np.ndarray, " t"]]:
    """Add the other triangle of a symmetric matrix."""
    off, skew = rows != cols, head.symmetry == "skew-symmetric"
    if (rows < cols).any() and (rows > cols).any():
        got = f"entries above and below the diagonal of a {head.symmetry} matrix"
        raise bad_file(path, got=got, allowed="one triangle", fix='write "general" in line 1')
    if skew and (values[~off] != 0).any():
        got, allowed = "a value on the diagonal", "none in a skew-symmetric matrix"
        raise bad_file(path, got=got, allowed=allowed, fix='write "general" in line 1')
    both = np.concatenate([rows, cols[off]]), np.concatenate([cols, rows[off]])
    return *both, np.concatenate([values, -values[off] if skew else values[off]])
