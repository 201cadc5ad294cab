"""Choosing, compiling and running the dot-product kernel for one weight gradient."""

from functools import cache

import torch
from torch import Tensor

from sparsetile.ops.cpu._dot import _RUN, LAYOUT, DotKernel
from sparsetile.ops.cpu._index import index_of
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._operand import Dense, clear_padding
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._slices import remembered
from sparsetile.ops.cpu._threads import run, thread_count

_SKEW = 64


@cache
def _compiled(kernel: DotKernel) -> dict[str, int]:
    return load(kernel.ir(), ["pack", "rows", "scatter"])


def sample(
    a: Dense, b: Dense, crow: Tensor, col: Tensor, blocksize: tuple[int, int], reduce: bool
) -> Tensor:
    """Compute the stored blocks of a[B, m, t] · b[B, t, k]: one set, or one for each batch item.

    ``a`` counts its columns along t, ``b`` along k. Blocks hold 1, 2 or 4 numbers.
    """
    (m, t), k, (r, c), lanes = a.tensor.shape[1:], b.columns, blocksize, host().lanes
    nnzb, sets = len(col), 1 if reduce else a.batch
    out = torch.empty(sets, nnzb, r, c)
    if t == 0 or a.batch == 0 or nnzb == 0:
        return out.zero_()[0] if reduce else out.zero_()
    together = max(1, min(4, lanes // (r * c)))
    kernel = DotKernel(lanes, blocksize, together, 4, not a.by_rows, b.by_rows)
    k_block = min(_first_cache_columns(kernel), -(-k // lanes) * lanes)
    index = index_of(crow, col, -(-k // c), transpose=False)
    plan = remembered(crow, col, index, blocksize, k, k_block, together, transpose=False)
    workers, threads, call = _compiled(kernel), thread_count(), LAYOUT.new()
    panel_bytes = (k_block + c) * kernel.row_bytes + _SKEW
    stage_bytes = kernel.stage_bytes(plan.chunk_rows)
    LAYOUT.fill(
        call,
        m=m,
        k=k,
        k_block=k_block,
        k_blocks=plan.k_blocks,
        chunk_rows=plan.chunk_rows,
        a_stride=a.fields("a", 0)["a_stride"],
        b_stride=b.fields("b", 0)["b_stride"],
        slots=plan.slots,
        panels=scratch("panels", panel_bytes * plan.k_blocks),
        panel_bytes=panel_bytes,
        stages=scratch("stages", stage_bytes * threads),
        stage_bytes=stage_bytes,
        packed=scratch("packed", 4 * plan.slots * r * c + 4 * lanes),
        **plan.fields(),
    )
    for item in range(a.batch):
        for start in range(0, t, kernel.terms):
            LAYOUT.fill(
                call,
                tasks=plan.k_blocks,
                t=min(kernel.terms, t - start),
                a=a.address(item, start, 0),
                b=b.address(item, 0, start),
                accumulate=int(start > 0 or (item > 0 and reduce)),
            )
            run(workers["pack"], call, threads)
            LAYOUT.fill(call, tasks=plan.chunks)
            run(workers["rows"], call, threads)
        if item == a.batch - 1 or not reduce:
            target = out[0 if reduce else item]
            LAYOUT.fill(call, tasks=-(-plan.slots // _RUN), values=target.data_ptr())
            run(workers["scatter"], call, threads)
    clear_padding(out, crow, col, (m, k))
    return out[0] if reduce else out


def _first_cache_columns(kernel: DotKernel) -> int:
    """Choose the columns of a k-block: 32 KB of B, in whole vectors and whole blocks."""
    step = kernel.lanes * (kernel.block[1] if kernel.lanes % kernel.block[1] else 1)
    return max(step, (32 << 10) // kernel.row_bytes // step * step)
