"""The exchanges of a static product."""

import numpy as np
from jaxtyping import Int64

from sparsetile.machine import Copy, Exchange, Variable
from sparsetile.plan.static._layout import Interval, Layout
from sparsetile.plan.static._runs import cut

# Source, target and length of runs; of one interval, so their number may differ between intervals.
_Runs = tuple[Int64[np.ndarray, " _"], Int64[np.ndarray, " _"], Int64[np.ndarray, " _"]]


def gather(layout: Layout) -> Exchange:
    """Each tile receives the rows of the dense operand that its blocks touch, and no others."""
    plan, b = layout.parts.plan, layout.b
    k = plan.pattern.shape[1]
    found = []
    for at, interval in enumerate(layout.intervals):
        column = interval.deal.touched_column
        rows = np.arange(len(column)) * (b * interval.width) + layout.base(layout.rows, at)
        there, here, length = _lines(interval, column * b, k, plan.n, b)
        found.append((there, rows[here[0]] + here[1] * interval.width, length))
    return Exchange("Exchange of dense rows", (_copy(layout.x, layout.rows, found),))


def bring_values(layout: Layout) -> Exchange:
    """Each tile receives its non-zeros from where they are spread."""
    found = []
    for at, interval in enumerate(layout.intervals):
        count = interval.deal.tile_blocks * layout.b**2
        start = np.cumsum(count) - count
        found.append((start, start + layout.base(layout.tile_values, at), count))
    copy = _copy(layout.values, layout.tile_values, found)
    return Exchange("Exchange of non-zeros", (copy,))


def to_reduce(layout: Layout) -> Exchange:
    """Partial sums of rows that several tiles hold go to the tiles that add them up."""
    found = []
    for at, interval in enumerate(layout.intervals):
        source, target, length = interval.sharers.summands()
        source += layout.base(layout.partials, at)
        found.append((source, target + layout.base(layout.arrived, at), length))
    return Exchange("Exchange to reduce", (_copy(layout.partials, layout.arrived, found),))


def place(layout: Layout) -> Exchange:
    """Sums go to their rows and columns of the result, without what fills up rows and columns."""
    alone, shared = [], []
    for at, interval in enumerate(layout.intervals):
        sharers, part_row = interval.sharers, interval.deal.part_row
        begin = sharers.alone * sharers.size + layout.base(layout.partials, at)
        alone.append(_placed(layout, interval, part_row[sharers.alone], begin))
        begin = np.arange(len(sharers.factor)) * sharers.size + layout.base(layout.sums, at)
        shared.append(_placed(layout, interval, sharers.shared_row, begin))
    sources = ((layout.partials, alone), (layout.sums, shared))
    copies = (_copy(source, layout.y, found) for source, found in sources)
    return Exchange("Placement", tuple(copy for copy in copies if copy.length.size))


def _placed(
    layout: Layout,
    interval: Interval,
    row: Int64[np.ndarray, " rows"],
    begin: Int64[np.ndarray, " rows"],
) -> _Runs:
    plan = layout.parts.plan
    there, here, length = _lines(interval, row * layout.b, plan.pattern.shape[0], plan.n, layout.b)
    return begin[here[0]] + here[1] * interval.width, there, length


def _lines(
    interval: Interval, row: Int64[np.ndarray, " blocks"], rows: int, n: int, b: int
) -> tuple[Int64[np.ndarray, " runs"], tuple[np.ndarray, np.ndarray], Int64[np.ndarray, " runs"]]:
    """Runs of block rows in a dense matrix of `rows` by `n`: an interval's columns of each row.

    Whole rows follow each other in the matrix and in the block row, and are one run.

    Returns:
        First element in the matrix, block row and row within it, and length.
    """
    if interval.width == n:
        block = np.arange(len(row))
        return row * n, (block, np.zeros_like(block)), np.minimum(rows - row, b) * n
    block, within = (index.reshape(-1) for index in np.indices((len(row), b)))
    there = row[block] + within
    kept = there < rows
    start = there[kept] * n + interval.first
    return start, (block[kept], within[kept]), np.full(len(start), interval.columns)


def _copy(source: Variable, target: Variable, found: list[_Runs]) -> Copy:
    """A copy of runs of all intervals, cut where tiles meet."""
    start, to, length = (np.concatenate(part) for part in zip(*found, strict=True))
    run, begin, size = cut(start, length, source.offsets)
    goal = to[run] + begin - start[run]
    run, end, length = cut(goal, size, target.offsets)
    return Copy(source, target, begin[run] + end - goal[run], end, length)
