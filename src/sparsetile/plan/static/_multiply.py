"""The codelet that multiplies blocks, and its cycles on every tile."""

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int64

from sparsetile.machine import Codelet, Memory
from sparsetile.plan.static import _cost
from sparsetile.plan.static._layout import Interval, Layout
from sparsetile.plan.static._partitioner import unhalve

_CHUNK = 1 << 19  # float32 numbers at a time, which a core's cache holds


def multiply(layout: Layout) -> Codelet:
    """Each tile multiplies its blocks with the rows it gathered, and adds up what shares a row.

    Sums are made in float32 and rounded once, to the plan's dtype.
    """
    plan, b = layout.parts.plan, layout.b

    def run(memory: Memory) -> None:
        for at, interval in enumerate(layout.intervals):
            deal = interval.deal
            flat = torch.from_numpy(layout.of(memory, layout.tile_values, at).copy())
            block_products(
                unhalve(flat, b, plan.dtype).numpy(),
                layout.of(memory, layout.rows, at).reshape(-1, b, interval.width),
                deal.touched,
                deal.part_start,
                layout.of(memory, layout.partials, at).reshape(-1, b, interval.width),
            )

    cycles = np.zeros(plan.machine.tiles, np.int64)
    for interval in layout.intervals:
        own = _cycles(layout, interval)
        cycles[interval.tile : interval.tile + len(own)] += np.ceil(own).astype(np.int64)
    return Codelet(
        name="multiply",
        run=run,
        cycles=cycles,
        reads=(layout.tile_values, layout.rows, layout.over_read, layout.lists),
        writes=(layout.partials,),
    )


def block_products(
    values: npt.NDArray[np.generic],
    rows: npt.NDArray[np.generic],
    touched: Int64[np.ndarray, " nnzb"],
    part_start: Int64[np.ndarray, " parts1"],
    sums: npt.NDArray[np.generic],
) -> None:
    """Multiply blocks with rows and write the sum over each part.

    Args:
        values: Blocks, `[nnzb, b, b]`.
        rows: Block rows of the dense operand, `[touched, b, n]`.
        touched: The block row that each block multiplies, `[nnzb]`; those of parts that follow
            each other lie near each other.
        part_start: First block of each part, and the end of the last.
        sums: Where sums go, `[parts, b, n]`.

    Examples:
        >>> sums = np.empty((1, 1, 2), np.float32)
        >>> block_products(
        ...     np.array([[[2.0]], [[3.0]]]), np.array([[[1.0, 0.0]], [[1.0, 5.0]]]),
        ...     np.array([0, 1]), np.array([0, 2]), sums,
        ... )
        >>> sums.tolist()
        [[[5.0, 15.0]]]
    """
    _, b, n = rows.shape
    at, most = 0, max(1, _CHUNK // (b * n))
    while at < len(part_start) - 1:
        end = int(np.searchsorted(part_start, part_start[at] + most, side="right")) - 1
        end = max(end, at + 1)
        blocks = slice(int(part_start[at]), int(part_start[end]))
        index = touched[blocks]
        low = int(index.min())
        near = rows[low : int(index.max()) + 1].astype(np.float32)[index - low]
        block = values[blocks].astype(np.float32)
        # What overflows is infinite, as on any machine.
        with np.errstate(over="ignore", invalid="ignore"):
            product = np.multiply(near, block, out=near) if b == 1 else block @ near
            sums[at:end] = np.add.reduceat(product, part_start[at:end] - blocks.start, axis=0)
        at = end


def _cycles(layout: Layout, interval: Interval) -> Float[np.ndarray, " some"]:
    plan, deal = layout.parts.plan, interval.deal
    blocks, rows = deal.tile_blocks, deal.tile_parts
    workers = plan.machine.workers
    if layout.b > 1:
        per_row = blocks / np.maximum(rows, 1)
        width = -(-interval.width // workers)
        busy = _cost.multiply_blocks(rows, per_row, width, layout.b, plan.dtype, workers)
        return np.where(blocks > 0, busy, 0.0)
    own_rows, own_blocks = worker_shares(np.diff(deal.part_start), rows, workers)
    per_row = own_blocks / np.maximum(own_rows, 1)
    # Few rows leave workers idle, unless two groups of them take half of the columns each.
    split = (rows <= workers // 2) & (interval.width % 8 == 0)
    columns = interval.width // np.where(split, 2, 1)
    busy = _cost.multiply_elements(own_rows, per_row, columns, plan.dtype)
    return np.where(own_rows > 0, busy, 0.0).max(axis=0) * workers


def worker_shares(
    lengths: Int64[np.ndarray, " parts"], rows: Int64[np.ndarray, " tiles"], workers: int
) -> tuple[Int64[np.ndarray, "workers tiles"], Int64[np.ndarray, "workers tiles"]]:
    """Deal the rows of each tile to its workers.

    Rows go to one worker in order until it has its share of the tile's non-zeros, then to the
    next; a tile with no more rows than workers gives one to each.

    Args:
        lengths: Non-zeros of each row, tile after tile, `[parts]`.
        rows: Rows of each tile, `[tiles]`.
        workers: Workers of a tile.

    Returns:
        Rows and non-zeros of each worker.

    Examples:
        >>> rows, blocks = worker_shares(np.array([5, 1, 1, 1]), np.array([3, 1]), workers=2)
        >>> rows.tolist(), blocks.tolist()
        ([[1, 1], [2, 0]], [[5, 1], [2, 0]])
    """
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    last = np.cumsum(rows)
    begin = last - rows
    share = -(-(ends[last] - ends[begin]) // workers)
    few = rows <= workers
    own_rows, own_blocks = [], []
    for _ in range(workers):
        # The row with which the share is reached is taken as well.
        full = np.searchsorted(ends, ends[begin] + share)
        end = np.minimum(np.where(few, begin + 1, full), last)
        own_rows.append(end - begin)
        own_blocks.append(ends[end] - ends[begin])
        begin = end
    return np.stack(own_rows), np.stack(own_blocks)
