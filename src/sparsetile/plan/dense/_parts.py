"""How a dense matrix lies on tiles that share its parts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64, Shaped

from sparsetile.machine import Copy, MachineSpec, Variable, even_counts


@dataclass(frozen=True, eq=False)
class Parts:
    """A matrix cut into equal parts, each of which lies in equal shares on some tiles.

    A part is stored block by block, a block row by row; where rows or columns are short it is
    filled up with zeros.

    Attributes:
        machine: The machine.
        shape: Rows and columns of the matrix.
        size: Rows and columns of a part, multiples of those of a block.
        block: Rows and columns of a block.
        tiles: The tiles that share each part, rows of parts outermost, `[parts, sharers]`.
        grain: Elements of a part that stay together.

    Examples:
        >>> from dataclasses import replace
        >>> from sparsetile.machine import preset
        >>> four = replace(preset("bow-ipu"), tiles=4)
        >>> parts = Parts(four, (2, 4), (2, 2), (1, 1), np.array([[0, 1], [2, 3]]))
        >>> home = parts.home("matrix", "int64")
        >>> parts.arrange(np.arange(8).reshape(2, 4), home).tolist()  # two numbers on each tile
        [0, 1, 4, 5, 2, 3, 6, 7]
    """

    machine: MachineSpec
    shape: tuple[int, int]
    size: tuple[int, int]
    block: tuple[int, int]
    tiles: Int64[np.ndarray, "parts sharers"]
    grain: int = 1

    @property
    def area(self) -> int:
        """Elements of a part."""
        return self.size[0] * self.size[1]

    @property
    def sharers(self) -> int:
        """Tiles that share a part."""
        return int(self.tiles.shape[1])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of parts."""
        (rows, columns), (high, wide) = self.shape, self.size
        return -(-rows // high), -(-columns // wide)

    @cached_property
    def bounds(self) -> list[tuple[int, int]]:
        """Where each share of a part begins and ends."""
        ends = np.cumsum(even_counts(self.area, self.sharers, self.grain)).tolist()
        return list(pairwise([0, *ends]))

    def home(self, name: str, dtype: str) -> Variable:
        """Memory for the shares."""
        counts = np.zeros(self.machine.tiles, np.int64)
        counts[self.tiles] = [end - begin for begin, end in self.bounds]
        return Variable(name, np.dtype(dtype), counts)

    def whole(self, name: str, dtype: str) -> Variable:
        """Memory for whole parts, on all tiles that share them."""
        counts = np.zeros(self.machine.tiles, np.int64)
        counts[self.tiles] = self.area
        return Variable(name, np.dtype(dtype), counts)

    def cut(self, matrix: Shaped[np.ndarray, "rows columns"]) -> Shaped[np.ndarray, "parts area"]:
        """The parts of a matrix."""
        (down, along), (high, wide), (r, c) = self.grid, self.size, self.block
        full = np.zeros((down * high, along * wide), matrix.dtype)
        full[: self.shape[0], : self.shape[1]] = matrix
        cut = full.reshape(down, high // r, r, along, wide // c, c)
        return cut.transpose(0, 3, 1, 4, 2, 5).reshape(-1, self.area)

    def join(self, parts: Shaped[np.ndarray, "parts area"]) -> Shaped[np.ndarray, "rows columns"]:
        """The matrix with these parts."""
        (down, along), (high, wide), (r, c) = self.grid, self.size, self.block
        cut = parts.reshape(down, along, high // r, wide // c, r, c).transpose(0, 2, 4, 1, 3, 5)
        return cut.reshape(down * high, along * wide)[: self.shape[0], : self.shape[1]]

    def shares(
        self, variable: Variable, times: int = 1
    ) -> Iterator[tuple[int, int, Int64[np.ndarray, "parts length"]]]:
        """Each share's begin and end in its part, and where its elements lie on each tile.

        Of a variable that has a number of things for each element, all of them.
        """
        for share, (begin, end) in enumerate(self.bounds):
            start = variable.offsets[self.tiles[:, share]]
            yield begin, end, start[:, None] + np.arange((end - begin) * times)

    def arrange(
        self, matrix: Shaped[np.ndarray, "rows columns"], home: Variable
    ) -> npt.NDArray[np.generic]:
        """The flat data of a matrix that lies in its home."""
        parts = self.cut(matrix)
        flat = np.zeros(home.size, matrix.dtype)
        for begin, end, where in self.shares(home):
            flat[where] = parts[:, begin:end]
        return flat

    def collect(
        self, flat: npt.NDArray[np.generic], home: Variable
    ) -> Shaped[np.ndarray, "rows columns"]:
        """The matrix that lies in its home."""
        parts = np.empty((len(self.tiles), self.area), flat.dtype)
        for begin, end, where in self.shares(home):
            parts[:, begin:end] = flat[where]
        return self.join(parts)

    def share_out(self, home: Variable, whole: Variable) -> Copy:
        """Every share goes to all tiles that share the part."""
        source = home.offsets[self.tiles][:, None, :]
        begin = np.array([begin for begin, _ in self.bounds], np.int64)
        end = np.array([end for _, end in self.bounds], np.int64)
        target = whole.offsets[self.tiles][:, :, None] + begin
        return _copy(home, whole, source, target, end - begin)

    def bring_together(self, whole: Variable, gathered: Variable) -> Copy:
        """Each tile gets its share of what all tiles that share the part have of it, in order."""
        begin = np.array([begin for begin, _ in self.bounds], np.int64)
        length = np.array([end for _, end in self.bounds], np.int64) - begin
        sources = whole.offsets[self.tiles][:, :, None] + begin
        order = np.arange(self.sharers)[:, None] * length
        target = gathered.offsets[self.tiles][:, None, :] + order
        return _copy(whole, gathered, sources, target, length)

    def gathered(self, name: str, dtype: str) -> Variable:
        """Memory for a tile's share of what all tiles that share a part have of it."""
        counts = np.zeros(self.machine.tiles, np.int64)
        counts[self.tiles] = [(end - begin) * self.sharers for begin, end in self.bounds]
        return Variable(name, np.dtype(dtype), counts)

    def deliver(
        self, source: Variable, where: Int64[np.ndarray, "rows columns"], whole: Variable
    ) -> Copy:
        """Whole parts are put together from wherever the elements of the matrix lie.

        `where` has the place of each element in the source's flat data.
        """
        place = self.cut(where + 1) - 1  # what fills a part up is nowhere
        new = np.ones(place.shape, bool)
        new[:, 1:] = place[:, 1:] != place[:, :-1] + 1
        meets = np.zeros(source.size + 1, bool)
        meets[source.offsets] = True
        new |= meets[place]
        new |= place < 0
        part, begin = np.nonzero(new)
        ends = np.append(begin[1:], self.area)
        ends[np.append(part[1:] != part[:-1], True)] = self.area
        start = place[part, begin]
        real = start >= 0
        part, begin, start, length = (array[real] for array in (part, begin, start, ends - begin))
        target = whole.offsets[self.tiles[part]] + begin[:, None]
        return _copy(source, whole, start[:, None], target, length[:, None])

    def missing(self) -> Int64[np.ndarray, " tiles"]:
        """Elements that fill up the part of each tile."""
        real = (self.cut(np.ones(self.shape, bool)) == 0).sum(1)
        counts = np.zeros(self.machine.tiles, np.int64)
        counts[self.tiles] = real[:, None]
        return counts


def _copy(
    source: Variable,
    target: Variable,
    source_start: npt.NDArray[np.int64],
    target_start: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64],
) -> Copy:
    arrays = np.broadcast_arrays(source_start, target_start, length)
    return Copy(source, target, *(np.ascontiguousarray(a).reshape(-1) for a in arrays))
