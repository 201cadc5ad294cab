"""The variables of a static product and how they lie on tiles."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

from sparsetile.machine import Memory, Variable, even_counts
from sparsetile.plan._units import BYTES, VECTOR
from sparsetile.plan.static._deal import Deal
from sparsetile.plan.static._partition import Partition
from sparsetile.plan.static._sharers import Sharers

# Of one interval's tiles, up to the last that has any; an axis that may differ between intervals.
_Counts = Int64[np.ndarray, " _"]

# Block kernels read so many bytes beyond the rows that they multiply.
_OVER_READ = 16


@dataclass(frozen=True, eq=False)
class Interval:
    """Columns of the dense operand that some tiles multiply, and what these tiles hold.

    Attributes:
        first: First column.
        columns: Columns that there are.
        width: Columns with those that fill it up to the vector width.
        tile: First tile.
        deal: What its tiles hold, which count from there.
        sharers: Rows of partial sums on several of its tiles, and who adds them up.
    """

    first: int
    columns: int
    width: int
    tile: int
    deal: Deal
    sharers: Sharers


@dataclass(frozen=True, eq=False)
class Layout:
    """The variables of a static product.

    Operands and result are spread over all tiles row by row. In the variables of an interval's
    tiles, what belongs to the interval lies in one piece.

    Attributes:
        parts: The blocks and their order.
        intervals: Columns and tiles.
    """

    parts: Partition
    intervals: tuple[Interval, ...]

    @property
    def b(self) -> int:
        """Side of a block."""
        return self.parts.plan.pattern.blocksize[0]

    @cached_property
    def x(self) -> Variable:
        """The dense operand, k×n."""
        return self._spread("x", self.parts.plan.pattern.shape[1] * self.parts.plan.n)

    @cached_property
    def y(self) -> Variable:
        """The result, m×n."""
        return self._spread("y", self.parts.plan.pattern.shape[0] * self.parts.plan.n)

    @cached_property
    def values(self) -> Variable:
        """Non-zeros in tile order: on their tiles, or spread if several intervals need them."""
        if len(self.intervals) == 1:
            return self._per_tile("values", self._values)
        size = len(self.parts.order) * self.b**2
        return self._spread("values", size, grain=max(self.b**2, VECTOR[self.parts.plan.dtype]))

    @cached_property
    def tile_values(self) -> Variable:
        """Non-zeros on the tiles that multiply them."""
        if len(self.intervals) == 1:
            return self.values
        return self._per_tile("values of tiles", self._values)

    @cached_property
    def rows(self) -> Variable:
        """Block rows of the dense operand that a tile's blocks touch: `[touched][b][width]`."""
        return self._per_tile(
            "rows of x",
            [i.deal.tile_touched * (self.b * i.width) for i in self.intervals],
        )

    @cached_property
    def over_read(self) -> Variable:
        """What lies behind the rows and is read by block kernels, but not used."""
        over = _OVER_READ // BYTES[self.parts.plan.dtype] * (self.b > 1)
        counts = [(i.deal.tile_blocks > 0) * over for i in self.intervals]
        return self._per_tile("over-read", counts)

    @cached_property
    def lists(self) -> Variable:
        """16-bit work lists: a column for each block, a header of two for each row.

        Lists of single elements also tell each worker where it begins, in rows and values. Their
        content is fixed with the plan and takes part as memory only.
        """
        head = 2 * self.parts.plan.machine.workers * (self.b == 1)
        counts = []
        for i in self.intervals:
            blocks, rows = i.deal.tile_blocks, i.deal.tile_parts
            counts.append(blocks + 2 * rows + (blocks > 0) * head)
        return self._per_tile("work lists", counts, "uint16", persistent=True)

    @cached_property
    def partials(self) -> Variable:
        """Sums over a tile's blocks: `[parts][b][width]`."""
        return self._per_tile(
            "partial sums",
            [i.deal.tile_parts * (self.b * i.width) for i in self.intervals],
        )

    @cached_property
    def arrived(self) -> Variable:
        """Partial sums of several tiles, where they are added: `[tiles][elements]` for each row."""
        return self._per_tile("partial sums to add", [i.sharers.arriving for i in self.intervals])

    @cached_property
    def sums(self) -> Variable:
        """What comes of adding them."""
        return self._per_tile("sums", [i.sharers.counts for i in self.intervals])

    def of(self, memory: Memory, variable: Variable, at: int) -> npt.NDArray[np.generic]:
        """An interval's part of a variable."""
        end = len(variable.counts)
        if at + 1 < len(self.intervals):
            end = self.intervals[at + 1].tile
        first = self.intervals[at].tile
        return memory[variable][variable.offsets[first] : variable.offsets[end]]

    def base(self, variable: Variable, at: int) -> int:
        """First element of an interval's part of a variable."""
        return int(variable.offsets[self.intervals[at].tile])

    @property
    def _values(self) -> list[_Counts]:
        return [i.deal.tile_blocks * self.b**2 for i in self.intervals]

    def _spread(self, name: str, size: int, grain: int | None = None) -> Variable:
        plan = self.parts.plan
        counts = even_counts(size, plan.machine.tiles, grain or VECTOR[plan.dtype])
        return Variable(name, np.dtype(plan.dtype), counts)

    def _per_tile(
        self,
        name: str,
        counts: list[_Counts],
        dtype: str | None = None,
        persistent: bool = False,
    ) -> Variable:
        plan = self.parts.plan
        full = np.zeros(plan.machine.tiles, np.int64)
        for interval, own in zip(self.intervals, counts, strict=True):
            full[interval.tile : interval.tile + len(own)] += own
        return Variable(name, np.dtype(dtype or plan.dtype), full, persistent)


def layout(parts: Partition) -> Layout:
    """Lay out the variables of a plan whose blocks were dealt.

    Args:
        parts: The blocks and their order.

    Returns:
        The variables.
    """
    plan, b = parts.plan, parts.plan.pattern.blocksize[0]
    intervals = []
    known: dict[tuple[Deal, int], Sharers] = {}
    for at, tiles in enumerate(plan.band_tiles):
        first, end = plan.column_starts[at : at + 2]
        columns = min(end, plan.n) - first
        if columns > 0:
            deal = parts.deal(at)
            size = b * (end - first)
            sharers = known.setdefault((deal, size), Sharers(deal, size, plan.dtype))
            intervals.append(Interval(first, columns, end - first, tiles[0], deal, sharers))
    return Layout(parts, tuple(intervals))
