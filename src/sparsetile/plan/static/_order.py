"""In which order rows and columns are cut, and how many of them count when planning."""

from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from sparsetile.matrix import Pattern

_THIN = 0.1  # of the mean count: what stores less than this does not count when planning


@lru_cache(maxsize=64)
def block_order(
    pattern: Pattern, preprocess: bool
) -> tuple[Int64[np.ndarray, " mb"], Int64[np.ndarray, " kb"]]:
    """Block rows and block columns in the order in which a static plan cuts them.

    PopSparse's static planner orders each dimension by falling count of stored blocks and cuts the
    tail whose counts are at most a tenth of the number of blocks over the dimension's length. What
    is kept stands first, in ascending order again; the tail follows.

    Args:
        pattern: The stored blocks.
        preprocess: Whether to permute at all.

    Returns:
        Block rows `[mb]` and block columns `[kb]` in planned order. Do not write into them.

    Examples:
        >>> rows, columns = block_order(Pattern((3, 2), 1, [0, 1, 1, 3], [0, 0, 1]), True)
        >>> rows.tolist(), columns.tolist()
        ([0, 2, 1], [0, 1])
    """
    rows, columns = block_counts(pattern)
    if not preprocess:
        return np.arange(len(rows)), np.arange(len(columns))
    return thin_last(rows), thin_last(columns)


def planned_size(counts: Int64[np.ndarray, " blocks"], preprocess: bool) -> int:
    """How many block rows (or columns) of these counts a static plan reckons with; at least 1."""
    return max(1, int((~_thin(counts)).sum())) if preprocess else max(1, len(counts))


def block_counts(pattern: Pattern) -> tuple[Int64[np.ndarray, " mb"], Int64[np.ndarray, " kb"]]:
    """Stored blocks of each block row `[mb]` and block column `[kb]`."""
    columns = pattern.col_indices.cpu().numpy()
    rows = np.diff(pattern.crow_indices.cpu().numpy().astype(np.int64))
    return rows, np.bincount(columns, minlength=pattern.grid[1]).astype(np.int64)


def thin_last(counts: Int64[np.ndarray, " blocks"]) -> Int64[np.ndarray, " blocks"]:
    """The order that puts rows (or columns) that store little last."""
    return np.argsort(_thin(counts), kind="stable")


def _thin(counts: Int64[np.ndarray, " blocks"]) -> np.ndarray:
    if len(counts) == 0:
        return np.zeros(0, bool)
    thin = counts <= _THIN * counts.sum() / len(counts)
    if thin.all():
        thin[np.argmax(counts)] = False
    return thin
