"""Tiles multiply what they find in buckets with their part of the dense operand."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64, UInt16

from sparsetile.machine import Codelet, Compute, Memory, Variable
from sparsetile.plan.dynamic._accumulate import add_products
from sparsetile.plan.dynamic._own import Own, find_own
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._program import Bucket
from sparsetile.plan.dynamic._scan import Which
from sparsetile.plan.dynamic._spread import coordinates
from sparsetile.plan.dynamic._work import work

_Tiles = Int64[np.ndarray, " tiles"]


@dataclass(frozen=True, eq=False)
class _Piece:
    """Some tiles with equally many buckets each, tile after tile."""

    tiles: _Tiles
    meta: UInt16[np.ndarray, "buckets words"]
    values: npt.NDArray[np.generic]

    @property
    def local(self) -> Int64[np.ndarray, " buckets"]:
        """Which of the piece's tiles each bucket lies on."""
        return np.arange(len(self.tiles)).repeat(len(self.meta) // len(self.tiles))


class Multiply:
    """The vertices of the forward product or of the gradient of its dense operand.

    Attributes:
        shared: Whether they read the forward product's words.
    """

    def __init__(self, plan: DynamicPlan, pass_: str) -> None:
        self._plan = plan
        self._forward = pass_ == "fwd"
        self._method = plan.methods[0 if self._forward else 1]
        self.shared = self._method != "GradA"
        self._which: Which = "fwd" if self.shared else "grad_a"
        ix, iy, _ = coordinates(plan)
        self._id = ix * plan.y + iy + 1
        # The words read last, with what was found: batch partitions hold the same buckets.
        self._last: tuple[UInt16[np.ndarray, "buckets words"], _Tiles, Own] | None = None

    def distributed(self, own: Bucket, others: Bucket, dense: Variable, sums: Variable) -> Compute:
        """Multiply all buckets of a row and column partition."""

        def pieces(memory: Memory) -> Iterator[_Piece]:
            _, _, iz = coordinates(self._plan)
            for at in range(self._plan.z):
                tiles = np.flatnonzero(iz == at)
                meta, values = (
                    self._cell(memory[a], memory[b], tiles, at)
                    for a, b in zip(own.variables, others.variables, strict=True)
                )
                yield _Piece(tiles, meta, values)

        reads = (*own.variables, *others.variables)
        return self._compute("Distribution compute", pieces, reads, dense, sums)

    def propagated(self, travelling: Bucket, dense: Variable, sums: Variable) -> Compute:
        """Multiply the bucket that has come to each tile."""

        def pieces(memory: Memory) -> Iterator[_Piece]:
            meta, values = (memory[v].reshape(self._plan.tiles, -1) for v in travelling.variables)
            yield _Piece(np.arange(self._plan.tiles), meta, values)

        return self._compute("Propagation compute", pieces, travelling.variables, dense, sums)

    def _cell(
        self,
        own: npt.NDArray[np.generic],
        others: npt.NDArray[np.generic],
        tiles: _Tiles,
        iz: int,
    ) -> npt.NDArray[np.generic]:
        """Buckets of some tiles of one batch partition, those of batch partition 0 first."""
        plan = self._plan
        first = own.reshape(plan.tiles, 1, -1)[tiles]
        rest = others.reshape(plan.tiles, plan.z - 1, first.shape[2])[tiles]
        ring = np.concatenate((first, rest), axis=1)
        return np.roll(ring, iz, axis=1).reshape(-1, first.shape[2])

    def _compute(
        self,
        name: str,
        pieces: Callable[[Memory], Iterator[_Piece]],
        reads: tuple[Variable, ...],
        dense: Variable,
        sums: Variable,
    ) -> Compute:
        plan = self._plan

        def run(memory: Memory) -> None:
            for piece in pieces(memory):
                self._add(piece, memory[dense], memory[sums])

        def cycles(memory: Memory) -> _Tiles:
            taken = np.zeros(plan.machine.tiles, np.int64)
            for piece in pieces(memory):
                found = self._find(piece)
                count = len(piece.tiles)
                taken[piece.tiles] = work(plan, self._method, found, piece.local, count)
            return taken

        codelet = Codelet(self._method, run, cycles, (*reads, dense, sums), (sums,))
        return Compute(name, (codelet,))

    def _find(self, piece: _Piece) -> Own:
        wanted = self._id[piece.tiles][piece.local]
        last = self._last
        if last is not None and _same(last[0], piece.meta) and _same(last[1], wanted):
            return last[2]
        found = find_own(piece.meta, wanted, self._plan, self._which)
        self._last = (piece.meta.copy(), wanted, found)
        return found

    def _add(
        self,
        piece: _Piece,
        dense: npt.NDArray[np.generic],
        sums: npt.NDArray[np.generic],
    ) -> None:
        plan, z = self._plan, self._plan.z_size
        found = self._find(piece)
        chosen = found.blocks
        entries = found.entries
        high, wide = plan.kernel_block
        to, of = entries.local_row[chosen], entries.local_column[chosen]
        rows, columns = plan.x_size // high, plan.y_size // wide
        if not self._forward:
            high, wide, to, of, rows, columns = wide, high, of, to, columns, rows
        bucket = found.bucket[entries.subgroup[chosen]]
        tile = piece.tiles[piece.local[bucket]]
        to, of = to + tile * rows, of + tile * columns
        order = np.argsort(to, kind="stable")
        at = (bucket * plan.bucket_values + entries.value[chosen]) // (high * wide)
        blocks = piece.values.reshape(-1, high, wide)[at[order]]
        add_products(sums.reshape(-1, z), dense.reshape(-1, z), to[order], of[order], blocks)


def _same(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> bool:
    return a.shape == b.shape and bool((a == b).all())
