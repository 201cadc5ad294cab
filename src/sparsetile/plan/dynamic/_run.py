"""Products executed on the tile machine."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparsetile.machine import Profile, Variable, run
from sparsetile.matrix._check import check_dense, message
from sparsetile.plan.dynamic._check_operand import check_encoded
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._layout import overflow_words
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._program import DynamicProgram
from sparsetile.plan.dynamic._program_grad_w import grad_w_program
from sparsetile.plan.dynamic._program_product import product_program
from sparsetile.plan.dynamic._spread import Spread

Pass = Literal["fwd", "grad_a", "grad_w"]
_OPERANDS = {"fwd": ("x",), "grad_a": ("dy",), "grad_w": ("dy", "x")}
_WITHOUT = {"grad_a": "grad_a", "grad_w": "grad_w"}


def dynamic_program(plan: DynamicPlan, pass_: Pass = "fwd") -> DynamicProgram:
    """The program of a plan for one pass, made once and then kept.

    Args:
        plan: The plan.
        pass_: `"fwd"` for W·x, `"grad_a"` for Wᵀ·dy, `"grad_w"` for dy·xᵀ at the stored blocks.

    Returns:
        The program. It is the same for every pattern that is encoded for the plan.

    Raises:
        ValueError: If there is no such pass, or the plan was not made for it.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> made = dynamic_program(small_plan())
        >>> sorted(made.inputs), made.output.name
        (['meta', 'overflow', 'values', 'x'], 'y')
    """
    if not isinstance(pass_, str) or pass_ not in _OPERANDS:
        raise ValueError(
            message(
                "pass_",
                got=repr(pass_),
                allowed=", ".join(map(repr, _OPERANDS)),
                fix="choose one of them",
            )
        )
    options = plan.options
    planned = {"fwd": True, "grad_a": options.grad_a, "grad_w": options.grad_w}
    if not planned[pass_]:
        raise ValueError(
            message(
                "pass_",
                got=repr(pass_),
                allowed=", ".join(repr(name) for name, there in planned.items() if there)
                + ", which the plan was made for",
                fix=f"plan with the option {pass_}=True",
            )
        )
    return grad_w_program(plan) if pass_ == "grad_w" else product_program(plan, pass_)


def run_dynamic(
    plan: DynamicPlan, encoded: Encoded, *operands: Tensor, pass_: Pass = "fwd"
) -> tuple[Tensor, Profile]:
    """Execute a product on the plan's machine, tile by tile.

    How often buckets travelled shows in the profile: the phase "Propagation compute" ran
    `propagation_steps(encoded)` times.

    Args:
        plan: The plan.
        encoded: The sparse operand W, encoded for that plan.
        *operands: The dense operands: `x[k, n]` for the forward product, `dy[m, n]` for the
            gradient of x, `dy` and `x` for the gradient of W.
        pass_: `"fwd"` for W·x, `"grad_a"` for Wᵀ·dy, `"grad_w"` for dy·xᵀ at the stored blocks.

    Returns:
        `y[m, n]`, `dx[k, n]`, or the gradient of `encoded.values`, laid out like these, which
        `decode_values` brings into the order of the matrix; and a profile. Their dtype is the
        plan's.

    Raises:
        ValueError: If the plan was not made for the pass, if `encoded` was made for another plan,
            if its meta-information is corrupt, or if an operand is sparse or of a wrong size.
        TypeError: If the plan or `encoded` is none, or an operand is no tensor or of another dtype
            than the plan's.
        OutOfTileMemory: If the program does not fit in the tiles' memory.

    Examples:
        >>> import torch
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> plan = small_plan()
        >>> y, profile = run_dynamic(plan, encode(plan, small_matrix()), torch.ones(8, 2))
        >>> bool((y == 1).all()), profile.program
        (True, 'dynamic fwd 8×8×2')
    """
    check_encoded(plan, encoded)
    made = dynamic_program(plan, pass_)
    _check_operands(plan, pass_, operands)
    data = _sparse_data(plan, encoded, pass_, made)
    for name, operand in zip(_OPERANDS[pass_], operands, strict=True):
        spread = Spread(plan, "x" if name == "dy" else "y")
        data[made.inputs[name]] = spread.arrange(operand.numpy(force=True))
    result = run(made.program, data)
    flat = result.values[made.output]
    if pass_ != "grad_w":
        rows = plan.m if pass_ == "fwd" else plan.k
        flat = Spread(plan, "x" if pass_ == "fwd" else "y").collect(flat, rows)
    return torch.from_numpy(flat), result.profile


def _sparse_data(
    plan: DynamicPlan, encoded: Encoded, pass_: Pass, made: DynamicProgram
) -> dict[Variable, npt.NDArray[np.generic]]:
    """What the tiles hold of the sparse operand."""
    separate = pass_ == "grad_a" and plan.methods[1] == "GradA"
    words = encoded.meta_buckets_grad_a if separate else encoded.meta_buckets
    held: Mapping[str, npt.NDArray[np.generic]] = {
        "meta": np.ascontiguousarray(words).reshape(-1),
        "values": encoded.values,
        "overflow": encoded.meta[: overflow_words(plan)],
    }
    return {made.inputs[name]: array for name, array in held.items() if name in made.inputs}


def _check_operands(plan: DynamicPlan, pass_: Pass, operands: tuple[Tensor, ...]) -> None:
    """Refuse operands that the plan was not made for."""
    names = _OPERANDS[pass_]
    if len(operands) != len(names):
        raise ValueError(
            message(
                "operands",
                got=f"{len(operands)} of them",
                allowed=f"{' and '.join(names)} for {pass_!r}",
                fix="pass these",
            )
        )
    for name, operand in zip(names, operands, strict=True):
        check_dense(name, operand, dtype=getattr(torch, plan.dtype))
        shape = (plan.m if name == "dy" else plan.k, plan.n)
        if tuple(operand.shape) != shape:
            raise ValueError(
                message(
                    name,
                    got=f"shape {tuple(operand.shape)}",
                    allowed=f"{shape}, as planned",
                    fix="plan for this size, or pass an operand of the planned one",
                )
            )
