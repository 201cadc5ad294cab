"""What a file of a sparse matrix holds, and what to say when the file is wrong."""

from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import message
from sparsetile.matrix._pattern import Pattern

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool),
)
# A small file may name a size for which no memory is. Rows cost memory, columns only those who
# transpose; so many are always taken, more only from a file of that much text or data.
ROWS, COLUMNS, PER_BYTE = 2**20, 2**26, 16


class Entries(NamedTuple):
    """Single elements in any order, duplicates among them."""

    shape: tuple[int, int]
    rows: Int[Tensor, " n"]
    cols: Int[Tensor, " n"]
    values: Shaped[Tensor, " n"]


class Stored(NamedTuple):
    """What was read, in the file's own blocks where it has them."""

    content: Entries | BSR | Pattern
    size: int  # bytes that were really there, unpacked


def bad_file(
    path: Path, *, got: str, allowed: str, fix: str, line: int | None = None
) -> ValueError:
    """Make the error for a file that does not hold what it should.

    Args:
        path: The file.
        got: What it holds.
        allowed: What it should.
        fix: What to do.
        line: Where, counted from 1.

    Returns:
        The error, to be raised.

    Examples:
        >>> bad_file(Path("a.mtx"), got="no line", allowed="a banner", fix="get it again", line=1)
        ValueError('a.mtx, line 1: got no line; allowed: a banner; get it again')
    """
    where = str(path) if line is None else f"{path}, line {line}"
    return ValueError(message(where, got=got, allowed=allowed, fix=fix))


def check_sides(
    path: Path, shape: tuple[int, int], blocksize: tuple[int, int], *, size: int
) -> None:
    """Refuse a grid of blocks that is out of all proportion to the file, or not to be numbered.

    Args:
        path: The file.
        shape: Rows and columns that it names.
        blocksize: Rows and columns of a block.
        size: Bytes that were really there.

    Raises:
        ValueError: If there would be too many block rows, block columns or elements.

    Examples:
        >>> check_sides(Path("a.mtx"), (1000, 1000), (1, 1), size=60)
    """
    rows, cols = (-(-length // side) for length, side in zip(shape, blocksize, strict=True))
    most_rows, most_cols = (min(max(n, PER_BYTE * size), 2**31 - 2) for n in (ROWS, COLUMNS))
    got = f"a matrix of {shape[0]}×{shape[1]}, which is {rows}×{cols} blocks"
    if rows > most_rows or cols > most_cols:
        allowed = (
            f"at most {most_rows} block rows and {most_cols} block columns for a file of this size"
        )
        fix = "pass a larger blocksize, or check the sizes in the file"
        raise bad_file(path, got=got, allowed=allowed, fix=fix)
    if rows * cols * blocksize[0] * blocksize[1] >= 2**62:
        got = f"{got} of {blocksize[0]}×{blocksize[1]}"
        allowed = "at most 2^62 elements in all blocks (int64)"
        raise bad_file(path, got=got, allowed=allowed, fix="pass a smaller blocksize")


def check_places(path: Path, entries: Entries) -> None:
    """Refuse elements outside the matrix.

    Args:
        path: The file.
        entries: What it holds.

    Raises:
        ValueError: With the first row or column that is outside.

    Examples:
        >>> one = torch.tensor([0])
        >>> check_places(Path("a.pt"), Entries((1, 1), one, one, torch.ones(1)))
    """
    axes = (("row", entries.rows), ("column", entries.cols))
    for (what, index), size in zip(axes, entries.shape, strict=True):
        outside = (index < 0) | (index >= size)
        if bool(outside.any()):
            at = int(outside.nonzero()[0])
            got = f"{what} {int(index[at])} of element {at}, counted from 0"
            allowed = f"0 to {size - 1}" if size else f"none: there are no {what}s"
            raise bad_file(path, got=got, allowed=allowed, fix="get the file again")
