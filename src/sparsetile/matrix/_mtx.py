"""Matrices in Matrix Market's text format, `.mtx`.

Read with numpy: scipy 1.17's own reader ends the process on some damaged files. Written by scipy.
"""

import re
import warnings
from collections.abc import Sequence
from io import BufferedIOBase, StringIO
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64, Shaped

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import message
from sparsetile.matrix._convert import spell_out, to_rows
from sparsetile.matrix._entries import DTYPES, Entries, Stored, bad_file
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._scipy import scipy_module
from sparsetile.matrix._text import Text, open_text

_FIX = "get the file again, or write it with save"
_BANNER = (
    ("%%matrixmarket",),
    ("matrix",),
    ("coordinate", "array"),
    ("real", "double", "integer", "pattern"),
    ("general", "symmetric", "skew-symmetric"),
)
_WHOLE = r"[+-]?\d+"
_REAL = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|infinity|nan)"


_Part: TypeAlias = tuple[
    Int64[np.ndarray, " n"], Int64[np.ndarray, " n0"], Shaped[np.ndarray, " n"]
]


class _Head(NamedTuple):
    """Banner and sizes of a file; `entries` lines follow line `line`."""

    dense: bool
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int
    line: int


def read_mtx(path: Path) -> Stored:
    r"""Read a Matrix Market file, sparse or dense; `load` documents it.

    Memory is asked for as entries come, never for what the head announces.

    Args:
        path: The file, `.mtx` or `.mtx.gz`.

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
        ...     read_mtx(path).content.values
        tensor([5., 5.], dtype=torch.float64)
    """
    with open_text(path) as text:
        head = _head_of(text)
        parts, count = [_part_of(text, "", head, 0)[0]], 0
        for lines in text.whole_lines():
            part, taken = _part_of(text, lines, head, count)
            parts.append(part)
            count += taken
            if count > head.entries:
                break
        if count != head.entries:
            got = f"{count} entries" if count < head.entries else f"more than {head.entries}"
            allowed = f"{head.entries}, as line {head.line} says"
            raise bad_file(path, got=got, allowed=allowed, fix=_FIX)
        size = text.size
    rows, cols, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    if head.dense:
        rows, cols = _places_of(head, rows)
    if head.symmetry != "general":
        rows, cols, values = _mirror(path, head, rows, cols, values)
    tensors = (torch.from_numpy(np.ascontiguousarray(part)) for part in (rows, cols, values))
    return Stored(Entries(head.shape, *tensors), size)


def write_mtx(file: BufferedIOBase, A: BSR | Pattern) -> None:
    """Write elements row by row; `save` documents it.

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


def _head_of(text: Text) -> _Head:
    """Read banner and sizes."""
    path = text.path
    banner = text.line().lower().split()
    for at, words in enumerate(_BANNER):
        word = banner[at] if at < len(banner) else "nothing"
        known = words[:-1] if at == 3 and banner[2] == "array" else words
        if word not in known:
            allowed = f"{' or '.join(known)} as word {at + 1} of it"
            raise bad_file(path, got=repr(word[:40]), allowed=allowed, fix=_FIX, line=1)
    found = text.line()
    while found.startswith("%") or (found and not found.strip()):
        found = text.line()
    dense, field, symmetry = banner[2] == "array", banner[3], banner[4]
    sizes, line = found.split(), text.lines
    if len(sizes) != (2 if dense else 3) or not all(re.fullmatch("[0-9]{1,18}", s) for s in sizes):
        allowed = "rows and columns" if dense else "rows, columns and number of entries"
        got, allowed = repr(found[:40].strip()), f"{allowed}, from 0 up"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=line)
    m, k, *more = (int(size) for size in sizes)
    if symmetry != "general" and m != k:
        allowed = f"a square matrix, as line 1 calls it {symmetry}"
        raise bad_file(path, got=f"{m}×{k}", allowed=allowed, fix=_FIX, line=line)
    triangle = {"general": m * k, "symmetric": m * (m + 1) // 2, "skew-symmetric": m * (m - 1) // 2}
    entries = triangle[symmetry] if dense else more[0]
    # A value and the end of its line are two bytes at least, with row and column four; the last
    # line may lack its end. What cannot be there need not be looked for.
    if entries * (2 if dense else 4) - 1 > text.most:
        got = f"{entries} entries announced in a file that holds at most {text.most} bytes"
        raise bad_file(path, got=got, allowed="a whole file", fix=_FIX, line=line)
    return _Head(dense, field, symmetry, (m, k), entries, line)


def _part_of(text: Text, lines: str, head: _Head, before: int) -> tuple[_Part, int]:
    """Rows, columns and values of some lines, and how many lines held an entry.

    Of a dense file the non-zero values, their places counted through the file, and no columns.
    """
    table = _table_of(text, lines, head)
    values = table["value"] if head.field != "pattern" else np.ones(len(table))
    if head.dense:
        kept = np.flatnonzero(values)
        return (kept + before, kept[:0], values[kept]), len(table)
    rows, cols = table["row"] - 1, table["column"] - 1
    for what, index, size in (("row", rows, head.shape[0]), ("column", cols, head.shape[1])):
        outside = (index < 0) | (index >= size)
        if outside.any():
            at = int(outside.argmax())
            filled = [number for number, line in enumerate(lines.split("\n"), 1) if line.strip()]
            got, line = (
                f"{what} {index[at] + 1} in entry {before + at + 1}",
                text.lines + filled[at],
            )
            raise bad_file(text.path, got=got, allowed=f"1 to {size}", fix=_FIX, line=line)
    # Copies: views would keep the whole table.
    return (rows, cols, values.copy()), len(table)


def _table_of(text: Text, lines: str, head: _Head) -> Shaped[np.ndarray, " entries"]:
    """Read lines after the head, one entry a line."""
    names = [] if head.dense else ["row", "column"]
    columns = [(name, "i8") for name in names]
    if head.field != "pattern":
        columns.append(("value", "i8" if head.field == "integer" else "f8"))
    try:
        with warnings.catch_warnings():
            # numpy warns of lines without an entry, and before 2 of integers with a point.
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", DeprecationWarning)
            return np.loadtxt(StringIO(lines), dtype=columns, comments=None, ndmin=1)
    except (ValueError, DeprecationWarning) as error:
        line, odd = _first_odd(lines, [_REAL if t == "f8" else _WHOLE for _, t in columns])
        got = f"{odd[:40].strip()!r}" if odd else f"what numpy cannot read ({error})"
        what = "a real" if head.field in ("real", "double") else "a whole"
        allowed = " and ".join([*names, *([f"{what} number"] if head.field != "pattern" else [])])
        at = text.lines + line
        raise bad_file(text.path, got=got, allowed=allowed, fix=_FIX, line=at) from None


def _first_odd(lines: str, words: Sequence[str]) -> tuple[int, str]:
    """Find the first line that is not made of such words, counted from 1; no text if none is."""
    entry = r"\s+".join(words)
    form = re.compile(rf"\s*{entry}\s*|\s*", re.ASCII | re.IGNORECASE)
    for line, text in enumerate(lines.split("\n"), start=1):
        if not form.fullmatch(text) or re.search(r"\d{19}", text):
            return line, text
    return 1, ""


def _places_of(
    head: _Head, flat: Int64[np.ndarray, " n"]
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Row and column of values of a dense file: column by column, maybe a triangle."""
    m = head.shape[0]
    if head.symmetry == "general":
        return flat % max(m, 1), flat // max(m, 1)
    if not head.entries:
        return flat, flat
    skipped = int(head.symmetry == "skew-symmetric")
    # Column j holds the rows from j on, or those below it.
    start = np.cumsum(m - skipped - np.arange(m)) - (m - skipped - np.arange(m))
    cols = np.searchsorted(start, flat, side="right") - 1
    if skipped:
        # The last column is empty: it starts where the file ends.
        cols = np.minimum(cols, m - 2)
    return flat - start[cols] + cols + skipped, cols


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
