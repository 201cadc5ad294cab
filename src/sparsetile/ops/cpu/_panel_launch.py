"""Choosing, compiling and running the panel kernel for one product."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from sparsetile.ops.cpu._index import Index, index_of
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._operand import Dense, bias_rows, without_padding
from sparsetile.ops.cpu._panel import LAYOUT, PanelKernel
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

_PACK_STEP = 256  # panel rows a packing task writes
_SKEW = 5 * 64  # keeps the panels of several tiles out of each other's cache sets


@dataclass(frozen=True)
class Workers:
    """Addresses of the functions of a compiled panel kernel."""

    whole: int
    pack: int
    rows: int


@cache
def _compiled(kernel: PanelKernel) -> Workers:
    return Workers(**load(kernel.ir(), ["whole", "pack", "rows"]))


def multiply(
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    x: Dense,
    y: Dense,
    bias: Tensor | None,
    shape: tuple[int, int],
    transpose: bool,
) -> None:
    """Compute y = W · x + bias, or Wᵀ · x + bias, column by column; W has the given shape."""
    _, r, c = values.shape
    inner, rows = (r, c) if transpose else (c, r)
    k, m = shape if transpose else shape[::-1]
    values = without_padding(values, crow, col, shape, columns=not transpose)
    index = index_of(crow, col, -(-shape[1] // c), transpose=transpose)
    biases = bias_rows(bias, index.block_rows * rows)
    lanes, registers = host().lanes, host().registers
    for start, stop, vectors in _stretches(x.columns, lanes):
        kernel = PanelKernel(
            lanes=lanes,
            block=(rows, inner),
            tile=(tile_rows(rows, vectors, registers), vectors),
            transposed=transpose,
            x_by_rows=x.by_rows,
            y_by_rows=y.by_rows,
        )
        height = -(-max(1, -(-k // inner) * inner) // lanes) * lanes
        fields = {
            **x.fields("x", start),
            **y.fields("y", start),
            "n": stop - start,
            "k": k,
            "m": m,
            "height": height,
            "crow": index.crow.data_ptr(),
            "col": index.col.data_ptr(),
            "position": index.position.data_ptr(),
            "values": values.data_ptr(),
            "bias": biases.data_ptr(),
            "block_rows": index.block_rows,
        }
        _launch(kernel, fields, index, tiles=x.batch * -(-(stop - start) // kernel.columns))


def _launch(kernel: PanelKernel, fields: dict[str, int], index: Index, tiles: int) -> None:
    threads, workers = thread_count(), _compiled(kernel)
    panel_bytes = fields["height"] * 4 * kernel.columns + _SKEW
    stage_bytes = 4 * kernel.columns * kernel.stage_rows
    whole = tiles % threads == 0 or tiles >= 4 * threads
    call = LAYOUT.new()
    LAYOUT.fill(
        call,
        **fields,
        tasks=tiles,
        column_tiles=tiles,
        panels=scratch("panels", panel_bytes * (threads if whole else tiles)),
        panel_bytes=panel_bytes,
        pack_step=_PACK_STEP,
        stages=scratch("stages", stage_bytes * threads),
        stage_bytes=stage_bytes,
    )
    if whole:
        run(workers.whole, call, min(threads, tiles))
        return
    parts = 4 * threads  # the counter hands them out: uneven speed of threads evens out
    LAYOUT.fill(call, tasks=tiles * -(-fields["height"] // _PACK_STEP))
    run(workers.pack, call, threads)
    LAYOUT.fill(call, tasks=tiles * parts, bounds=index.bounds(parts).data_ptr())
    run(workers.rows, call, threads)


def _stretches(columns: int, lanes: int) -> Iterator[tuple[int, int, int]]:
    """Cut the columns into stretches of one tile width: three vectors, and two or one at the end.

    Three vectors a tile read each stored value for the most columns that the registers allow.
    """
    total = -(-columns // lanes)
    twos = {0: 0, 1: 2, 2: 1}[total % 3] if total > 1 else 0
    threes = (total - 2 * twos) // 3 if total > 1 else 0
    at = 0
    for count, vectors in ((threes, 3), (twos, 2), (total - 3 * threes - 2 * twos, 1)):
        if count:
            stop = min(columns, at + count * vectors * lanes)
            yield at, stop, vectors
            at = stop


def tile_rows(rows: int, vectors: int, registers: int) -> int:
    """Choose R: the most rows that divide the block and whose sums fit the registers."""
    room = {32: {1: 16, 2: 8, 3: 8}, 16: {1: 8, 2: 4, 3: 4}}[registers][vectors]
    return max(d for d in range(1, room + 1) if rows % d == 0)
