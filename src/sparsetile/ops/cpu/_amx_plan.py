"""The plan of a product on matrix tiles."""

from collections.abc import Collection

import torch

from sparsetile.ops.cpu._amx import MOST_VECTORS, AmxKernel
from sparsetile.ops.cpu._isa import Isa
from sparsetile.ops.cpu._panel_plan import PanelPlan
from sparsetile.ops.cpu._product import Ends

_LEAST = 8  # rows of a block, and its inner size, from which tiles beat vectors


class AmxPlan(PanelPlan):
    """Blocks of bfloat16 that fill enough of a matrix tile."""

    turned = "turn"

    def kernel(self, vectors: int, ends: Ends) -> AmxKernel:
        """Describe the kernel for one tile width and layout."""
        rows, inner = self.block
        return AmxKernel(
            lanes=16,
            numbers=self.numbers,
            block=(rows, inner // 2),
            tile_rows=max(d for d in range(1, 17) if rows % d == 0),
            vectors=vectors,
            transposed=False,  # blocks of the transpose are turned first
            **ends._asdict(),
        )

    def widest(self) -> int:
        """Vectors of the widest tile: the registers there are for sums."""
        return MOST_VECTORS


def fills_tiles(isa: Isa, block: tuple[int, int], dtypes: Collection[torch.dtype]) -> bool:
    """Say whether a product is worth matrix tiles."""
    fills = all(side % _LEAST == 0 for side in block)
    return isa.has_amx and fills and set(dtypes) == {torch.bfloat16}
