"""How a dense operand or result lies on the tiles of a dynamic plan."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

from sparsetile.machine import Copy, Variable, even_counts
from sparsetile.plan.dynamic._plan import DynamicPlan


@dataclass(frozen=True)
class Spread:
    """A dense matrix of all rows (or all columns) of W by n, cut over the tiles.

    It is cut into equal parts by the plan's row (or column) partitions and batch partitions. All
    tiles of a row (or column) partition and a batch partition share a part: each holds an equal
    run of it, row by row. Short last parts are filled up with zeros.

    Attributes:
        plan: The plan.
        side: `"x"` for rows of W, such as the result of the forward product; `"y"` for columns of
            W, such as its dense operand.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan.dynamic._plan import DynamicOptions
        >>> plan = DynamicPlan(
        ...     machine=preset("bow-ipu"), m=8, k=6, n=4, blocksize=(1, 1), kernel_block=(1, 1),
        ...     max_blocks=9, dtype="float32", options=DynamicOptions(), x=2, y=3, z=2, x_size=4,
        ...     y_size=2, z_size=2, methods=("Forward", "Transpose", "GradW"),
        ...     exchange_buckets=True, bucket_values=4, bucket_meta=200, bucket_meta_grad_a=0,
        ... )
        >>> flat = Spread(plan, "x").arrange(np.arange(32.0).reshape(8, 4))
        >>> flat[:8].tolist()  # tile 0 has a third of rows 0 to 3, tile 1 of rows 4 to 7
        [0.0, 1.0, 4.0, 16.0, 17.0, 20.0, 2.0, 3.0]
    """

    plan: DynamicPlan
    side: str

    @property
    def parts(self) -> int:
        """Row (or column) partitions."""
        return self.plan.x if self.side == "x" else self.plan.y

    @property
    def sharers(self) -> int:
        """Tiles that share a part."""
        return self.plan.y if self.side == "x" else self.plan.x

    @property
    def rows(self) -> int:
        """Rows of a part."""
        return self.plan.x_size if self.side == "x" else self.plan.y_size

    @property
    def part(self) -> int:
        """Elements of a part."""
        return self.rows * self.plan.z_size

    @cached_property
    def shares(self) -> Int64[np.ndarray, " sharers"]:
        """Elements of a part that each of its tiles holds."""
        grain = 2 if self.plan.dtype == "float16" else 1
        return even_counts(self.part, self.sharers, grain)

    @cached_property
    def starts(self) -> Int64[np.ndarray, " sharers1"]:
        """Where the shares of a part begin, and its end."""
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(self.shares)))

    @cached_property
    def sharer(self) -> Int64[np.ndarray, " parts"]:
        """Of each tile: which share of its part it holds."""
        ix, iy, _ = coordinates(self.plan)
        return iy if self.side == "x" else ix

    def variable(self, name: str, dtype: str) -> Variable:
        """Tiles' memory for a matrix that lies so."""
        return tile_variable(self.plan, name, dtype, self.shares[self.sharer])

    def arrange(self, matrix: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """The flat data of a matrix."""
        plan = self.plan
        rows, columns = matrix.shape
        full = np.zeros((self.parts * self.rows, plan.z * plan.z_size), matrix.dtype)
        full[:rows, :columns] = matrix
        cut = full.reshape(self.parts, self.rows, plan.z, plan.z_size)
        if self.side == "y":  # tiles go by column partition, batch partition, sharers
            return cut.transpose(0, 2, 1, 3).reshape(-1)
        parts = cut.transpose(2, 0, 1, 3).reshape(plan.z, self.parts, self.part)
        cuts = zip(self.starts[:-1], self.starts[1:], strict=True)
        return np.concatenate([parts[..., begin:end].reshape(-1) for begin, end in cuts])

    def collect(self, flat: npt.NDArray[np.generic], rows: int) -> npt.NDArray[np.generic]:
        """The matrix of which this is the flat data, without what fills up its parts."""
        plan = self.plan
        if self.side == "y":
            cut = flat.reshape(self.parts, plan.z, self.rows, plan.z_size).transpose(0, 2, 1, 3)
        else:
            parts = np.empty((plan.z, self.parts, self.part), flat.dtype)
            at = 0
            for begin, end in zip(self.starts[:-1], self.starts[1:], strict=True):
                size = plan.z * self.parts * int(end - begin)
                parts[..., begin:end] = flat[at : at + size].reshape(plan.z, self.parts, -1)
                at += size
            cut = parts.reshape(plan.z, self.parts, self.rows, plan.z_size).transpose(1, 2, 0, 3)
        full = cut.reshape(self.parts * self.rows, plan.z * plan.z_size)
        return np.ascontiguousarray(full[:rows, : plan.n])

    def broadcast(self, source: Variable, target: Variable) -> Copy:
        """Each share of a part goes to all tiles of that part, whose `target` holds it whole."""
        plan = self.plan
        tiles = np.arange(plan.tiles)
        sharer = np.arange(self.sharers)
        origin = sibling(plan, "y" if self.side == "x" else "x", sharer)
        length = np.broadcast_to(self.shares, origin.shape)
        target_start = tiles[:, None] * self.part + self.starts[:-1]
        return runs(source, target, source.offsets[origin], target_start, length)


def coordinates(plan: DynamicPlan) -> tuple[Int64[np.ndarray, " parts"], ...]:
    """Row, column and batch partition of each tile that has a part."""
    rest, ix = np.divmod(np.arange(plan.tiles), plan.x)
    iy, iz = np.divmod(rest, plan.z)
    return ix, iy, iz


def sibling(
    plan: DynamicPlan, axis: str, at: Int64[np.ndarray, " n"]
) -> Int64[np.ndarray, "parts n"]:
    """Of each tile: the tiles that differ from it in one coordinate alone, which is `at`."""
    ix, iy, iz = (c[:, None] for c in coordinates(plan))
    if axis == "x":
        ix = at
    elif axis == "y":
        iy = at
    else:
        iz = at
    return np.broadcast_to((iy * plan.z + iz) * plan.x + ix, (plan.tiles, len(at)))


def tile_variable(
    plan: DynamicPlan,
    name: str,
    dtype: str,
    counts: int | Int64[np.ndarray, " parts"],
    persistent: bool = False,
) -> Variable:
    """A variable on the tiles that have a part, with nothing on others."""
    full = np.zeros(plan.machine.tiles, np.int64)
    full[: plan.tiles] = counts
    return Variable(name, np.dtype(dtype), full, persistent)


def runs(
    source: Variable,
    target: Variable,
    source_start: npt.NDArray[np.int64],
    target_start: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64] | int,
) -> Copy:
    """A copy from arrays of any shape."""
    source_start, target_start, size = np.broadcast_arrays(source_start, target_start, length)
    return Copy(
        source,
        target,
        source_start.reshape(-1).astype(np.int64),
        target_start.reshape(-1).astype(np.int64),
        size.reshape(-1).astype(np.int64),
    )


def shift(plan: DynamicPlan, axis: str, variable: Variable, by: int, size: int) -> Copy:
    """Each tile's `size` elements go to the tile `by` partitions further along an axis, in turn."""
    index = "xyz".index(axis)
    count = (plan.x, plan.y, plan.z)[index]
    where = list(coordinates(plan))
    where[index] = (where[index] + by) % count
    ix, iy, iz = where
    target = (iy * plan.z + iz) * plan.x + ix
    return runs(variable, variable, np.arange(plan.tiles) * size, target * size, size)
