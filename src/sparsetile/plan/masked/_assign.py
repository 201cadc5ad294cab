"""How block products are dealt to tiles."""

import numpy as np
from jaxtyping import Float64, Int64

from sparsetile.plan._units import BYTES
from sparsetile.plan.masked._plan import MaskedPlan
from sparsetile.plan.masked._products import Each, Products


def strip_tiles(work: Products, strips: tuple[int, int]) -> Each:
    """The tile of each product, in strips: parts of the grid of products, of about equal size.

    Neighbouring tiles multiply the same stored blocks, so that they can share a bus.

    Args:
        work: The products.
        strips: Parts of the rows and of the columns of their grid.

    Returns:
        A tile for each product.
    """
    (free, many), (x, y) = work.shape, strips
    across = np.arange(free) * x // max(free, 1)
    along = np.arange(many) * y // max(many, 1)
    return (along * x + across[:, None]).reshape(-1)


def naive_tiles(work: Products, tiles: int) -> Each:
    """The tile of each product, dealt greedily: what is largest first, to the idlest tile.

    What is dealt are the products of one result block together, or parts of them where they are
    more than a tile's share. What tiles must be sent does not count.

    Args:
        work: The products.
        tiles: Tiles of the machine.

    Returns:
        A tile for each product.
    """
    order = np.argsort(work.out, kind="stable")
    out = work.out[order]
    new = np.diff(out, prepend=-1) != 0
    begin = np.flatnonzero(new)
    nth = np.arange(len(out)) - begin[np.cumsum(new) - 1]
    share = max(1, -(-len(out) // tiles))
    node = np.cumsum(new | (nth % share == 0)) - 1
    result = np.empty_like(out)
    result[order] = deal(np.bincount(node), tiles)[node]
    return result


def deal(weights: Int64[np.ndarray, " items"], tiles: int) -> Int64[np.ndarray, " items"]:
    """Deal items to tiles: the heaviest first, each to the tile with least so far.

    Args:
        weights: Of the items, few different ones.
        tiles: Tiles.

    Returns:
        The tile of each item.

    Examples:
        >>> deal(np.array([1, 1, 5, 2, 2]), 2).tolist()
        [1, 0, 0, 1, 1]
    """
    tile = np.zeros(len(weights), np.int64)
    load = np.zeros(tiles, np.int64)
    for weight in np.unique(weights[weights > 0])[::-1].tolist():
        items = np.flatnonzero(weights == weight)
        # Items alike fill the lowest of the steps that they would make on each tile.
        low = np.partition(load, min(len(items), tiles) - 1)[: len(items)].max()
        steps = -(-len(items) // tiles) + 1 + int(low - load.min()) // weight
        level = load[:, None] + weight * np.arange(steps)
        lowest = np.argsort(level, axis=None, kind="stable")[: len(items)]
        tile[items] = lowest // steps
        load += weight * np.bincount(tile[items], minlength=tiles)
    return tile


def block_tiles(work: Products, plan: MaskedPlan, charge: tuple[int, int]) -> Each:
    """The tile of each product, by halving: all products, then each half with its tiles, and so on.

    Each cut is across the dimension where it makes tiles hold least twice: rows of the result cost
    copies of right blocks, columns copies of left ones, and the inner dimension partial sums that
    must be added. Every tile gets the same number of products, give or take one a cut. popsparse
    hands this to a partitioner of hypergraphs.

    Args:
        work: The products.
        plan: What they are for.
        charge: How much more cuts across rows and across the inner dimension are charged. What a
            cut costs later, when the halves are cut again, is not known when it is made; the
            planner tries a few charges.

    Returns:
        A tile for each product.
    """
    axes = (work.row, work.inner, work.column)
    sizes = [int(axis.max(initial=0)) + 1 for axis in axes]
    keys = [
        (axes[a] * sizes[b] + axes[b]) * sizes[c] + axes[c]
        for a, b, c in ((0, 2, 1), (1, 0, 2), (2, 0, 1))
    ]
    order = np.arange(work.size)
    first, count = np.zeros(1, np.int64), np.full(1, plan.machine.tiles)
    starts = np.array([0, work.size])
    while (count > 1).any():
        part = np.repeat(np.arange(len(count)), np.diff(starts))
        axis = _cheapest_axis(work, plan, charge, order, part, len(count))[part]
        key = np.choose(axis, [key[order] for key in keys]) if len(part) else part
        order = order[np.lexsort((key, part))]
        lower = count // 2
        middle = starts[:-1] + np.diff(starts) * lower // count
        first = np.stack((first, first + lower), 1).reshape(-1)
        count = np.stack((lower, count - lower), 1).reshape(-1)
        ends = np.stack((middle, starts[1:]), 1).reshape(-1)
        real = count > 0  # a part with one tile was not cut
        first, count = first[real], count[real]
        starts = np.concatenate((starts[:1], ends[real]))
    tile = np.empty(work.size, np.int64)
    tile[order] = np.repeat(first, np.diff(starts))
    return tile


def _cheapest_axis(
    work: Products,
    plan: MaskedPlan,
    charge: tuple[int, int],
    order: Each,
    part: Each,
    parts: int,
) -> Int64[np.ndarray, " parts"]:
    """Across which dimension each part is cut; not one where it is a single block thick."""
    (left, right, out), z = plan.sizes, BYTES[plan.dtype]
    # Sums take memory twice, where they are made and where they are added, and adding takes three
    # cycles a register.
    register = 4 if plan.partials == "float32" else 8
    adding = 3 * plan.machine.exchange_bytes_per_cycle / register
    sums = out * (BYTES[plan.partials] * (1 + plan.memory_cycle_ratio) + adding)
    cost = np.stack(
        (
            charge[0] * right * z * _distinct(part, work.right[order], parts),
            charge[1] * sums * _distinct(part, work.out[order], parts),
            left * z * _distinct(part, work.left[order], parts),
        )
    )
    for axis, place in enumerate((work.row, work.inner, work.column)):
        thick = _distinct(part, place[order], parts)
        cost[axis, thick <= 1] = np.inf
    return np.asarray(cost.argmin(0), np.int64)


def _distinct(part: Each, block: Each, parts: int) -> Float64[np.ndarray, " parts"]:
    """How many different blocks each part has."""
    width = int(block.max(initial=0)) + 1
    return np.bincount(np.unique(part * width + block) // width, minlength=parts).astype(np.float64)
