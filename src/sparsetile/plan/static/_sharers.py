"""Which tiles hold partial sums of one row, and which tiles add them up."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int64

from sparsetile.plan._units import VECTOR
from sparsetile.plan.static._deal import Deal
from sparsetile.plan.static._runs import cut, spell

_START = {"float16": 8, "float32": 5}


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of sums, each of one block row and on one tile.

    Attributes:
        row: Number of its block row among those shared, `[pieces]`.
        start: First element among those of all shared rows, `[pieces]`.
        length: Elements, `[pieces]`.
        base: First element of its partial sums among all that arrive, `[pieces]`.
        factor: Partial sums of each element, `[pieces]`.
        tile: The tile that adds them up, `[pieces]`.
    """

    row: Int64[np.ndarray, " pieces"]
    start: Int64[np.ndarray, " pieces"]
    length: Int64[np.ndarray, " pieces"]
    base: Int64[np.ndarray, " pieces"]
    factor: Int64[np.ndarray, " pieces"]
    tile: Int64[np.ndarray, " pieces"]


@dataclass(frozen=True, eq=False)
class Sharers:
    """The shared rows of an interval: who holds partial sums, who adds them up.

    All tiles that hold partial sums, of whatever rows, add up: each a run of the shared rows'
    elements that takes about as many cycles as the others'.

    Attributes:
        deal: What the tiles hold.
        size: Elements of a block row of sums.
        dtype: `"float16"` or `"float32"`.

    Examples:
        >>> deal = Deal(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([0, 1, 0]), columns=2)
        >>> sharers = Sharers(deal, size=4, dtype="float32")
        >>> sharers.shared_row.tolist(), sharers.counts.tolist(), sharers.arriving.tolist()
        ([1], [2, 2], [4, 4])
    """

    deal: Deal
    size: int
    dtype: str

    @cached_property
    def _holders(self) -> tuple[Int64[np.ndarray, " parts"], Int64[np.ndarray, " held"]]:
        """Parts by row, and how many tiles hold each row that there is."""
        order = np.argsort(self.deal.part_row, kind="stable")
        new = np.flatnonzero(np.diff(self.deal.part_row[order], prepend=-1))
        return order, np.diff(np.append(new, len(order)))

    @cached_property
    def factor(self) -> Int64[np.ndarray, " shared"]:
        """Tiles that hold partial sums of each shared row: two or more."""
        held = self._holders[1]
        return held[held > 1]

    @cached_property
    def holder(self) -> Int64[np.ndarray, " summands"]:
        """The parts of each shared row, one row after the other."""
        order, held = self._holders
        return order[np.repeat(held > 1, held)]

    @property
    def alone(self) -> Int64[np.ndarray, " alone"]:
        """The parts whose row is on one tile, which have nothing to add."""
        order, held = self._holders
        return order[np.repeat(held == 1, held)]

    @cached_property
    def first_holder(self) -> Int64[np.ndarray, " shared"]:
        """Where the parts of each shared row begin in `holder`."""
        return np.cumsum(self.factor) - self.factor

    @property
    def shared_row(self) -> Int64[np.ndarray, " shared"]:
        """Block row of each shared row, ascending."""
        return self.deal.part_row[self.holder[self.first_holder]]

    @cached_property
    def counts(self) -> Int64[np.ndarray, " some"]:
        """Elements that each tile adds up."""
        holding = np.unique(self.deal.part_tile)
        grain = VECTOR[self.dtype]
        grains = self.size // grain
        # Cycles of a grain in proportion, from the planner's formula for a reduction.
        weight = self.factor + _START[self.dtype] + 5
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(weight * grains)))
        counts = np.zeros(int(holding[-1]) + 1 if holding.size else 0, np.int64)
        if len(weight) == 0:
            return counts
        goals = np.arange(len(holding) + 1) * int(ends[-1]) // len(holding)
        row = np.minimum(np.searchsorted(ends, goals, side="right") - 1, len(weight) - 1)
        bounds = row * grains + (goals - ends[row]) // weight[row]
        counts[holding] = np.diff(bounds) * grain
        return counts

    @cached_property
    def pieces(self) -> Pieces:
        """What each tile adds up, row by row."""
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.counts)))
        rows = np.arange(len(self.factor)) * self.size
        row, start, length = cut(rows, np.full(len(rows), self.size), offsets)
        factor = self.factor[row]
        tile = np.searchsorted(offsets, start, side="right") - 1
        total = factor * length
        return Pieces(row, start, length, np.cumsum(total) - total, factor, tile)

    @cached_property
    def arriving(self) -> Int64[np.ndarray, " some"]:
        """Partial sums that each tile receives to add up."""
        pieces = self.pieces
        total = np.bincount(pieces.tile, pieces.factor * pieces.length, len(self.counts))
        return total.astype(np.int64)

    def summands(self) -> tuple[Int64[np.ndarray, " runs"], ...]:
        """Which runs of partial sums go to which places among those that arrive.

        Returns:
            First element of each run of the interval's partial sums, first element where it goes
            to, and its length; each `[runs]`.
        """
        pieces = self.pieces
        piece, nth = spell(pieces.factor)
        part = self.holder[self.first_holder[pieces.row[piece]] + nth]
        within = pieces.start - pieces.row * self.size
        length = pieces.length[piece]
        return part * self.size + within[piece], pieces.base[piece] + nth * length, length
