"""A pattern as a small grid of densities: what pictures are drawn from."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_int, describe, message
from sparsetile.matrix._pattern import Pattern


class Cells(NamedTuple):
    """Cells of a picture: how full they are and where they lie, in elements of the matrix."""

    shape: tuple[int, int]
    title: str
    filled: NDArray[np.float64]
    x: NDArray[np.int64]
    y: NDArray[np.int64]


def cells_of(A: Pattern | BSR, most: int) -> Cells:
    """Count the stored blocks in a grid of at most `most` cells a side.

    Args:
        A: Pattern or matrix.
        most: Cells along each side at most.

    Returns:
        The share of stored blocks in each cell, and the edges of the cells.

    Raises:
        TypeError: If `A` is neither a Pattern nor a BSR.
        ValueError: If `most` is below 1.

    Examples:
        >>> cells_of(Pattern((4, 4), 2, [0, 1, 2], [0, 1]), 1).filled
        array([[0.5]])
    """
    if not isinstance(A, (Pattern, BSR)):
        raise TypeError(
            message(
                "A",
                got=describe(A),
                allowed="a Pattern or a BSR",
                fix="make one with BSR.from_dense or pattern_of",
            )
        )
    most = as_int("cells", most, least=1, fix="pass the most cells a side, as in cells=64")
    pattern = A.pattern if isinstance(A, BSR) else A
    (m, k), (r, c), (mb, kb) = pattern.shape, pattern.blocksize, pattern.grid
    rows, cols = min(mb, most), min(kb, most)
    row = pattern.row_indices.cpu().numpy().astype(np.int64) * rows // max(mb, 1)
    col = pattern.col_indices.cpu().numpy().astype(np.int64) * cols // max(kb, 1)
    counts = np.bincount(row * cols + col, minlength=rows * cols).reshape(rows, cols)
    # Cell q starts at the first block b with b * rows // mb == q.
    start_row = -(-np.arange(rows + 1) * mb // max(rows, 1))
    start_col = -(-np.arange(cols + 1) * kb // max(cols, 1))
    blocks = np.outer(np.diff(start_row), np.diff(start_col))
    x, y = np.minimum(start_col * c, k), np.minimum(start_row * r, m)
    return Cells((m, k), pattern.summary(), counts / np.maximum(blocks, 1), x, y)
