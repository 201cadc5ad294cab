"""Masked products executed on tiles."""

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.machine import Profile, run
from sparsetile.plan.masked._check import check_tensor
from sparsetile.plan.masked._plan import MaskedPlan
from sparsetile.plan.masked._program import blocks_of, lower, matrix_of


def run_dsd(
    plan: MaskedPlan, left: Shaped[Tensor, "rows k"], values: Shaped[Tensor, "nnzb r c"]
) -> tuple[Shaped[Tensor, "rows n"], Profile]:
    """Execute dense × sparse → dense.

    Args:
        plan: From `plan_dsd`.
        left: The dense operand, groups one below the other, `[groups · m, k]`.
        values: The stored blocks of the sparse operand, one group after the other.

    Returns:
        The product, `[groups · m, n]`, and what it took.

    Raises:
        TypeError: If the plan is of the wrong type.
        ValueError: If the plan is for another product or an operand does not fit it.
        OutOfTileMemory: If it does not fit; plan with more passes then.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import banded_pattern
        >>> from sparsetile.plan.masked import plan_dsd
        >>> pattern = banded_pattern(32, 32, blocksize=8, lower=0, upper=0)
        >>> plan = plan_dsd(preset("bow-ipu"), pattern, 16, dtype="float32")
        >>> y, profile = run_dsd(plan, torch.ones(16, 32), torch.ones(pattern.nnzb, 8, 8))
        >>> y[0, 0].item(), profile.cycles > 0
        (8.0, True)
    """
    _check_kind(plan, "dsd")
    check_tensor("left", left, (plan.groups * plan.m, plan.k), plan.dtype)
    _check_values(plan, values)
    (bm, bk, bn) = plan.block
    result, profile = _run(
        plan, blocks_of(left.numpy(force=True), (bm, bk)), values.numpy(force=True).reshape(-1)
    )
    return torch.from_numpy(matrix_of(result, (plan.groups * plan.m, plan.n), (bm, bn))), profile


def run_dds(
    plan: MaskedPlan, left: Shaped[Tensor, "rows k"], right: Shaped[Tensor, "_ _"]
) -> tuple[Shaped[Tensor, "nnzb r c"], Profile]:
    """Execute dense × dense → sparse.

    Args:
        plan: From `plan_dds`.
        left: The left operand, groups one below the other, `[groups · m, k]`.
        right: The right operand, `[groups · k, n]`, or `[groups · n, k]` if the plan says that it
            is transposed.

    Returns:
        The stored blocks of the product, one group after the other, and what it took.

    Raises:
        TypeError: If the plan is of the wrong type.
        ValueError: If the plan is for another product or an operand does not fit it.
        OutOfTileMemory: If it does not fit; plan with more passes then.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> from sparsetile.plan.masked import plan_dds
        >>> pattern = causal_pattern(32, 32, blocksize=8)
        >>> plan = plan_dds(preset("bow-ipu"), pattern, 16, dtype="float32", transposed=True)
        >>> scores, profile = run_dds(plan, torch.ones(32, 16), torch.ones(32, 16))
        >>> list(scores.shape), scores[0, 0, 0].item()
        ([10, 8, 8], 16.0)
    """
    _check_kind(plan, "dds")
    check_tensor("left", left, (plan.groups * plan.m, plan.k), plan.dtype)
    wanted, (bm, bk, bn) = (plan.groups * plan.k, plan.n), plan.block
    side = (bk, bn)
    if plan.transposed:
        wanted, side = (plan.groups * plan.n, plan.k), (bn, bk)
    check_tensor("right", right, wanted, plan.dtype)
    result, profile = _run(
        plan,
        blocks_of(left.numpy(force=True), (bm, bk)),
        blocks_of(right.numpy(force=True), side),
    )
    return torch.from_numpy(result.reshape(-1, bm, bn)), profile


def _run(
    plan: MaskedPlan, left: Shaped[np.ndarray, " left"], right: Shaped[np.ndarray, " right"]
) -> tuple[Shaped[np.ndarray, "blocks area"], Profile]:
    lowered = lower(plan)
    program = lowered.program
    done = run(program, dict(zip(program.inputs, (left, right), strict=True)))
    flat = done.values[program.outputs[0]]
    return flat.reshape(-1, plan.sizes[2])[lowered.place], done.profile


def _check_kind(plan: MaskedPlan, kind: str) -> None:
    if not isinstance(plan, MaskedPlan):
        raise TypeError(
            f"run_{kind} was given {plan!r:.80} as a plan; it takes a MaskedPlan: "
            f"make one with plan_{kind}"
        )
    if plan.kind != kind:
        raise ValueError(
            f"run_{kind} was given a plan of kind {plan.kind!r}; it takes kind {kind!r}: "
            f"make one with plan_{kind}, or call run_{plan.kind}"
        )


def _check_values(plan: MaskedPlan, values: Shaped[Tensor, "..."]) -> None:
    shape = (len(plan.stored.row), *plan.patterns[0].blocksize)
    check_tensor("values", values, shape, plan.dtype)
