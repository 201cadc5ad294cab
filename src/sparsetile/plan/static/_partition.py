"""Which tile of a static plan holds which block."""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from sparsetile.matrix._check import as_int, describe, message
from sparsetile.plan._units import DTYPES
from sparsetile.plan.static._deal import Deal
from sparsetile.plan.static._order import block_order
from sparsetile.plan.static._plan import StaticPlan

BLOCKS = (1, 4, 8, 16)


@dataclass(frozen=True, eq=False)
class Partition:
    """The blocks of a static plan in tile order, dealt to the tiles of each interval.

    Tile order goes band by band; within a band row by row and column by column, both in planned
    order. It is the same for all intervals: they only deal it to other tiles.

    Attributes:
        plan: The plan.
        order: Which stored block stands at each place of the tile order, `[nnzb]`.
        row: Its block row, `[nnzb]`.
        column: Its block column, `[nnzb]`.
        band: Its band, ascending, `[nnzb]`.
    """

    plan: StaticPlan
    order: Int64[np.ndarray, " nnzb"]
    row: Int64[np.ndarray, " nnzb"]
    column: Int64[np.ndarray, " nnzb"]
    band: Int64[np.ndarray, " nnzb"]
    _deals: dict[tuple[int, ...], Deal] = field(default_factory=dict, repr=False)

    def deal(self, interval: int) -> Deal:
        """What the tiles of an interval hold; tiles count from the interval's first band.

        Args:
            interval: Number of the interval.

        Returns:
            Blocks, touched rows and parts of each tile.
        """
        bounds = self.plan.band_tiles[interval]
        relative = tuple(bound - bounds[0] for bound in bounds)
        if relative not in self._deals:
            self._deals[relative] = self._dealt(np.array(relative, np.int64))
        return self._deals[relative]

    def _dealt(self, bounds: Int64[np.ndarray, " bands1"]) -> Deal:
        blocks = np.bincount(self.band, minlength=len(bounds) - 1)
        rank = np.arange(len(self.band)) - (np.cumsum(blocks) - blocks)[self.band]
        # Each tile takes as many as the fullest has to take, so the last of a band take the rest.
        share = -(-blocks // np.maximum(np.diff(bounds), 1))
        tile = bounds[self.band] + rank // np.maximum(share, 1)[self.band]
        return Deal(tile, self.row, self.column, self.plan.pattern.grid[1])

    def to_tiles(self, values: Shaped[Tensor, "nnzb r c"]) -> Shaped[Tensor, "nnzb r c"]:
        """Bring blocks from the pattern's order into tile order.

        Args:
            values: Blocks in the pattern's order.

        Returns:
            A copy in tile order.
        """
        return values.index_select(0, torch.from_numpy(self.order).to(values.device))

    def from_tiles(self, values: Shaped[Tensor, "nnzb r c"]) -> Shaped[Tensor, "nnzb r c"]:
        """Bring blocks from tile order into the pattern's order.

        Args:
            values: Blocks in tile order.

        Returns:
            A copy in the pattern's order.
        """
        back = np.empty_like(self.order)
        back[self.order] = np.arange(len(back))
        return values.index_select(0, torch.from_numpy(back).to(values.device))


@lru_cache(maxsize=2)
def partition(plan: StaticPlan) -> Partition:
    """Order the blocks of a plan's pattern as they lie on tiles.

    Every band's blocks are taken row by row and dealt to its tiles consecutively, equally many to
    each but the last, as in PopSparse (arXiv 2303.16999).

    Args:
        plan: How the product is cut.

    Returns:
        The order, and what follows from it.

    Raises:
        ValueError: If the plan does not fit its pattern or its machine.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import Pattern
        >>> from sparsetile.plan._cost import Cost
        >>> plan = StaticPlan(
        ...     machine=preset("bow-ipu"), pattern=Pattern((2, 4), 1, [0, 2, 4], [0, 2, 1, 3]),
        ...     n=2, dtype="float32", preprocess=False, column_starts=(0, 2), split_tiles=(0, 4),
        ...     band_starts=(0, 2, 4), band_tiles=((0, 2, 4),), cost=Cost(()),
        ... )
        >>> partition(plan).order.tolist()
        [0, 2, 1, 3]
    """
    _check(plan)
    pattern = plan.pattern
    rows, columns = (_ranks(order) for order in block_order(pattern, plan.preprocess))
    row = pattern.row_indices.cpu().numpy().astype(np.int64)
    column = pattern.col_indices.cpu().numpy().astype(np.int64)
    starts = np.array(plan.band_starts[:-1], np.int64)
    band = np.searchsorted(starts, columns[column], side="right") - 1
    key = (band * len(rows) + rows[row]) * len(columns) + columns[column]
    order = np.argsort(key)
    found = Partition(plan, order, row[order], column[order], band[order])
    _check_bands(plan, np.bincount(band, minlength=len(starts)))
    return found


def tile_of_block(plan: StaticPlan, interval: int) -> Int64[np.ndarray, " nnzb"]:
    """Say which tile holds each stored block for one interval of columns.

    Args:
        plan: How the product is cut.
        interval: Number of the interval.

    Returns:
        The tile of each block, in the pattern's order, `[nnzb]`.

    Raises:
        TypeError: If the plan is no static one, or the interval no integer.
        ValueError: If there is no such interval, or the plan does not fit its pattern or its
            machine.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import Pattern
        >>> from sparsetile.plan._cost import Cost
        >>> plan = StaticPlan(
        ...     machine=preset("bow-ipu"), pattern=Pattern((2, 4), 1, [0, 2, 4], [0, 2, 1, 3]),
        ...     n=2, dtype="float32", preprocess=False, column_starts=(0, 2), split_tiles=(0, 4),
        ...     band_starts=(0, 2, 4), band_tiles=((0, 2, 4),), cost=Cost(()),
        ... )
        >>> tile_of_block(plan, 0).tolist()
        [0, 2, 1, 3]
    """
    check_plan(plan)
    as_int("interval", interval, least=0, most=plan.splits - 1, fix="pass one of the plan's")
    parts = partition(plan)
    tile = np.empty_like(parts.order)
    tile[parts.order] = parts.deal(interval).tile + plan.band_tiles[interval][0]
    return tile


def _ranks(order: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def check_plan(plan: object) -> None:
    """Refuse what is no static plan."""
    if not isinstance(plan, StaticPlan):
        got, fix = describe(plan), "take one from plan_static"
        raise TypeError(message("plan", got=got, allowed="a StaticPlan", fix=fix))


def _check(plan: StaticPlan) -> None:
    r, c = plan.pattern.blocksize
    if r != c or r not in BLOCKS:
        raise _refused(
            f"blocks of {r}×{c}", f"square blocks of {', '.join(map(str, BLOCKS))}", "convert them"
        )
    if plan.dtype not in DTYPES:
        raise _refused(f"dtype {plan.dtype!r}", " or ".join(DTYPES), "plan for one of these")
    splits = len(plan.column_starts) - 1
    bounds = [tile for tiles in plan.band_tiles for tile in tiles]
    nested = len(plan.split_tiles) == splits + 1 and len(plan.band_tiles) == splits
    nested = nested and all(len(tiles) == len(plan.band_starts) for tiles in plan.band_tiles)
    nested = nested and all(
        first <= tiles[0] and tiles[-1] <= last
        for tiles, (first, last) in zip(plan.band_tiles, pairwise(plan.split_tiles), strict=True)
    )
    cuts = (plan.column_starts, plan.split_tiles, plan.band_starts, bounds)
    if not nested or any(low > high for cut in cuts for low, high in pairwise(cut)):
        raise _refused(
            f"intervals {plan.column_starts} on tiles {plan.split_tiles} with bands "
            f"{plan.band_starts} on tiles {plan.band_tiles}",
            "ascending bounds, those of bands within those of their interval",
            "take a plan from plan_static",
        )
    ends = (plan.column_starts[0], plan.band_starts[0], plan.band_starts[-1])
    fits = plan.column_starts[-1] >= plan.n and plan.split_tiles[-1] <= plan.machine.tiles
    if ends != (0, 0, plan.pattern.grid[1]) or not fits or plan.split_tiles[0] < 0:
        raise _refused(
            f"intervals {plan.column_starts} of {plan.n} columns, bands {plan.band_starts} of "
            f"{plan.pattern.grid[1]} block columns, tiles {plan.split_tiles} of "
            f"{plan.machine.tiles}",
            "cuts that cover all columns with tiles that there are",
            "take a plan from plan_static",
        )


def _check_bands(plan: StaticPlan, blocks: Int64[np.ndarray, " bands"]) -> None:
    for interval, tiles in enumerate(plan.band_tiles):
        bare = np.flatnonzero((np.diff(tiles) == 0) & (blocks > 0))
        if bare.size:
            raise _refused(
                f"no tile for band {bare[0]} of interval {interval}, which has "
                f"{blocks[bare[0]]} blocks",
                "a tile or more for every band that stores blocks",
                "take a plan from plan_static",
            )


def _refused(got: str, allowed: str, fix: str) -> ValueError:
    return ValueError(message("static plan", got=got, allowed=allowed, fix=fix))
