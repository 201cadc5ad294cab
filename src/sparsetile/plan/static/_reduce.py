"""The codelet that adds partial sums of several tiles, and its cycles on every tile."""

import numpy as np

from sparsetile.machine import Codelet, Memory
from sparsetile.plan.static._layout import Layout
from sparsetile.plan.static._runs import spell
from sparsetile.plan.static._sharers import Sharers

# Elements of one step of the inner loop, and its cycles beside those for each summand.
_WIDTH = {"float16": 8, "float32": 4}
_LOOP = {"float16": 8 + 5, "float32": 5 + 5}


def reduce(layout: Layout) -> Codelet:
    """Each tile adds up the partial sums that arrived, in float32, and rounds once."""
    plan = layout.parts.plan

    def run(memory: Memory) -> None:
        for at, interval in enumerate(layout.intervals):
            summed = _summed(interval.sharers, layout.of(memory, layout.arrived, at))
            with np.errstate(over="ignore"):
                layout.of(memory, layout.sums, at)[:] = summed

    cycles = np.zeros(plan.machine.tiles, np.int64)
    for interval in layout.intervals:
        pieces, counts = interval.sharers.pieces, interval.sharers.counts
        loops = -(-pieces.length // _WIDTH[plan.dtype])
        loops *= _LOOP[plan.dtype] + pieces.factor
        total = np.bincount(pieces.tile, loops, len(counts)).astype(np.int64)
        busy = (16 + -(-total // plan.machine.workers)) * plan.machine.workers
        cycles[interval.tile : interval.tile + len(counts)] += np.where(counts > 0, busy, 0)
    return Codelet("reduce", run, cycles, (layout.arrived,), (layout.sums,))


def _summed(sharers: Sharers, arrived: np.ndarray) -> np.ndarray:
    """Add one summand of all elements at a time: elements with most summands stand first."""
    pieces = sharers.pieces
    order = np.argsort(-pieces.factor, kind="stable")
    factor, length = pieces.factor[order], pieces.length[order]
    piece, nth = spell(length)
    target = pieces.start[order][piece] + nth
    source = pieces.base[order][piece] + nth
    step = length[piece]
    # How many elements have a summand of each number.
    reach = np.cumsum(np.bincount(factor, length)[::-1])[::-1].astype(np.int64)
    total = arrived[source].astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for count in reach[2:].tolist():
            source[:count] += step[:count]
            total[:count] += arrived[source[:count]]
    summed = np.empty_like(total)
    summed[target] = total
    return summed
