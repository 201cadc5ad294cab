"""Patterns as text in three lines, `.smtx`: the format of the Deep Learning Matrix Collection."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._convert import spell_out, to_rows
from sparsetile.matrix._entries import Entries, bad_file
from sparsetile.matrix._formats import CSR
from sparsetile.matrix._pattern import Pattern

_FIX = "get the file again, or write it with write_matrix"
_WHAT = ("the sizes", "the row offsets", "the column indices")
# Commas are taken for blanks: files differ in what they put between numbers.
_BLANKS = bytes.maketrans(b",\t", b"  ")


def read_smtx(path: Path) -> Entries:
    r"""Read sizes, row offsets and column indices; `read_pattern` documents it.

    Args:
        path: The file.

    Returns:
        The elements, with ones for values.

    Raises:
        ValueError: With the line that is wrong.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.smtx")
        ...     _ = path.write_text("2, 3, 1\n0 1 1\n2\n")
        ...     read_smtx(path).cols
        tensor([2])
    """
    lines = path.read_bytes().rstrip().splitlines()
    if len(lines) > 3:
        got, allowed = f"{len(lines)} lines", "three: sizes, row offsets, column indices"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX)
    lines += [b""] * (3 - len(lines))
    sizes = _numbers(path, lines, 1)
    if len(sizes) != 3:
        got, allowed = f"{len(sizes)} numbers", "three: rows, columns, non-zeros"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=1)
    m, k, nnz = (int(size) for size in sizes)
    found = []
    for line, count in ((2, m + 1), (3, nnz)):
        found.append(_numbers(path, lines, line))
        if len(found[-1]) != count:
            got = f"{len(found[-1])} numbers"
            allowed = f"{count}, as line 1 has {m} rows, {k} columns and {nnz} non-zeros"
            raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=line)
    try:
        rows = CSR((m, k), 1, found[0], found[1], np.ones(nnz))
    except ValueError as error:
        got, allowed = f"wrong numbers: {error}", "rows of elements, as in CSR"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX) from None
    crow, col = torch.from_numpy(rows.crow_indices), torch.from_numpy(rows.col_indices)
    return Entries((m, k), spell_out(crow), col, torch.from_numpy(rows.values))


def smtx_text(pattern: Pattern) -> bytes:
    r"""Write out a pattern; `write_matrix` documents it.

    Args:
        pattern: The pattern; blocks are spelled out element by element.

    Returns:
        What the file holds.

    Examples:
        >>> smtx_text(Pattern((2, 3), 1, [0, 1, 1], [2]))
        b'2, 3, 1\n0 1 1\n2\n'
    """
    values = torch.empty(1, dtype=torch.bool).expand(pattern.nnzb, *pattern.blocksize)
    rows = to_rows(BSR(values, pattern.to("cpu")), drop_zeros=False)
    m, k = pattern.shape
    offsets, columns = (" ".join(map(str, part.tolist())) for part in (rows.crow, rows.col))
    return f"{m}, {k}, {len(rows.col)}\n{offsets}\n{columns}\n".encode()


def _numbers(path: Path, lines: list[bytes], line: int) -> Int64[np.ndarray, " n"]:
    """Read a line of whole numbers from 0 up, counted from 1."""
    text = lines[line - 1].translate(_BLANKS)
    if text.translate(None, b"0123456789 "):
        odd = next(word for word in text.split() if not word.isdigit())
        got = f"{odd[:20].decode('ascii', 'backslashreplace')!r} among {_WHAT[line - 1]}"
        allowed = "whole numbers from 0 up, with blanks or commas between"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=line)
    # Numbers beyond int64 come out as its largest, which no matrix has.
    return np.fromstring(text, dtype=np.int64, sep=" ") if text.strip() else np.zeros(0, np.int64)
