"""Rows and columns brought beside others that are alike, so that blocks fill up.

Groups grow greedily by Jaccard similarity, rows by the column groups they touch and columns by the
row groups, in turns: the ordering idea of one-dimensional blocking (Sylos Labini et al. 2022,
"Blocking Techniques for Sparse Matrix Multiplication on Tensor Accelerators"), applied to
both sides.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

# Entries looked at when single rows or columns are compared: more are sampled.
_SAMPLE = 2**19
_ROUNDS = 4
# With so little won by one turn of each side, the others win little too.
_HOPELESS = 0.98


class Grouping(NamedTuple):
    """Which old row and column stands at each new place, and how many blocks are live then."""

    rows: Int64[np.ndarray, " m"]
    cols: Int64[np.ndarray, " k"]
    live: int


def gather_groups(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    places: tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]],
    *,
    free: tuple[bool, bool],
    seed: int,
) -> Grouping:
    """Find an order of rows and columns with few live blocks; never more than there are.

    Args:
        shape: Rows and columns.
        blocksize: Rows and columns of a block.
        places: Row and column of each non-zero, each place once.
        free: Whether rows, and whether columns, may move.
        seed: Decides what is sampled, and among equals.

    Returns:
        The best order that was met.

    Examples:
        >>> i, j = np.array([0, 2, 1, 3]), np.array([0, 0, 1, 1])
        >>> gather_groups((4, 2), (2, 1), (i, j), free=(True, False), seed=0).live
        2
    """
    orders = [np.arange(size) for size in shape]
    best = Grouping(orders[0], orders[1], _live(shape, blocksize, places, orders))
    # Single rows and columns have nothing to be grouped with.
    axes = [axis for axis in (0, 1) if free[axis] and blocksize[axis] > 1 and shape[axis] > 1]
    generator = np.random.default_rng(seed)
    start, area = best.live, blocksize[0] * blocksize[1]
    for first in axes if len(places[0]) else []:
        if best.live * area < len(places[0]) + area:
            break  # no order stores less: every block is full
        orders, met = [np.arange(size) for size in shape], best.live + 1
        other = 1 - first
        # Nothing is known of the other side yet if it will move too: its rows or columns count
        # one by one. If it stays where it is, its blocks count.
        width = 1 if other in axes else blocksize[other]
        turns = [first, other] * _ROUNDS if other in axes else [first]
        for turn, axis in enumerate(turns):
            width = width if turn == 0 else blocksize[1 - axis]
            group = _places(orders[1 - axis]) // width
            features = group[places[1 - axis]]
            orders[axis] = _alike(places[axis], features, blocksize[axis], shape[axis], generator)
            live = _live(shape, blocksize, places, orders)
            if live < best.live:
                best = Grouping(orders[0], orders[1], live)
            if (turn > 1 and live >= met) or (turn == 1 and live > _HOPELESS * start):
                break
            met = live
    return best


def _alike(
    items: Int64[np.ndarray, " n"],
    features: Int64[np.ndarray, " n"],
    side: int,
    count: int,
    generator: np.random.Generator,
) -> Int64[np.ndarray, " count"]:
    """Order items so that each `side` of them in turn share features."""
    width = int(features.max()) + 1
    if len(items) > _SAMPLE:
        # Whole features, so that what two items share is sampled for both.
        chosen = generator.random(width) < _SAMPLE / len(items)
        kept = chosen[features]
        items, features = items[kept], features[kept]
    items, features = np.divmod(_distinct(items * width + features, count * width), width)
    degree = np.bincount(items, minlength=count)
    of_item = np.concatenate([[0], np.cumsum(degree)])
    by_feature = np.argsort(features, kind="stable")
    item_of = items[by_feature]
    of_feature = np.concatenate([[0], np.cumsum(np.bincount(features, minlength=width))])
    # Full items lead: what is left over for the last groups is nearly empty. Ties by chance.
    leaders = np.lexsort((generator.random(count), -degree))
    taken = np.zeros(count, bool)
    order = np.empty(count, np.int64)
    at = 0
    for leader in leaders:
        if taken[leader]:
            continue
        if not degree[leader]:
            order[at:] = np.flatnonzero(~taken)
            break
        known, shared, size = np.zeros(width, bool), np.zeros(count, np.int64), 0
        item = int(leader)
        for step in range(min(side, count - at)):
            if step:
                likeness = shared / np.maximum(degree + size - shared, 1)
                likeness[taken] = -1.0
                item = int(likeness.argmax())
            taken[item], order[at] = True, item
            at += 1
            own = features[of_item[item] : of_item[item + 1]]
            new = own[~known[own]]
            if len(new):
                known[new] = True
                size += len(new)
                met = [item_of[of_feature[f] : of_feature[f + 1]] for f in new]
                shared += np.bincount(np.concatenate(met), minlength=count)
    return order


def _places(order: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """The new place of each old row or column."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _live(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    places: tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]],
    orders: list[Int64[np.ndarray, "_"]],
) -> int:
    """Count the live blocks of an order."""
    rows, cols = (
        _places(order)[place] // side
        for order, place, side in zip(orders, places, blocksize, strict=True)
    )
    mb, kb = (-(-size // side) for size, side in zip(shape, blocksize, strict=True))
    return len(_distinct(rows * kb + cols, mb * kb))


def _distinct(keys: Int64[np.ndarray, " n"], most: int) -> Int64[np.ndarray, " u"]:
    """Sort keys below `most` and leave out repeated ones."""
    if most > 8 * len(keys) + 2**20:
        return np.unique(keys)
    # A table is several times as fast as sorting, and not much larger than the keys.
    table = np.zeros(most, bool)
    table[keys] = True
    return np.flatnonzero(table)
