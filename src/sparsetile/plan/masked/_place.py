"""Where blocks and their products lie once they are dealt to tiles."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from sparsetile.plan.masked._assign import block_tiles, deal, naive_tiles, strip_tiles
from sparsetile.plan.masked._load import Load
from sparsetile.plan.masked._plan import MaskedPlan
from sparsetile.plan.masked._products import Each, outs, products

Outs = Int64[np.ndarray, " outs"]


@dataclass(frozen=True, eq=False)
class Held:
    """Blocks that tiles hold, tile by tile.

    Attributes:
        tile: Where each is, `[held]`.
        block: Which it is, `[held]`.
        use: Which of them each product needs, `[products]`.
    """

    tile: Int64[np.ndarray, " held"]
    block: Int64[np.ndarray, " held"]
    use: Each


@dataclass(frozen=True, eq=False)
class Placement:
    """One pass of a product on tiles.

    Attributes:
        tile: Of each product, ascending, `[products]`.
        left: Blocks of the left operand that tiles need.
        right: Blocks of the right operand that tiles need.
        partial: Partial sums that tiles make, in the order of the products.
        outs: Blocks of the result that the pass makes, `[outs]`.
        home: The tile that adds up each of them, `[outs]`.
    """

    tile: Each
    left: Held
    right: Held
    partial: Held
    outs: Outs
    home: Outs

    def load(self, tiles: int) -> Load:
        """What each tile has to do."""
        where = np.searchsorted(self.outs, self.partial.block)
        depth = np.bincount(where, minlength=len(self.outs))
        goes = self.home[where]
        away = goes != self.partial.tile

        def per_tile(tile: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " tiles"]:
            return np.bincount(tile, minlength=tiles)

        return Load(
            products=per_tile(self.tile),
            left=per_tile(self.left.tile),
            right=per_tile(self.right.tile),
            partial=per_tile(self.partial.tile),
            sent=per_tile(self.partial.tile[away]),
            received=per_tile(goes[away]),
            sums=per_tile(goes[depth[where] > 1]),
            added=per_tile(self.home[depth > 1]),
            cast=per_tile(self.home[depth <= 1]),
        )


@lru_cache(maxsize=8)
def placements(plan: MaskedPlan) -> tuple[Placement, ...]:
    """Where everything lies in each pass."""
    return tuple(place(plan, number) for number in range(plan.passes))


def place(plan: MaskedPlan, number: int) -> Placement:
    """Where everything lies in one pass."""
    band = plan.bands[number]
    work = products(plan, band)
    if plan.method == "strip":
        tile = strip_tiles(work, plan.cuts[number])
    elif plan.method == "block":
        tile = block_tiles(work, plan, plan.cuts[number])
    else:
        tile = naive_tiles(work, plan.machine.tiles)
    order = np.lexsort((work.inner, work.out, tile))
    tile = tile[order]
    partial = _held(tile, work.out[order])
    made = outs(plan, band)
    return Placement(
        tile,
        _held(tile, work.left[order]),
        _held(tile, work.right[order]),
        partial,
        made,
        _homes(partial, made, plan.machine.tiles),
    )


def _held(tile: Each, block: Each) -> Held:
    width = int(block.max(initial=0)) + 1
    key, use = np.unique(tile * width + block, return_inverse=True)
    return Held(key // width, key % width, use.reshape(-1).astype(np.int64))


def _homes(partial: Held, made: Outs, tiles: int) -> Outs:
    """The tile that adds up each result block: its only holder, or whoever has least to add."""
    where = np.searchsorted(made, partial.block)
    depth = np.bincount(where, minlength=len(made))
    home = deal(np.where(depth > 1, depth, 0), tiles)
    home[where[depth[where] == 1]] = partial.tile[depth[where] == 1]
    home[depth == 0] = made[depth == 0] % tiles
    return home
