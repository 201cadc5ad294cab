"""The plan of a product by the sliced kernel."""

import torch
from torch import Tensor

from sparsetile.ops.cpu._arrange import Arrangement
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._product import SKEW, Ends, Prepared, ProductPlan
from sparsetile.ops.cpu._sliced import LAYOUT, SlicedKernel, how_read, packed_as
from sparsetile.ops.cpu._slices import slices_of
from sparsetile.ops.cpu._tiling import choose

_DENSITY = 0.125  # sparser matrices get longer k-blocks


class SlicedPlan(ProductPlan):
    """Blocks of few rows; the part of the dense operand in use stays in the first cache.

    Args:
        index: The blocks of the matrix as multiplied.
        block: Rows and inner size of a block as multiplied.
        shape: Rows and columns of the matrix as multiplied.
        transposed: Whether blocks are stored (inner, rows).
        columns: Columns of the dense operand the plan is for, more or less.
    """

    def __init__(
        self,
        index: Index,
        block: tuple[int, int],
        shape: tuple[int, int],
        transposed: bool,
        numbers: Numbers,
        columns: int,
    ) -> None:
        super().__init__(index, block, shape, transposed, numbers)
        height, width = block
        self._units = units = (height, width // numbers.per_unit)
        k = -(-self.k // numbers.per_unit)
        self._together, self._vectors, k_block = tile_of(units, index, k, columns, numbers)
        slices = slices_of(index, units, k, k_block, self._together)
        self._reading = how_read(units, transposed, numbers)
        unused = "source" if self._reading == "rows" else "starts"
        self._slices = slices.without("repeated", unused)
        self._chunks = torch.arange(self._slices.chunks + 1)
        self._arrangement = Arrangement(
            (width, height) if transposed else block,
            numbers.values,
            packed_as(transposed, numbers),
            self._slices.source,
            self._slices.slots,
        )

    def prepare(self, vectors: int, ends: Ends) -> Prepared:
        """Compile the kernel for one tile width and layout, and fill in its arguments."""
        slices = self._slices
        kernel = SlicedKernel(
            host().lanes,
            self.numbers,
            self._units,
            self._together,
            vectors,
            self.transposed,
            *ends,
        )
        panel_bytes = slices.k_blocks * slices.k_block * kernel.row_bytes + SKEW
        stage_bytes = kernel.stage_bytes(slices.chunk_rows)
        template = LAYOUT.new(
            **slices.fields(),
            k=self.k,
            m=self.m,
            k_block=slices.k_block,
            k_blocks=slices.k_blocks,
            chunks=slices.chunks,
            chunk_rows=slices.chunk_rows,
            panel_bytes=panel_bytes,
            stage_bytes=stage_bytes,
            stream=self._stream(),
        )
        return Prepared(
            layout=LAYOUT,
            workers=load(kernel, ["whole", "pack", "rows"]),
            template=template,
            columns=kernel.columns,
            panel_bytes=panel_bytes,
            stage_bytes=stage_bytes,
            pack_tasks=slices.k_blocks,
        )

    def _stream(self) -> int:
        """Return what goes along with the slices; see the kernel."""
        if self._reading == "rows":
            return self._slices.starts.data_ptr()
        return self._slices.source.data_ptr() if self._reading == "slots" else 0

    def arranged(self, values: Tensor) -> tuple[int, object]:
        """Return where the kernel finds the blocks, in sliced order if it must."""
        if self._reading != "packed":
            return values.data_ptr(), values
        return self._arrangement.of(values)

    def widest(self) -> int:
        """Vectors of the widest tile."""
        return self._vectors

    def parts(self, threads: int) -> tuple[int, Tensor]:
        """Cut the rows into parts for several threads: the chunks."""
        return self._slices.chunks, self._chunks


def is_few(columns: int) -> bool:
    """Say whether columns are so few that the matrix is read from memory only once or twice."""
    return columns <= 4 * host().lanes


def tile_of(
    block: tuple[int, int], index: Index, k: int, columns: int, numbers: Numbers
) -> tuple[int, int, int]:
    """Choose S, T and the columns of a k-block.

    A k-block's slice of the panel takes most of the first cache; sparser matrices get longer ones,
    since each row reads and writes its sums once a k-block.
    """
    height, width = block
    lanes = host().lanes
    stored = (height, width * numbers.per_unit)
    tile = choose("sliced", numbers.name, stored, few=is_few(columns))
    vectors = tile.vectors
    together = max(1, tile.sums // (height * vectors))
    density = index.nnzb * width / max(1, index.block_rows * k)
    longer = min(4.0, max(1.0, _DENSITY / max(density, 1e-9)))
    most = int(tile.slice_bytes / (4 * lanes * vectors) * longer)
    step = lanes * (width if lanes % width else 1)
    blocks = max(1, -(-k // most))  # of equal length
    return together, vectors, max(1, -(-k // (blocks * step))) * step
