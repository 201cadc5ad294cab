"""The plan of a weight gradient by the dot-product kernel."""

from torch import Tensor

from sparsetile.ops.cpu._arrange import scatter
from sparsetile.ops.cpu._dot import LAYOUT, DotKernel
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._operand import Dense
from sparsetile.ops.cpu._sample import SamplePlan
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._slices import slices_of
from sparsetile.ops.cpu._threads import run, thread_count

_SKEW = 64
_FIRST_CACHE = 32 << 10  # bytes of B that stay in the first cache
_VECTORS = 4  # T: more would spill the rows of A that are held


class DotPlan(SamplePlan):
    """Blocks of 1, 2 or 4 numbers: dot products along the sum, in sliced order."""

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], numbers: Numbers
    ) -> None:
        super().__init__(index, block, shape, numbers)
        lanes, (r, c) = host().lanes, block
        self._together = max(1, min(4, lanes // (r * c)))
        step = lanes * (c if lanes % c else 1)
        most = max(step, _FIRST_CACHE // (4 * lanes * _VECTORS) // step * step)
        k_block = min(most, max(step, -(-self.k // step) * step))
        slices = slices_of(index, block, self.k, k_block, self._together)
        self._wanted = slices.source[: slices.slots].masked_fill(slices.repeated, -1)
        self._slices = slices.without("source", "repeated", "starts")

    def add(self, a: Dense, b: Dense, item: int, out: Tensor, keep: bool, last: bool) -> None:
        """Write the blocks of one batch item's product, or add them if ``keep``.

        They gather in slots and move to where they belong after the ``last``.
        """
        kernel = DotKernel(
            host().lanes,
            self.numbers,
            self.block,
            self._together,
            _VECTORS,
            not a.by_rows,
            b.by_rows,
        )
        workers, slices, call = load(kernel, ["pack", "rows"]), self._slices, LAYOUT.new()
        threads = thread_count(out.numel() * a.columns)
        panel_bytes = slices.k_block * kernel.row_bytes + _SKEW
        stage_bytes = kernel.stage_bytes(slices.chunk_rows)
        r, c = self.block
        packed = scratch("packed", 4 * (slices.slots * r * c + host().lanes))
        LAYOUT.fill(
            call,
            **slices.fields(),
            m=self.m,
            k=self.k,
            k_block=slices.k_block,
            k_blocks=slices.k_blocks,
            chunk_rows=slices.chunk_rows,
            a_stride=a.line_step,
            b_stride=b.line_step,
            panels=scratch("panels", panel_bytes * slices.k_blocks),
            panel_bytes=panel_bytes,
            stages=scratch("stages", stage_bytes * threads),
            stage_bytes=stage_bytes,
            packed=packed,
        )
        for start in range(0, a.columns, kernel.terms):
            LAYOUT.fill(
                call,
                tasks=slices.k_blocks,
                t=min(kernel.terms, a.columns - start),
                a=a.address(item, start, 0),
                b=b.address(item, 0, start),
                accumulate=int(keep or start > 0),
            )
            run(workers["pack"], call, threads)
            LAYOUT.fill(call, tasks=slices.chunks)
            run(workers["rows"], call, threads)
        if last:
            scatter(packed, self._wanted, slices.slots, out)
