"""Random choices of blocks that load every block row and every block column alike."""

import numpy as np
from numpy.typing import NDArray

# Each round moves most of the blocks once; the start is a band, permuted, which few rounds mix.
_ROUNDS = 5


def balanced_places(bits: np.random.PCG64, count: int, mb: int, kb: int) -> NDArray[np.int64]:
    """Choose places of a grid so that its rows differ by one at most, and so do its columns.

    Args:
        bits: Where chance comes from; its raw stream alone is used.
        count: How many places, at most `mb * kb`.
        mb: Rows of the grid.
        kb: Columns of the grid.

    Returns:
        The places I · kb + J, ascending.

    Examples:
        >>> places = balanced_places(np.random.PCG64(0), 8, 4, 4)
        >>> np.bincount(places // 4).tolist(), np.bincount(places % 4).tolist()
        ([2, 2, 2, 2], [2, 2, 2, 2])
    """
    if not count:
        return np.zeros(0, dtype=np.int64)
    if 2 * count > mb * kb:
        free = balanced_places(bits, mb * kb - count, mb, kb)
        taken = np.ones(mb * kb, dtype=np.bool_)
        taken[free] = False
        return np.flatnonzero(taken)
    # Blocks are dealt to the columns in turn, so the t-th lies in column t mod kb; a row takes
    # consecutive ones, at most kb, so none twice.
    few, more = divmod(count, mb)
    rows = np.repeat(np.arange(mb if few else more), few + (np.arange(mb if few else more) < more))
    row = _shuffled(bits, mb)[rows]
    column = _shuffled(bits, kb)[np.arange(count) % kb]
    for _ in range(_ROUNDS):
        column = _traded(bits, row, column, kb)
    return np.sort(row * kb + column)


def _traded(
    bits: np.random.PCG64, row: NDArray[np.int64], column: NDArray[np.int64], kb: int
) -> NDArray[np.int64]:
    """Let random pairs of blocks trade their columns, where both places they go to are free."""
    order = _shuffled(bits, len(row))
    half = len(row) // 2
    first, second = order[:half], order[half : 2 * half]
    # A table of the whole grid, or a smaller one in which few places meet: those trade later.
    cells = min((int(row.max()) + 1) * kb, 64 * len(row))
    goals = [(row[i] * kb + column[j]) % cells for i, j in ((first, second), (second, first))]
    taken = np.zeros(cells, dtype=np.bool_)
    taken[(row * kb + column) % cells] = True
    owner = np.empty(cells, dtype=np.int64)
    pair = np.arange(half)
    for goal in goals:
        owner[goal] = pair
    free = np.ones(half, dtype=np.bool_)
    for goal in goals:
        free &= ~taken[goal] & (owner[goal] == pair)
    first, second = first[free], second[free]
    traded = column.copy()
    traded[first], traded[second] = column[second], column[first]
    return traded


def _shuffled(bits: np.random.PCG64, size: int) -> NDArray[np.int64]:
    """The numbers 0 to size - 1 in random order."""
    below = np.uint64((1 << size.bit_length()) - 1)
    # Each number rides in the low bits of its key, so that equal keys cannot fall either way.
    keys = (bits.random_raw(size) & ~below) | np.arange(size, dtype=np.uint64)
    return (np.sort(keys) & below).astype(np.int64)
