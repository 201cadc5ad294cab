"""The plan of a weight gradient on matrix tiles."""

from torch import Tensor

from sparsetile.ops.cpu._amx_outer import LAYOUT, STEP, AmxOuterKernel
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import second_cache
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._operand import Dense
from sparsetile.ops.cpu._outer_plan import cut_bands
from sparsetile.ops.cpu._sample import SamplePlan
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

_TERMS = 2048  # of the sum in a stretch, at most: each reads and writes the whole result
_SKEW = 64


class AmxOuterPlan(SamplePlan):
    """Blocks of bfloat16 that fill matrix tiles; each is summed to its end in a register."""

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], numbers: Numbers
    ) -> None:
        super().__init__(index, block, shape, numbers)
        self.index = index
        self._cuts: dict[int, Tensor] = {}

    def add(self, a: Dense, b: Dense, item: int, out: Tensor, keep: bool, last: bool) -> None:
        """Write the blocks of one batch item's product, or add them to ``out`` if ``keep``."""
        # a packed row of A is one of Aᵀ's columns: the kernel names its layout the other way round
        kernel = AmxOuterKernel(self.block, not a.by_rows, b.by_rows)
        workers = load(kernel, ["pack_a", "pack_b", "rows"])
        (r, c), t = self.block, a.columns
        threads = thread_count(out.numel() * t)
        stretches = -(-t // _TERMS)
        terms = -(-t // (stretches * 2 * STEP)) * 2 * STEP
        group_bytes = 2 * terms * kernel.group_rows
        panel_bytes = 2 * terms * c + _SKEW
        columns, groups = -(-self.k // c), self.index.block_rows * (r // kernel.group_rows)
        band = min(columns, max(1, second_cache() * 3 // 4 // panel_bytes))
        cuts = self._cuts.setdefault(band, cut_bands(self.index, band, columns))
        call = LAYOUT.new(
            m=self.m,
            k=self.k,
            a_stride=a.line_step,
            b_stride=b.line_step,
            groups=scratch("stages", group_bytes * groups),
            group_bytes=group_bytes,
            panels=scratch("panels", panel_bytes * band),
            panel_bytes=panel_bytes,
            col=self.index.col.data_ptr(),
            bounds=self.index.bounds(4 * threads).data_ptr(),
            values=out.data_ptr(),
        )
        for start in range(0, t, terms):
            length = min(terms, t - start)
            LAYOUT.fill(
                call,
                tasks=groups,
                t=length,
                height=-(-length // (2 * STEP)) * STEP,
                accumulate=int(keep or start > 0),
                a=a.address(item, start, 0),
                b=b.address(item, 0, start),
            )
            run(workers["pack_a"], call, min(threads, groups))
            for number, first in enumerate(range(0, columns, band)):
                starts, stops = cuts[number], cuts[number + 1]
                width = min(band, columns - first)
                LAYOUT.fill(call, tasks=width, band=width, first_block=first)
                run(workers["pack_b"], call, min(threads, width))
                LAYOUT.fill(
                    call, tasks=4 * threads, starts=starts.data_ptr(), stops=stops.data_ptr()
                )
                run(workers["rows"], call, threads)
