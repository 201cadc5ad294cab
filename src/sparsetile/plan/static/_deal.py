"""What one interval's tiles hold: blocks, rows of the dense operand, rows of partial sums."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int64


@dataclass(frozen=True, eq=False)
class Deal:
    """Blocks in the order in which they lie on tiles, and the tile of each.

    Tiles count from the first of the interval, so that intervals with equally many tiles in each
    band share a deal.

    Attributes:
        tile: Tile of each block, ascending, `[nnzb]`.
        row: Its block row, `[nnzb]`; blocks of a row on a tile lie together.
        column: Its block column, `[nnzb]`.
        columns: Block columns of the sparse operand.

    Examples:
        >>> deal = Deal(np.array([0, 0, 1]), np.array([0, 0, 0]), np.array([2, 3, 3]), columns=4)
        >>> deal.part_row.tolist(), deal.part_tile.tolist(), deal.part_start.tolist()
        ([0, 0], [0, 1], [0, 2, 3])
        >>> deal.touched_column.tolist(), deal.touched.tolist()
        ([2, 3, 3], [0, 1, 2])
    """

    tile: Int64[np.ndarray, " nnzb"]
    row: Int64[np.ndarray, " nnzb"]
    column: Int64[np.ndarray, " nnzb"]
    columns: int

    @cached_property
    def _part_begin(self) -> Int64[np.ndarray, " parts"]:
        new = np.diff(self.tile, prepend=-1) != 0
        new |= np.diff(self.row, prepend=-1) != 0
        return np.flatnonzero(new)

    @cached_property
    def part_start(self) -> Int64[np.ndarray, " parts1"]:
        """First block of each part, which is a block row on a tile, and the end of the last."""
        return np.append(self._part_begin, len(self.tile))

    @cached_property
    def part_row(self) -> Int64[np.ndarray, " parts"]:
        """Block row of each part."""
        return self.row[self._part_begin]

    @cached_property
    def part_tile(self) -> Int64[np.ndarray, " parts"]:
        """Tile of each part, ascending."""
        return self.tile[self._part_begin]

    @cached_property
    def _touched(self) -> tuple[Int64[np.ndarray, " touched"], Int64[np.ndarray, " nnzb"]]:
        keys, inverse = np.unique(self.tile * self.columns + self.column, return_inverse=True)
        return keys, inverse.reshape(-1)

    @property
    def touched(self) -> Int64[np.ndarray, " nnzb"]:
        """Which of the touched block rows of the dense operand each block multiplies."""
        return self._touched[1]

    @cached_property
    def touched_tile(self) -> Int64[np.ndarray, " touched"]:
        """Tile of each block row of the dense operand that a tile's blocks touch, ascending."""
        return self._touched[0] // self.columns

    @cached_property
    def touched_column(self) -> Int64[np.ndarray, " touched"]:
        """Which block row it is, ascending within a tile."""
        return self._touched[0] % self.columns

    @cached_property
    def tile_blocks(self) -> Int64[np.ndarray, " tiles"]:
        """Blocks of each tile, up to the last that has any."""
        return np.bincount(self.tile)

    @cached_property
    def tile_parts(self) -> Int64[np.ndarray, " tiles"]:
        """Parts of each tile."""
        return np.bincount(self.part_tile)

    @cached_property
    def tile_touched(self) -> Int64[np.ndarray, " tiles"]:
        """Block rows of the dense operand that each tile touches."""
        return np.bincount(self.touched_tile)
