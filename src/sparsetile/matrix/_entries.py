"""What a file of a sparse matrix holds, and what to say when the file is wrong."""

from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from sparsetile.matrix._check import message

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool),
)
# A small file may name a size for which no memory is: so many rows or columns are always taken,
# more only from a file of as many bytes.
PLENTY = 2**26


class Entries(NamedTuple):
    """Single elements in any order, duplicates among them."""

    shape: tuple[int, int]
    rows: Int[Tensor, " n"]
    cols: Int[Tensor, " n"]
    values: Shaped[Tensor, " n"]


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


def check_sides(path: Path, shape: tuple[int, int], blocksize: tuple[int, int]) -> None:
    """Refuse a grid of blocks that is out of all proportion to the file.

    Args:
        path: The file.
        shape: Rows and columns that it names.
        blocksize: Rows and columns of a block.

    Raises:
        ValueError: If there would be too many block rows or block columns.

    Examples:
        >>> check_sides(Path("a.mtx"), (1000, 1000), (1, 1))
    """
    sides = [-(-size // side) for size, side in zip(shape, blocksize, strict=True)]
    most = PLENTY if max(sides) <= PLENTY else max(PLENTY, path.stat().st_size)
    most = min(most, 2**31 - 2)
    if max(sides) > most:
        raise bad_file(
            path,
            got=f"a matrix of {shape[0]}×{shape[1]}, which is {sides[0]}×{sides[1]} blocks",
            allowed=f"at most {most} block rows and block columns for a file of this size",
            fix="pass a larger blocksize, or check the sizes in the file",
        )
