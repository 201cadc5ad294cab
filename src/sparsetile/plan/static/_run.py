"""Static products of real operands on the tile machine."""

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.machine import Profile, run
from sparsetile.matrix import BSR, Pattern
from sparsetile.matrix._check import check_dense, describe, message
from sparsetile.plan.static._partition import check_plan
from sparsetile.plan.static._partitioner import Sparse, StaticPartitioner
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._program import static_program


def run_static(
    plan: StaticPlan, A: Sparse | Shaped[Tensor, "nnzb r c"], x: Shaped[Tensor, "k n"]
) -> tuple[Shaped[Tensor, "m n"], Profile]:
    """Multiply a sparse matrix with a dense one as a static plan says, tile by tile.

    Products are added in float32. Partial sums are stored in the plan's dtype, each rounded once;
    so is the result.

    Args:
        plan: How the product is cut.
        A: The sparse operand, of the plan's pattern, or its blocks.
        x: The dense operand, in the plan's dtype.

    Returns:
        The product in the plan's dtype, on the CPU, and what it took.

    Raises:
        TypeError: If the plan or an operand is of the wrong type.
        ValueError: If operands do not fit the plan, or the plan its machine.
        OutOfTileMemory: If a tile would need more memory than it has.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan._cost import Cost
        >>> A = BSR.from_dense(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), blocksize=1)
        >>> plan = StaticPlan(
        ...     machine=preset("bow-ipu"), pattern=A.pattern, n=2, dtype="float32",
        ...     preprocess=False, column_starts=(0, 2), split_tiles=(0, 4), band_starts=(0, 1, 2),
        ...     band_tiles=((0, 2, 4),), cost=Cost(()),
        ... )
        >>> y, profile = run_static(plan, A, torch.eye(2))
        >>> y
        tensor([[1., 2.],
                [3., 4.]])
        >>> [phase.name for phase in profile.phases if phase.kind == "compute"]
        ['Rearrangement', 'Order of values', 'Multiply', 'Reduction']
    """
    check_plan(plan)
    pattern, made = plan.pattern, static_program(plan)
    _check_x(plan, x, (pattern.shape[1], plan.n), "[k, n]")
    values = StaticPartitioner(plan).place(_sparse(A, pattern))
    flat = x.numpy(force=True).reshape(-1)
    result = run(made.program, {made.x: flat, made.values: values})
    y = np.asarray(result.values[made.y]).reshape(pattern.shape[0], plan.n)
    return torch.from_numpy(y), result.profile


def run_static_dense_sparse(
    plan: StaticPlan, x: Shaped[Tensor, "n m"], A: Sparse | Shaped[Tensor, "nnzb r c"]
) -> tuple[Shaped[Tensor, "n k"], Profile]:
    """Multiply a dense matrix with a sparse one, as the transposed product of their transposes.

    Transposing the dense operand and the result only renames their dimensions.

    Args:
        plan: How the product of the transposed sparse operand is cut: its pattern is `A.pattern.T`.
        x: The dense operand, in the plan's dtype.
        A: The sparse operand, or its blocks.

    Returns:
        The product in the plan's dtype, on the CPU, and what it took.

    Raises:
        TypeError: If the plan or an operand is of the wrong type.
        ValueError: If operands do not fit the plan, or the plan its machine.
        OutOfTileMemory: If a tile would need more memory than it has.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan._cost import Cost
        >>> A = BSR.from_dense(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), blocksize=1)
        >>> plan = StaticPlan(
        ...     machine=preset("bow-ipu"), pattern=A.pattern.T, n=1, dtype="float32",
        ...     preprocess=False, column_starts=(0, 2), split_tiles=(0, 4), band_starts=(0, 1, 2),
        ...     band_tiles=((0, 2, 4),), cost=Cost(()),
        ... )
        >>> run_static_dense_sparse(plan, torch.tensor([[1.0, 1.0]]), A)[0]
        tensor([[4., 6.]])
    """
    check_plan(plan)
    _check_x(plan, x, (plan.n, plan.pattern.shape[1]), "[n, m]")
    y, profile = run_static(plan, _sparse(A, plan.pattern.T).T, x.T)
    return y.T, profile


def _sparse(A: Sparse | Tensor, pattern: Pattern) -> Sparse:
    return BSR(A, pattern.to(A.device)) if isinstance(A, Tensor) else A


def _check_x(plan: StaticPlan, x: Tensor, shape: tuple[int, int], names: str) -> None:
    check_dense("x", x, dtype=getattr(torch, plan.dtype))
    if tuple(x.shape) != shape:
        raise ValueError(
            message(
                "x",
                got=describe(x),
                allowed=f"{names} = {list(shape)}, as planned",
                fix="make a plan for this size",
            )
        )
