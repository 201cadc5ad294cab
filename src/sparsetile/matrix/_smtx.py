"""Patterns as text in three lines, `.smtx`: the format of the Deep Learning Matrix Collection."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int64

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._convert import to_rows
from sparsetile.matrix._entries import Stored, bad_file
from sparsetile.matrix._formats import CSR
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._text import Text, open_text

_FIX = "get the file again, or write it with save"
_WHAT = ("the sizes", "the row offsets", "the column indices")
# Commas are taken for blanks: files differ in what they put between numbers.
_BLANKS = bytes.maketrans(b",\t\r\n", b"    ")
_MOST_DIGITS = 1000


def read_smtx(path: Path) -> Stored:
    r"""Read sizes, row offsets and column indices; `load_pattern` documents it.

    Lines of any length are read piece by piece; memory is asked for as numbers come.

    Args:
        path: The file, `.smtx` or `.smtx.gz`.

    Returns:
        The pattern, of single elements.

    Raises:
        ValueError: With the line that is wrong.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.smtx")
        ...     _ = path.write_text("2, 3, 1\n0 1 1\n2\n")
        ...     read_smtx(path).content.col_indices
        tensor([2], dtype=torch.int32)
    """
    with open_text(path) as text:
        sizes = _numbers(text, 1, 3)
        if len(sizes) != 3:
            got, allowed = _count(sizes, 3), "three: rows, columns, non-zeros"
            raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=1)
        m, k, nnz = (int(size) for size in sizes)
        found = []
        for line, count in ((2, m + 1), (3, nnz)):
            found.append(_numbers(text, line, count))
            if len(found[-1]) != count:
                allowed = f"{count}, as line 1 has {m} rows, {k} columns and {nnz} non-zeros"
                got = _count(found[-1], count)
                raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=line)
        while rest := text.part_of_line():
            if rest.strip():
                got, allowed = "more text", "three lines: sizes, row offsets, column indices"
                raise bad_file(path, got=got, allowed=allowed, fix=_FIX, line=4)
        size = text.size
    try:
        rows = CSR((m, k), 1, found[0], found[1], np.ones(nnz, np.int8))
    except ValueError as error:
        got, allowed = f"wrong numbers: {error}", "rows of elements, as in CSR"
        raise bad_file(path, got=got, allowed=allowed, fix=_FIX) from None
    return Stored(Pattern((m, k), 1, rows.crow_indices, rows.col_indices), size)


def smtx_text(pattern: Pattern) -> bytes:
    r"""Write out a pattern; `save` documents it.

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


def _numbers(text: Text, line: int, most: int) -> Int64[np.ndarray, " n"]:
    """Read a line of whole numbers from 0 up, counted from 1; it stops soon after `most`."""
    found, rest, count, ended = [np.zeros(0, np.int64)], b"", 0, False
    while count <= most and not ended:
        piece = text.part_of_line()
        ended = not piece or piece.endswith("\n")
        words = rest + piece.encode("latin-1").translate(_BLANKS)
        if words.translate(None, b"0123456789 "):
            odd = next(word for word in words.split(b" ") if word.strip(b"0123456789"))
            got = f"{odd[:20].decode('ascii', 'backslashreplace')!r} among {_WHAT[line - 1]}"
            allowed = "whole numbers from 0 up, with blanks or commas between"
            raise bad_file(text.path, got=got, allowed=allowed, fix=_FIX, line=line)
        # The last number may go on in the next piece.
        cut = len(words) if ended else words.rfind(b" ") + 1
        words, rest = words[:cut], words[cut:]
        if len(rest) > _MOST_DIGITS:
            got, allowed = "a number without end", f"at most {_MOST_DIGITS} digits"
            raise bad_file(text.path, got=got, allowed=allowed, fix=_FIX, line=line)
        if words.strip():
            # Numbers beyond int64 come out as its largest, which no matrix has.
            found.append(np.fromstring(words, dtype=np.int64, sep=" "))
            count += len(found[-1])
    return np.concatenate(found)


def _count(found: Int64[np.ndarray, " n"], wanted: int) -> str:
    """Say how many numbers there are; of too many not all have been read."""
    return f"{len(found)} numbers" if len(found) < wanted else f"more than {wanted} numbers"
