"""How the indices and the rows of an embedding lie on the tiles of a dynamic plan."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int64, Shaped, UInt32

from sparsetile.machine import Copy, Variable, even_counts
from sparsetile.plan.dynamic._embedding_rows import PADDING
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._spread import coordinates, runs, tile_variable


@dataclass(frozen=True)
class Chunks:
    """Indices cut into equal chunks, one for each tile of a column partition.

    Tile `(iy, p)`, where `p` counts row and batch partitions, works on chunk `p` and on the columns
    of partition `iy`. Where columns of a partition are odd in number, rows of half numbers have
    one more, so that they begin at whole words.

    Attributes:
        plan: The plan.
        count: Indices.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> chunks = Chunks(small_plan(), 5)
        >>> chunks.size, chunks.ring
        (3, 2)
        >>> chunks.arrange_indices(np.arange(5, dtype=np.uint32)).tolist()
        [0, 1, 3, 4, 2, 4294967295]
    """

    plan: DynamicPlan
    count: int

    @property
    def ring(self) -> int:
        """Tiles of a column partition."""
        return self.plan.x * self.plan.z

    @property
    def size(self) -> int:
        """Indices of a chunk."""
        return -(-self.count // self.ring)

    @property
    def width(self) -> int:
        """Numbers of a row on a tile."""
        grain = 2 if self.plan.dtype == "float16" else 1
        return -(-self.plan.y_size // grain) * grain

    @cached_property
    def shares(self) -> Int64[np.ndarray, " y"]:
        """Indices of a chunk that each column partition holds at first."""
        return even_counts(self.size, self.plan.y)

    def indices_home(self) -> Variable:
        """Memory for all indices, each once."""
        _, iy, _ = coordinates(self.plan)
        return tile_variable(self.plan, "all indices", "uint32", self.shares[iy])

    def indices(self) -> Variable:
        """Memory for a tile's chunk."""
        return tile_variable(self.plan, "indices", "uint32", self.size)

    def rows(self, name: str) -> Variable:
        """Memory for the rows of a tile's chunk, as far as its column partition reaches."""
        return tile_variable(self.plan, name, self.plan.dtype, self.size * self.width)

    def broadcast(self, home: Variable, indices: Variable) -> Copy:
        """Every column partition gets all chunks."""
        tiles = np.arange(self.plan.tiles)[:, None]
        start = np.cumsum(self.shares) - self.shares
        origin = tiles % self.ring + np.arange(self.plan.y) * self.ring
        target = tiles * self.size + start
        return runs(home, indices, home.offsets[origin], target, self.shares)

    def arrange_indices(self, indices: UInt32[np.ndarray, " count"]) -> UInt32[np.ndarray, " n"]:
        """The flat data of all indices; what fills up the last chunks selects nothing."""
        full = np.full(self.ring * self.size, PADDING, np.uint32)
        full[: self.count] = indices
        cuts = np.split(full.reshape(self.ring, -1), np.cumsum(self.shares)[:-1], axis=1)
        return np.concatenate([cut.reshape(-1) for cut in cuts])

    def arrange_rows(self, rows: Shaped[np.ndarray, "count dim"]) -> Shaped[np.ndarray, " n"]:
        """The flat data of rows, one for each index."""
        plan = self.plan
        full = np.zeros((self.ring * self.size, plan.y * plan.y_size), rows.dtype)
        full[: self.count, : plan.k] = rows
        cut = full.reshape(self.ring, self.size, plan.y, plan.y_size).transpose(2, 0, 1, 3)
        wide = np.zeros((*cut.shape[:3], self.width), rows.dtype)
        wide[..., : plan.y_size] = cut
        return wide.reshape(-1)

    def collect_rows(self, flat: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, "count dim"]:
        """The rows of which this is the flat data."""
        plan = self.plan
        cut = flat.reshape(plan.y, self.ring, self.size, self.width)[..., : plan.y_size]
        full = cut.transpose(1, 2, 0, 3).reshape(self.ring * self.size, -1)
        return np.ascontiguousarray(full[: self.count, : plan.k])

    def next_in_ring(self, by: int) -> Int64[np.ndarray, " tiles"]:
        """Where what moves within column partitions comes from, of each tile."""
        iy, p = np.divmod(np.arange(self.plan.tiles), self.ring)
        return iy * self.ring + (p - by) % self.ring

    def next_column(self, by: int) -> Int64[np.ndarray, " tiles"]:
        """Where what moves to other column partitions comes from, of each tile."""
        iy, p = np.divmod(np.arange(self.plan.tiles), self.ring)
        return (iy - by) % self.plan.y * self.ring + p

    def move(self, origin: Int64[np.ndarray, " tiles"], *variables: Variable) -> tuple[Copy, ...]:
        """Each tile gets all that another one holds of some variables."""
        tiles = np.arange(self.plan.tiles)
        sizes = [variable.size // self.plan.tiles for variable in variables]
        return tuple(
            runs(variable, variable, origin * size, tiles * size, size)
            for variable, size in zip(variables, sizes, strict=True)
        )
