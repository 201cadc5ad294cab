"""The plan of a weight gradient by the outer-product kernel."""

import numpy as np
import torch
from torch import Tensor

from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._operand import Dense
from sparsetile.ops.cpu._outer import LAYOUT, OuterKernel
from sparsetile.ops.cpu._sample import SamplePlan
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count
from sparsetile.ops.cpu._tiling import choose

# What the packed part of B may take of the second cache; the rest is for A and the result.
_PANEL_BYTES = 1 << 20
# Bounds of the length of a stretch of the sum: each reads and writes the whole result, and the
# packed rows of A should stay in the first cache.
_TERMS = (64, 128)
_STEP = 16  # a stretch is packed in multiples of this
_SKEW = 64
_ALONE = 4  # threads up to which each packs B for itself: reading another core's lines costs more
_MANY = 40  # blocks in a row from which it pays to prepare the row of A for all of them


class OuterPlan(SamplePlan):
    """Blocks that fill vectors: several are summed at once as outer products."""

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], numbers: Numbers
    ) -> None:
        super().__init__(index, block, shape, numbers)
        self.index = index
        self._sums = choose("outer", numbers.name, block).sums
        columns = -(-self.k // block[1])
        self._dense = index.nnzb > _MANY * index.block_rows
        self._row_bytes = 4 * self._kernel(False, False).width
        bands = max(1, -(-columns * self._row_bytes * _TERMS[0] // _PANEL_BYTES))
        self._band = -(-columns // bands)  # block columns whose panels are packed together
        self._starts = range(0, columns, self._band)
        self._cuts = cut_bands(index, self._band, columns)

    @property
    def written(self) -> tuple[int, int]:
        """Shape in which the kernel writes blocks; what lies past the block is cut off."""
        return self._kernel(False, False).padded

    def _kernel(self, a_by_rows: bool, b_by_rows: bool) -> OuterKernel:
        isa = host()
        spread = 2 * self.block[1] <= isa.lanes and self.block[0] * self.block[1] > isa.lanes
        return OuterKernel(
            isa.lanes,
            self.numbers,
            self._sums,
            self.block,
            spread and self._dense,
            a_by_rows,
            b_by_rows,
        )

    def add(self, a: Dense, b: Dense, item: int, out: Tensor, keep: bool, last: bool) -> None:
        """Write the blocks of one batch item's product, or add them to ``out`` if ``keep``."""
        # a packed row of A is one of Aᵀ's columns: the kernel names its layout the other way round
        kernel = self._kernel(not a.by_rows, b.by_rows)
        workers, t = load(kernel, ["whole", "pack", "rows"]), a.columns
        threads = thread_count(out.numel() * t)
        per_unit = self.numbers.per_unit
        terms = self._terms(-(-t // per_unit))
        alone = threads <= _ALONE
        parts = threads if alone else 4 * threads
        panel_bytes = self._row_bytes * terms + _SKEW
        stage_bytes = kernel.stage_bytes(terms)
        call = LAYOUT.new(
            m=self.m,
            k=self.k,
            a_stride=a.line_step,
            b_stride=b.line_step,
            panels=scratch("panels", panel_bytes * self._band * (threads if alone else 1)),
            panel_bytes=panel_bytes,
            stages=scratch("stages", stage_bytes * threads),
            stage_bytes=stage_bytes,
            col=self.index.col.data_ptr(),
            bounds=self.index.bounds(parts).data_ptr(),
            values=out.data_ptr(),
        )
        for start in range(0, t, terms * per_unit):
            length = min(terms * per_unit, t - start)
            LAYOUT.fill(
                call,
                t=length,
                height=-(-length // (_STEP * per_unit)) * _STEP,
                accumulate=int(keep or start > 0),
                a=a.address(item, start, 0),
                b=b.address(item, 0, start),
            )
            for number, first in enumerate(self._starts):
                width = min(self._band, self._starts.stop - first)
                cuts = [self._cuts[number + i].data_ptr() for i in (0, 1)]
                LAYOUT.fill(call, band=width, first_block=first, starts=cuts[0], stops=cuts[1])
                if alone:
                    LAYOUT.fill(call, tasks=parts)
                    run(workers["whole"], call, threads)
                    continue
                LAYOUT.fill(call, tasks=width)
                run(workers["pack"], call, min(threads, width))
                LAYOUT.fill(call, tasks=parts)
                run(workers["rows"], call, threads)

    def _terms(self, t: int) -> int:
        """Choose the units of a stretch: what the second cache takes, in equal stretches."""
        fits = _PANEL_BYTES // (self._band * self._row_bytes) // _STEP * _STEP
        most = min(max(_TERMS[0], fits), _TERMS[1])
        return -(-t // -(-t // most) // _STEP) * _STEP


def cut_bands(index: Index, band: int, columns: int) -> Tensor:
    """Find where each block row crosses from one band of block columns into the next.

    Returns int32[bands + 1, block rows]: row i of band b is blocks cut[b, i] … cut[b + 1, i].
    """
    rows, width = index.crow.numpy().astype(np.int64), columns + band
    of_block = np.repeat(np.arange(len(rows) - 1, dtype=np.int64), np.diff(rows))
    keys = of_block * width + index.col.numpy()[: index.nnzb]
    edges = np.arange(0, columns + band, band, dtype=np.int64)
    starts = np.arange(len(rows) - 1, dtype=np.int64) * width
    return torch.from_numpy(np.searchsorted(keys, edges[:, None] + starts).astype(np.int32))
