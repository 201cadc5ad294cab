"""Tiles compute the gradient of the weight at the blocks they find in a bucket."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64, UInt16

from sparsetile.machine import Codelet, Compute, Memory, Variable
from sparsetile.plan.dynamic._accumulate import add_outer_products
from sparsetile.plan.dynamic._own import Own, find_own
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._program import Bucket
from sparsetile.plan.dynamic._work import work

_Tiles = Int64[np.ndarray, " tiles"]


@dataclass(frozen=True, eq=False)
class Operands:
    """The tiles' parts of both dense operands.

    Attributes:
        dy: Gradient of the result.
        x: Dense operand of the forward product.
        transposed: Whether each part is stored column by column, as the multiplying unit wants it.
        id: Id of the subgroup whose rows and columns the parts are.
    """

    dy: Variable
    x: Variable
    transposed: bool
    id: Variable


class MultiplyGradW:
    """The vertices of the gradient of the weight."""

    def __init__(self, plan: DynamicPlan) -> None:
        self._plan = plan
        self._method = plan.methods[2]
        self._last: tuple[UInt16[np.ndarray, "buckets words"], _Tiles, Own] | None = None

    def compute(self, name: str, where: Bucket, operands: Operands) -> Compute:
        """Add to the sums of a bucket what the operands on its tile give.

        Args:
            name: What the superstep is called.
            where: Meta-information and sums of a bucket on each tile.
            operands: What is multiplied.
        """
        plan = self._plan

        def run(memory: Memory) -> None:
            self._add(self._find(memory, where, operands), memory, where, operands)

        def cycles(memory: Memory) -> _Tiles:
            found = self._find(memory, where, operands)
            taken = np.zeros(plan.machine.tiles, np.int64)
            taken[: plan.tiles] = work(plan, self._method, found, np.arange(plan.tiles), plan.tiles)
            return taken

        reads = (*where.variables, operands.dy, operands.x, operands.id)
        return Compute(name, (Codelet(self._method, run, cycles, reads, (where.values,)),))

    def _find(self, memory: Memory, where: Bucket, operands: Operands) -> Own:
        meta = memory[where.meta].reshape(self._plan.tiles, -1)
        wanted = memory[operands.id].astype(np.int64)
        last = self._last
        if last is not None and (last[0] == meta).all() and (last[1] == wanted).all():
            return last[2]
        found = find_own(meta, wanted, self._plan, "fwd")
        self._last = (meta.copy(), wanted, found)
        return found

    def _add(self, found: Own, memory: Memory, where: Bucket, operands: Operands) -> None:
        plan = self._plan
        chosen, entries = found.blocks, found.entries
        high, wide = plan.kernel_block
        tile = found.bucket[entries.subgroup[chosen]]
        at = (tile * plan.bucket_values + entries.value[chosen]) // (high * wide)
        add_outer_products(
            memory[where.values].reshape(-1, high, wide),
            self._rows(memory[operands.dy], operands.transposed),
            self._rows(memory[operands.x], operands.transposed),
            at,
            tile * (plan.x_size // high) + entries.local_row[chosen],
            tile * (plan.y_size // wide) + entries.local_column[chosen],
        )

    def _rows(self, parts: npt.NDArray[np.generic], transposed: bool) -> npt.NDArray[np.generic]:
        """All tiles' parts below each other."""
        z = self._plan.z_size
        if not transposed:
            return parts.reshape(-1, z)
        return parts.reshape(self._plan.tiles, z, -1).transpose(0, 2, 1).reshape(-1, z)
