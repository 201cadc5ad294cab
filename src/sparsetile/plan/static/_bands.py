"""Cuts block columns into bands of about equal non-zeros, and tiles among intervals and bands."""

import numpy as np
from jaxtyping import Int64


def bands(counts: Int64[np.ndarray, " kb"], parts: int) -> Int64[np.ndarray, " bounds"]:
    """Cut block columns into bands, by walking along them until a band has its share.

    This is the walk of popsparse's static planner. It may need fewer bands than allowed;
    `sparsetile.plan.balanced_bands` finds better cuts, which the published figures did not have.

    Args:
        counts: Stored blocks of each block column, in planned order.
        parts: Most bands.

    Returns:
        First block column of each band, and the end of the last.

    Examples:
        >>> bands(np.array([9, 1, 1, 1, 8, 2]), 3).tolist()
        [0, 1, 5, 6]
    """
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    share = max(1, -(-int(ends[-1]) // parts))
    bounds = [0]
    while bounds[-1] < len(counts) and len(bounds) < parts:
        bounds.append(min(int(np.searchsorted(ends, ends[bounds[-1]] + share)), len(counts)))
    if bounds[-1] < len(counts) or len(bounds) == 1:
        bounds.append(len(counts))
    return np.array(bounds, np.int64)


def interval_tiles(sizes: list[int], tiles: int, pair: int) -> list[int]:
    """Tiles of each interval of columns: about in proportion, whole pairs, all of them used.

    Args:
        sizes: Columns of each interval; all equal but a shorter last one.
        tiles: Tiles of the machine.
        pair: Tiles that share a bus, and are not divided.

    Returns:
        Tiles of each interval; the last may have none, then the cut is of no use.

    Examples:
        >>> interval_tiles([8, 8, 4], 1472, 2)
        [560, 560, 352]
    """
    pairs, total = tiles // pair, sum(sizes)
    share = max(-(-pairs * sizes[0] // (total + 1)) - 1, -(-pairs // len(sizes)))
    each = [share * pair] * (len(sizes) - 1)
    return [*each, tiles // pair * pair - sum(each)]


def band_tiles(
    blocks: Int64[np.ndarray, " bands"], tiles: int, pair: int
) -> Int64[np.ndarray, " bands"]:
    """Tiles of each band of one interval: in proportion to its blocks, in whole pairs.

    A band gets no more pairs than its most heavily loaded tile needs; the last takes what remains.

    Args:
        blocks: Stored blocks of each band.
        tiles: Tiles of the interval.
        pair: Tiles that share a bus.

    Returns:
        Tiles of each band; the last may have none or fewer, then the cut is of no use.

    Examples:
        >>> band_tiles(np.array([9, 10, 3]), 16, 2).tolist()
        [6, 6, 4]
    """
    share = np.maximum(blocks * tiles // max(int(blocks.sum()), 1) // pair * pair, pair)
    most = -(-blocks // share)
    needed = -(-blocks // np.maximum(most, 1))
    shrunk = np.clip(-(-needed // pair) * pair, pair, share)
    shrunk[-1] = tiles - int(shrunk[:-1].sum())
    return shrunk
