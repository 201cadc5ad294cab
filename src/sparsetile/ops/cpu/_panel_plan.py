"""The plan of a product by the panel kernel."""

import torch
from torch import Tensor

from sparsetile.ops.cpu._arrange import Arrangement
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._panel import LAYOUT, PanelKernel
from sparsetile.ops.cpu._product import SKEW, Ends, Prepared, ProductPlan
from sparsetile.ops.cpu._tiling import choose

_PACK_STEP = 256  # panel rows a packing task writes


class PanelPlan(ProductPlan):
    """Blocks of four rows and more; every column of the dense operand serves R rows at once."""

    turned = "pair"  # what is done to blocks of pairs for the transpose

    def __init__(
        self,
        index: Index,
        block: tuple[int, int],
        shape: tuple[int, int],
        transposed: bool,
        numbers: Numbers,
    ) -> None:
        super().__init__(index, block, shape, transposed, numbers)
        self.index = index
        self._rows = choose("panel", numbers.name, block).rows
        self._arrangement: Arrangement | None = None
        if transposed and numbers.pairs:  # numbers of a pair lie a row apart
            every = torch.arange(index.nnzb, dtype=torch.int32)
            stored = block[::-1]
            self._arrangement = Arrangement(stored, numbers.values, self.turned, every, index.nnzb)

    def arranged(self, values: Tensor) -> tuple[int, object]:
        """Return where the kernel finds the blocks."""
        if self._arrangement is None:
            return values.data_ptr(), values
        return self._arrangement.of(values)

    def kernel(self, vectors: int, ends: Ends) -> PanelKernel:
        """Describe the kernel for one tile width and layout."""
        isa, (rows, inner) = host(), self.block
        return PanelKernel(
            lanes=isa.lanes,
            numbers=self.numbers,
            block=(rows, inner // self.numbers.per_unit),
            tile_rows=tile_rows(rows, self._rows[vectors - 1]),
            vectors=vectors,
            transposed=self.transposed,
            **ends._asdict(),
        )

    def prepare(self, vectors: int, ends: Ends) -> Prepared:
        """Compile the kernel for one tile width and layout, and fill in its arguments."""
        isa, inner, per_unit = host(), self.block[1], self.numbers.per_unit
        kernel = self.kernel(vectors, ends)
        units = max(1, -(-self.k // inner)) * inner // per_unit
        height = -(-units // isa.lanes) * isa.lanes
        panel_bytes = height * kernel.row_bytes + SKEW
        template = LAYOUT.new(
            k=self.k,
            m=self.m,
            height=height,
            block_rows=self.index.block_rows,
            crow=self.index.crow.data_ptr(),
            col=self.index.col.data_ptr(),
            position=self.index.position.data_ptr(),
            pack_step=_PACK_STEP,
            panel_bytes=panel_bytes,
            stage_bytes=kernel.stage_bytes,
        )
        return Prepared(
            layout=LAYOUT,
            workers=load(kernel, ["whole", "pack", "rows"]),
            template=template,
            columns=kernel.columns,
            panel_bytes=panel_bytes,
            stage_bytes=kernel.stage_bytes,
            pack_tasks=-(-height // _PACK_STEP),
        )

    def widest(self) -> int:
        """Vectors of the widest tile."""
        return len(self._rows)

    def parts(self, threads: int) -> tuple[int, Tensor]:
        """Cut the rows into parts for several threads: how many, and where they begin."""
        parts = 4 * threads  # a counter hands them out: threads of uneven speed even out
        return parts, self.index.bounds(parts)


def tile_rows(rows: int, most: int) -> int:
    """Choose R: the most rows that divide the block."""
    return max(d for d in range(1, most + 1) if rows % d == 0)
