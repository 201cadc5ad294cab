"""Choosing, compiling and running the sliced kernel for one product."""

from functools import cache

import torch
from torch import Tensor

from sparsetile.ops.cpu._index import Index, index_of
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._operand import Dense, bias_rows, without_padding
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._sliced import _GATHER, LAYOUT, SlicedKernel
from sparsetile.ops.cpu._slices import remembered
from sparsetile.ops.cpu._threads import run, thread_count

_SKEW = 5 * 64


@cache
def _compiled(kernel: SlicedKernel) -> dict[str, int]:
    return load(kernel.ir(), ["gather", "whole", "pack", "rows"])


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
    rows, inner = (c, r) if transpose else (r, c)
    k, m = shape if transpose else shape[::-1]
    values = without_padding(values, crow, col, shape, columns=not transpose)
    index = index_of(crow, col, -(-shape[1] // c), transpose=transpose)
    block, lanes = (rows, inner), host().lanes
    together, vectors, k_block = tile_of(block, index, k)
    plan = remembered(crow, col, index, block, k, k_block, together, transpose=transpose)
    biases = bias_rows(bias, index.block_rows * rows)
    fields = {
        **plan.fields(),
        "k": k,
        "m": m,
        "k_block": k_block,
        "k_blocks": plan.k_blocks,
        "chunks": plan.chunks,
        "chunk_rows": plan.chunk_rows,
        "slots": plan.slots,
        "values": values.data_ptr(),
        "bias": biases.data_ptr(),
        "packed": scratch("packed", 4 * plan.slots * rows * inner + 1024)
        if rows * inner < 16
        else 0,
        "zeros": _zeros().data_ptr(),
    }
    threads, gathered = thread_count(), False
    for start, stop, width in _stretches(x.columns, lanes, vectors):
        kernel = SlicedKernel(lanes, block, together, width, transpose, x.by_rows, y.by_rows)
        workers, call = _compiled(kernel), LAYOUT.new()
        tiles = x.batch * -(-(stop - start) // kernel.columns)
        whole = tiles % threads == 0 or tiles >= 4 * threads
        panel_bytes = plan.k_blocks * (k_block + inner) * kernel.row_bytes + _SKEW
        stage_bytes = kernel.stage_bytes(plan.chunk_rows)
        LAYOUT.fill(
            call,
            **fields,
            **x.fields("x", start),
            **y.fields("y", start),
            n=stop - start,
            column_tiles=tiles,
            panels=scratch("panels", panel_bytes * (threads if whole else tiles)),
            panel_bytes=panel_bytes,
            stages=scratch("stages", stage_bytes * threads),
            stage_bytes=stage_bytes,
            tasks=-(-plan.slots // _GATHER),
        )
        if not gathered and not kernel.direct:
            run(workers["gather"], call, threads)
            gathered = True
        if whole:
            LAYOUT.fill(call, tasks=tiles)
            run(workers["whole"], call, min(threads, tiles))
        else:
            LAYOUT.fill(call, tasks=tiles * plan.k_blocks)
            run(workers["pack"], call, threads)
            LAYOUT.fill(call, tasks=tiles * plan.chunks)
            run(workers["rows"], call, threads)


def tile_of(block: tuple[int, int], index: Index, k: int) -> tuple[int, int, int]:
    """Choose S, T and the columns of a k-block."""
    height, width = block
    lanes, room = host().lanes, 16 if host().registers == 32 else 8
    vectors = 2
    together = max(1, min(8, room // (height * vectors)))
    density = index.nnzb * width / max(1, index.block_rows * k)
    most = 256 if density >= 0.1 else 512
    k_block = min(most, -(-k // lanes) * lanes)
    step = lanes * width if lanes % width else lanes
    return together, vectors, max(step, k_block // step * step)


def _stretches(columns: int, lanes: int, vectors: int) -> list[tuple[int, int, int]]:
    """Cut the columns into stretches of one tile width: full tiles, then one narrower tile."""
    total = -(-columns // lanes)
    full = total // vectors * vectors * lanes
    cuts = [(0, min(full, columns), vectors), (full, columns, total % vectors)]
    return [cut for cut in cuts if cut[1] > cut[0] and cut[2]]


@cache
def _zeros() -> Tensor:
    return torch.zeros(256)
