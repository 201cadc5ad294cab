"""Which indices of an embedding are rows of the buckets that lie on the same tiles."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, UInt16, UInt32

from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import Entries, exclusive, scan

PADDING = 2**32 - 1
"""The index that selects nothing."""

_Tiles = Int64[np.ndarray, " tiles"]


@dataclass(frozen=True, eq=False)
class Hits:
    """Blocks of the table in rows that are asked for.

    A query is one index on one tile.

    Attributes:
        tile: Tile of each row that is found.
        at: Which of the tile's indices asked for it.
        count: Blocks of each row that is found.
        block_tile: Tile of each block.
        block_at: Which of the tile's indices asked for it.
        value: Where the numbers of the row that is asked for begin in the tile's bucket.
        column: Column in its partition where they belong.
    """

    tile: Int64[np.ndarray, " rows"]
    at: Int64[np.ndarray, " rows"]
    count: Int64[np.ndarray, " rows"]
    block_tile: Int64[np.ndarray, " blocks"]
    block_at: Int64[np.ndarray, " blocks"]
    value: Int64[np.ndarray, " blocks"]
    column: Int64[np.ndarray, " blocks"]


@dataclass(frozen=True, eq=False)
class Table:
    """What a number of buckets hold, sorted so that rows are found.

    Attributes:
        plan: The plan.
        entries: All subgroups, rows and blocks.
        keys: Bucket, column partition and block row of each row as one number, ascending.
        order: Which row each is.
    """

    plan: DynamicPlan
    entries: Entries
    keys: Int64[np.ndarray, " rows"]
    order: Int64[np.ndarray, " rows"]

    def subgroups(self, bucket: _Tiles) -> _Tiles:
        """Subgroups of the bucket on each tile."""
        return np.bincount(self.entries.bucket, minlength=self.plan.tiles)[bucket]

    def own(self, bucket: _Tiles, iy: _Tiles) -> tuple[_Tiles, _Tiles]:
        """Subgroups of one column partition in the bucket on each tile, and rows of these."""
        entries, y = self.entries, self.plan.y
        cell, cells = entries.bucket * y + entries.iy, self.plan.tiles * y
        rows = np.bincount(cell, entries.rows, cells).astype(np.int64)
        return np.bincount(cell, minlength=cells)[bucket * y + iy], rows[bucket * y + iy]

    def find(self, bucket: _Tiles, iy: _Tiles, indices: UInt32[np.ndarray, "tiles chunk"]) -> Hits:
        """The rows that each tile asks for, as far as its bucket has them.

        Args:
            bucket: Which bucket lies on each tile.
            iy: Column partition that each tile looks for.
            indices: Rows of the table that each tile looks for.

        Returns:
            What is found.
        """
        plan, entries = self.plan, self.entries
        r, c = plan.kernel_block
        tile, at = np.nonzero(indices != PADDING)
        row, inner = np.divmod(indices[tile, at].astype(np.int64), r)
        key = (bucket[tile] * plan.y + iy[tile]) * (-(-plan.m // r)) + row
        first = np.searchsorted(self.keys, key, side="left")
        many = np.searchsorted(self.keys, key, side="right") - first
        query, turn = _expanded(many)
        found = self.order[first[query] + turn]
        count = entries.row_count[found]
        which, turn = _expanded(count)
        block = entries.row_begin[found][which] + turn
        return Hits(
            tile=tile[query],
            at=at[query],
            count=count,
            block_tile=tile[query][which],
            block_at=at[query][which],
            value=entries.value[block] + inner[query][which] * c,
            column=entries.local_column[block] * c,
        )


def read_table(meta: UInt16[np.ndarray, "tiles words"], plan: DynamicPlan) -> Table:
    """Read the words of a bucket on each tile.

    Args:
        meta: The words.
        plan: The plan that they were encoded for.

    Returns:
        What the buckets hold.
    """
    entries = scan(meta, plan)
    r, _ = plan.kernel_block
    bucket, ix, iy = (a.repeat(entries.rows) for a in (entries.bucket, entries.ix, entries.iy))
    row = ix * (plan.x_size // r) + entries.row
    keys = (bucket * plan.y + iy) * (-(-plan.m // r)) + row
    order = np.argsort(keys, kind="stable")
    return Table(plan, entries, keys[order], order)


class Reader:
    """Reads buckets that travel, each only once.

    Whether what lies on a tile was read before is seen from the words: they are compared with what
    was read, a bucket to where it would be after any of the given moves.
    """

    def __init__(self, plan: DynamicPlan, moves: tuple[_Tiles, ...]) -> None:
        self._plan = plan
        self._moves = (np.arange(plan.tiles), *moves)
        self._last: tuple[UInt16[np.ndarray, "tiles words"], Table, _Tiles] | None = None

    def read(self, meta: UInt16[np.ndarray, "tiles words"]) -> tuple[Table, _Tiles]:
        """What all buckets hold, and which of them lies on each tile."""
        last = self._last
        if last is not None:
            for bucket in self._moved(last[2]):
                if _same(meta, last[0], bucket):
                    self._last = (last[0], last[1], bucket)
                    return last[1], bucket
        bucket = np.arange(self._plan.tiles)
        table = read_table(meta, self._plan)
        self._last = (meta.copy(), table, bucket)
        return table, bucket

    def _moved(self, bucket: _Tiles) -> Iterator[_Tiles]:
        return (bucket[origin] for origin in self._moves)


def _same(
    meta: UInt16[np.ndarray, "tiles words"],
    read: UInt16[np.ndarray, "tiles words"],
    bucket: _Tiles,
) -> bool:
    # The first words tell most wrong guesses.
    few: Bool[np.ndarray, " tiles"] = (meta[:, :8] == read[bucket, :8]).all(1)
    return bool(few.all()) and np.array_equal(meta, read[bucket])


def _expanded(
    counts: Int64[np.ndarray, " n"],
) -> tuple[Int64[np.ndarray, " total"], Int64[np.ndarray, " total"]]:
    """Which each of so many things belongs to, and the how many-th of it it is."""
    owner = np.arange(len(counts)).repeat(counts)
    return owner, np.arange(len(owner)) - exclusive(counts)[owner]
