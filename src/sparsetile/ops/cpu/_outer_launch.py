"""Choosing, compiling and running the sampled dense-dense kernel."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from sparsetile.ops.cpu._index import index_of
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._memo import TensorMemo
from sparsetile.ops.cpu._operand import Dense, clear_padding
from sparsetile.ops.cpu._outer import LAYOUT, OuterKernel
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

# What the packed part of B may take of the second cache; the rest is for A and the result.
_PANEL_BYTES = 1 << 20
_TERMS = 128  # least length of a stretch of the sum: each reads and writes the whole result
_SKEW = 64

_segments: TensorMemo[Tensor] = TensorMemo(most=512)


@cache
def _compiled(kernel: OuterKernel) -> dict[str, int]:
    return load(kernel.ir(), ["pack", "rows"])


def sample(
    a: Dense, b: Dense, crow: Tensor, col: Tensor, blocksize: tuple[int, int], reduce: bool
) -> Tensor:
    """Compute the stored blocks of a[B, m, t] · b[B, t, k]: one set, or one for each batch item.

    ``a`` counts its columns along t, ``b`` along k.
    """
    (m, t), k, (r, c) = a.tensor.shape[1:], b.columns, blocksize
    isa = host()
    kernel = OuterKernel(
        lanes=isa.lanes,
        sums=24 if isa.registers == 32 else 10,
        block=blocksize,
        a_by_rows=not a.by_rows,  # the kernel counts the rows of A where Dense counts columns
        b_by_rows=b.by_rows,
    )
    nnzb, sets = len(col), 1 if reduce else a.batch
    padded = torch.empty(sets, nnzb, *kernel.padded)
    if t == 0 or a.batch == 0:
        padded.zero_()
    elif nnzb:
        _sum(kernel, a, b, crow, col, padded, m, k, t)
    out = padded if kernel.padded == blocksize else padded[:, :, :r, :c].contiguous()
    clear_padding(out, crow, col, (m, k))
    return out[0] if reduce else out


def _sum(
    kernel: OuterKernel,
    a: Dense,
    b: Dense,
    crow: Tensor,
    col: Tensor,
    out: Tensor,
    m: int,
    k: int,
    t: int,
) -> None:
    """Run over batch items, stretches of the sum and bands of block columns."""
    workers, threads, c = _compiled(kernel), thread_count(), kernel.block[1]
    index = index_of(crow, col, -(-k // c), transpose=False)
    columns = -(-k // c)
    row_bytes = 4 * kernel.width
    bands = max(1, -(-columns * row_bytes * min(t, _TERMS) // _PANEL_BYTES))
    band = -(-columns // bands)
    terms = max(_TERMS, _PANEL_BYTES // (band * row_bytes) // 16 * 16)
    terms = -(-t // -(-t // terms))  # equal stretches
    terms = -(-terms // 16) * 16
    cuts = _segments.get((crow, col), (band, columns), lambda: _cut(crow, col, band, columns))
    panel_bytes = row_bytes * terms + _SKEW
    parts = 1 if threads == 1 else 4 * threads
    stage_bytes = kernel.stage_bytes(terms)
    call = LAYOUT.new()
    LAYOUT.fill(
        call,
        m=m,
        k=k,
        a_stride=a.fields("a", 0)["a_stride"],
        b_stride=b.fields("b", 0)["b_stride"],
        panels=scratch("panels", panel_bytes * band),
        panel_bytes=panel_bytes,
        stages=scratch("stages", stage_bytes * threads),
        stage_bytes=stage_bytes,
        col=index.col.data_ptr(),
        bounds=index.bounds(parts).data_ptr(),
    )
    for item in range(a.batch):
        values = out[item if len(out) > 1 else 0]
        for start in range(0, t, terms):
            length = min(terms, t - start)
            more = start > 0 or (item > 0 and len(out) == 1)
            for number, first in enumerate(range(0, columns, band)):
                fields = {
                    "t": length,
                    "height": -(-length // 16) * 16,
                    "accumulate": int(more),
                    "a": a.address(item, start, 0),
                    "b": b.address(item, 0, start),
                    "first_block": first,
                    "starts": cuts[number].data_ptr(),
                    "stops": cuts[number + 1].data_ptr(),
                    "values": values.data_ptr(),
                }
                width = min(band, columns - first)
                LAYOUT.fill(call, tasks=width, **fields)
                run(workers["pack"], call, min(threads, width))
                LAYOUT.fill(call, tasks=parts)
                run(workers["rows"], call, min(threads, parts))


def _cut(crow: Tensor, col: Tensor, band: int, columns: int) -> Tensor:
    """Find where each block row crosses from one band of block columns into the next.

    Returns int32[bands + 1, block rows]: row i of band b is blocks cut[b, i] … cut[b + 1, i].
    """
    rows, width = crow.numpy().astype(np.int64), columns + band
    of_block = np.repeat(np.arange(len(rows) - 1, dtype=np.int64), np.diff(rows))
    keys = of_block * width + col.numpy()
    edges = np.arange(0, columns + band, band, dtype=np.int64)
    starts = np.arange(len(rows) - 1, dtype=np.int64) * width
    cuts = np.searchsorted(keys, edges[:, None] + starts[None, :])
    return torch.from_numpy(cuts.astype(np.int32))
