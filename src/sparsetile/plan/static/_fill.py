"""Codelets that write zeros."""

import numpy as np
from jaxtyping import Int64

from sparsetile.machine import Codelet, Memory
from sparsetile.plan._units import BYTES
from sparsetile.plan.static import _cost
from sparsetile.plan.static._layout import Layout
from sparsetile.plan.static._runs import cut, spell


def pad_rows(layout: Layout) -> Codelet | None:
    """Zeros fill gathered rows up to the vector width, and the last block row up to the block."""
    plan, b = layout.parts.plan, layout.b
    (_, k), (_, kb) = plan.pattern.shape, plan.pattern.grid
    there = k - (kb - 1) * b  # rows of the last block row
    filled = np.zeros(plan.machine.tiles, np.int64)
    for interval in layout.intervals:
        tile, last = interval.deal.touched_tile, interval.deal.touched_column == kb - 1
        own = interval.deal.tile_touched * (b * (interval.width - interval.columns))
        own += np.bincount(tile[last], minlength=len(own)) * ((b - there) * interval.columns)
        filled[interval.tile : interval.tile + len(own)] += own
    if not filled.any():
        return None

    def run(memory: Memory) -> None:
        for at, interval in enumerate(layout.intervals):
            rows = layout.of(memory, layout.rows, at).reshape(-1, b, interval.width)
            rows[:, :, interval.columns :] = 0
            rows[interval.deal.touched_column == kb - 1, there:] = 0

    return Codelet("pad rows", run, _fill_cycles(layout, filled), (), (layout.rows,))


def clear_partials(layout: Layout) -> Codelet | None:
    """Zeros for kernels that add to partial sums in memory: float32, blocks of 8 and 16."""
    plan = layout.parts.plan
    outputs = layout.partials.counts
    cycles = _cost.zero_partials(outputs, layout.b, plan.dtype, plan.machine)
    cycles = np.where(outputs > 0, np.ceil(cycles), 0).astype(np.int64)
    if not cycles.any():
        return None

    def run(memory: Memory) -> None:
        memory[layout.partials][:] = 0

    return Codelet("zero partials", run, cycles, (), (layout.partials,))


def empty_rows(layout: Layout) -> Codelet | None:
    """Zeros in rows of the result that have no non-zeros.

    The original makes a program for these and never runs it.
    """
    plan, b = layout.parts.plan, layout.b
    m, n = plan.pattern.shape[0], plan.n
    held = np.zeros(plan.pattern.grid[0], bool)
    held[layout.parts.row] = True
    row = np.flatnonzero(~held) * b
    start, length = row * n, (np.minimum(row + b, m) - row) * n
    offsets = layout.y.offsets
    _, begin, size = cut(start, length, offsets)
    if not size.any():
        return None
    tile = np.searchsorted(offsets, begin, side="right") - 1
    filled = np.bincount(tile, size, plan.machine.tiles).astype(np.int64)

    def run(memory: Memory) -> None:
        which, nth = spell(length)
        memory[layout.y][start[which] + nth] = 0

    return Codelet("zero", run, _fill_cycles(layout, filled), (), (layout.y,))


def _fill_cycles(
    layout: Layout, elements: Int64[np.ndarray, " tiles"]
) -> Int64[np.ndarray, " tiles"]:
    """Cycles to write zeros, by the planner's formula for partial sums: 8 bytes at a time."""
    plan = layout.parts.plan
    workers = plan.machine.workers
    cycles = (12 + -(-elements * BYTES[plan.dtype] // (8 * workers))) * workers
    return np.where(elements > 0, cycles, 0)
