"""The plan of a product by the sliced kernel."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from sparsetile.ops.cpu._gather import gather
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._product import SKEW, Prepared, ProductPlan
from sparsetile.ops.cpu._sliced import LAYOUT, SlicedKernel
from sparsetile.ops.cpu._slices import slices_of


class SlicedPlan(ProductPlan):
    """Blocks of few rows; the part of the dense operand in use stays in the first cache."""

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], transposed: bool
    ) -> None:
        super().__init__(index, block, shape, transposed)
        self._together, self._vectors, k_block = tile_of(block, index, self.k)
        self._slices = slices_of(index, block, self.k, k_block, self._together)
        self._chunks = torch.arange(self._slices.chunks + 1)

    def prepare(self, vectors: int, x_by_rows: bool, y_by_rows: bool) -> Prepared:
        """Compile the kernel for one tile width and layout, and fill in its arguments."""
        slices = self._slices
        kernel = SlicedKernel(
            host().lanes,
            self.block,
            self._together,
            vectors,
            self.transposed,
            x_by_rows,
            y_by_rows,
        )
        panel_rows = slices.k_blocks * (slices.k_block + self.block[1])
        panel_bytes = panel_rows * kernel.row_bytes + SKEW
        stage_bytes = kernel.stage_bytes(slices.chunk_rows)
        template = LAYOUT.new()
        LAYOUT.fill(
            template,
            **slices.fields(),
            k=self.k,
            m=self.m,
            k_block=slices.k_block,
            k_blocks=slices.k_blocks,
            chunks=slices.chunks,
            chunk_rows=slices.chunk_rows,
            panel_bytes=panel_bytes,
            stage_bytes=stage_bytes,
            zeros=_zeros().data_ptr(),
        )
        return Prepared(
            layout=LAYOUT,
            workers=_compiled(kernel),
            template=template,
            columns=kernel.columns,
            panel_bytes=panel_bytes,
            stage_bytes=stage_bytes,
            pack_tasks=slices.k_blocks,
        )

    def values_address(self, values: Tensor) -> int:
        """Return where the kernel finds the blocks: small ones are gathered into slots first."""
        if SlicedKernel.reads_directly(self.block):
            return values.data_ptr()
        return gather(values, self._slices.source, self._slices.slots)

    def stretches(self, columns: int) -> Sequence[tuple[int, int, int]]:
        """Cut columns into stretches of one tile width: full tiles, then one narrower tile."""
        lanes, vectors = host().lanes, self._vectors
        total = -(-columns // lanes)
        full = total // vectors * vectors * lanes
        cuts = [(0, min(full, columns), vectors), (full, columns, total % vectors)]
        return [cut for cut in cuts if cut[1] > cut[0] and cut[2]]

    def parts(self, threads: int) -> tuple[int, Tensor]:
        """Cut the rows into parts for several threads: the chunks."""
        return self._slices.chunks, self._chunks


@cache
def _compiled(kernel: SlicedKernel) -> dict[str, int]:
    return load(kernel.ir(), ["whole", "pack", "rows"])


@cache
def _zeros() -> Tensor:
    return torch.zeros(1024)


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
