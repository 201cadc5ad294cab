"""Runs of elements cut where the parts of tiles meet."""

import numpy as np
from jaxtyping import Int64

Runs = Int64[np.ndarray, " runs"]
Pieces = Int64[np.ndarray, " pieces"]


def cut(
    start: Runs, length: Runs, offsets: Int64[np.ndarray, " tiles1"]
) -> tuple[Pieces, Pieces, Pieces]:
    """Cut runs of a flat array so that each piece lies on one tile.

    Args:
        start: First element of each run.
        length: Elements of each run.
        offsets: Where the parts of the tiles begin, and the end of the last.

    Returns:
        The run that each piece belongs to, the piece's first element and its number of elements;
        pieces of a run follow each other, empty ones are left out.

    Examples:
        >>> run, begin, size = cut(np.array([1, 4]), np.array([5, 2]), np.array([0, 3, 3, 8]))
        >>> run.tolist(), begin.tolist(), size.tolist()
        ([0, 0, 1], [1, 3, 4], [2, 3, 2])
    """
    end = start + length
    first = np.searchsorted(offsets, start, side="right") - 1
    last = np.searchsorted(offsets, end, side="left") - 1
    count = np.where(length > 0, last - first + 1, 0)
    if (count == 1).all():
        return np.arange(len(start)), start, length
    run, nth = spell(count)
    tile = first[run] + nth
    begin = np.maximum(start[run], offsets[tile])
    size = np.minimum(end[run], offsets[tile + 1]) - begin
    kept = size > 0
    return run[kept], begin[kept], size[kept]


def spell(count: Runs) -> tuple[Pieces, Pieces]:
    """Spell out counted things: which run each is of, and the how-manieth of that run.

    Args:
        count: Things of each run.

    Returns:
        The run of each thing, and its number in that run.

    Examples:
        >>> run, nth = spell(np.array([2, 0, 3]))
        >>> run.tolist(), nth.tolist()
        ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2])
    """
    run = np.repeat(np.arange(len(count)), count)
    return run, np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
