"""Brings values to where a static plan wants them, on the host, and back."""

from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.matrix import BSR, COO, CSC, CSR, Pattern
from sparsetile.matrix._check import describe, message
from sparsetile.plan.static._partition import check_plan, partition
from sparsetile.plan.static._plan import StaticPlan

Sparse: TypeAlias = BSR | CSR | CSC | COO
"""A block-sparse matrix in one of the formats that the partitioner takes."""


class StaticPartitioner:
    """Orders the values of a sparse operand as a static plan's tiles hold them, and back.

    It takes values of the pattern that was planned only, as the host partitioner of Graphcore's
    popsparse library (poplibs) does. float32 blocks of 16×16 are kept as two halves of 16×8, which
    is how its kernel reads them.

    Attributes:
        plan: The plan.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan._cost import Cost
        >>> A = BSR.from_dense(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), blocksize=1)
        >>> plan = StaticPlan(
        ...     machine=preset("bow-ipu"), pattern=A.pattern, n=2, dtype="float32",
        ...     preprocess=False, column_starts=(0, 2), split_tiles=(0, 4), band_starts=(0, 1, 2),
        ...     band_tiles=((0, 2, 4),), cost=Cost(()),
        ... )
        >>> partitioner = StaticPartitioner(plan)
        >>> partitioner.place(A)
        array([1., 3., 2., 4.], dtype=float32)
        >>> partitioner.restore(partitioner.place(A)).to_dense()
        tensor([[1., 2.],
                [3., 4.]])
    """

    def __init__(self, plan: StaticPlan) -> None:
        """Order the blocks of the plan's pattern.

        Args:
            plan: How the product is cut.

        Raises:
            TypeError: If it is no static plan.
            ValueError: If the plan does not fit its pattern or its machine.
        """
        check_plan(plan)
        self.plan = plan
        self._partition = partition(plan)

    def place(self, A: Sparse) -> Shaped[np.ndarray, " values"]:
        """Order values as they lie on tiles.

        Args:
            A: The sparse operand, of the plan's pattern. What lies beyond the edge in ragged
                blocks is taken for zero.

        Returns:
            Values in the plan's dtype, block after block in tile order.

        Raises:
            TypeError: If it is no sparse matrix.
            ValueError: If its pattern is not the plan's.
        """
        if not isinstance(A, Sparse):
            allowed = "a BSR, CSR, CSC or COO matrix"
            fix = "convert it with BSR.from_dense or BSR.from_torch"
            raise TypeError(message("A", got=describe(A), allowed=allowed, fix=fix))
        A = A if isinstance(A, BSR) else A.to_bsr()
        self._check(A.pattern)
        values = A.values.detach().cpu().resolve_neg().to(getattr(torch, self.plan.dtype))
        blocks = self._partition.to_tiles(self._within(values))
        return self._halves(blocks).reshape(-1).numpy()

    def restore(self, values: Shaped[np.ndarray, " values"]) -> BSR:
        """Make a matrix of values as they lie on tiles.

        Args:
            values: As `place` returns them.

        Returns:
            The sparse operand, on the CPU.

        Raises:
            ValueError: If there are more or fewer than the plan's pattern stores.
        """
        pattern = self.plan.pattern
        r, c = pattern.blocksize
        if not isinstance(values, np.ndarray) or values.shape != (pattern.nnzb * r * c,):
            raise ValueError(
                message(
                    "values",
                    got=describe(values),
                    allowed=f"a numpy array of [{pattern.nnzb * r * c}], what the pattern stores",
                    fix="pass what place returned",
                )
            )
        blocks = unhalve(torch.from_numpy(values.copy()), r, self.plan.dtype)
        return BSR(self._partition.from_tiles(blocks), pattern.to("cpu"))

    def _check(self, given: Pattern) -> None:
        pattern = self.plan.pattern
        if given != pattern:
            same = given.summary() == pattern.summary()
            raise ValueError(
                message(
                    "A",
                    got=f"a pattern of {given.summary()}{', in other places' if same else ''}",
                    allowed=f"the pattern that was planned, {pattern.summary()}",
                    fix="make a plan for this pattern, or a dynamic one for patterns that change",
                )
            )

    def _within(self, values: Shaped[Tensor, "nnzb r c"]) -> Shaped[Tensor, "nnzb r c"]:
        """Zeros beyond the edge of the matrix, where anything may stand."""
        pattern = self.plan.pattern
        if not pattern.ragged:
            return values
        (m, k), (r, c), (mb, kb) = pattern.shape, pattern.blocksize, pattern.grid
        values = values.clone()
        last_row, last_column = m - (mb - 1) * r, k - (kb - 1) * c
        values[pattern.row_indices.cpu() == mb - 1, last_row:] = 0
        values[pattern.col_indices.cpu() == kb - 1, :, last_column:] = 0
        return values

    def _halves(self, blocks: Shaped[Tensor, "nnzb r c"]) -> Tensor:
        if halved(blocks.shape[1], self.plan.dtype):
            return blocks.reshape(-1, 16, 2, 8).transpose(1, 2)
        return blocks


def halved(b: int, dtype: str) -> bool:
    """Whether tiles keep a block as a left half and a right half."""
    return b == 16 and dtype == "float32"


def unhalve(flat: Shaped[Tensor, " values"], b: int, dtype: str) -> Shaped[Tensor, "nnzb r c"]:
    """Blocks from how tiles keep them."""
    if halved(b, dtype):
        return flat.view(-1, 2, 16, 8).transpose(1, 2).reshape(-1, 16, 16)
    return flat.view(-1, b, b)
