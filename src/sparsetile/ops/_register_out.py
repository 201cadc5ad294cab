"""The products into a given tensor: operators of their own, which compute no gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from sparsetile.ops._autograd import differentiates
from sparsetile.ops._out import apart, fit_out, plain
from sparsetile.ops._register import (
    LIBRARY,
    SCHEMAS,
    Shape,
    run_linear,
    run_sddmm,
    run_spmm,
    shape_of_linear,
    shape_of_sddmm,
    shape_of_spmm,
)


def into(op: str, out: Tensor, *args: Any) -> Tensor:
    """Compute the product of that name into `out`, and return `out`."""
    if not torch.compiler.is_compiling():
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                f"{op}: out was given inside a transform of torch.func, which would not see it "
                "written; call without out there"
            )
        plain(op, out)
    getattr(torch.ops.sparsetile, f"{op}_out").default(*args, out=out)
    return out


def _register(
    op: str,
    run: Callable[..., Tensor],
    shape_of: Callable[..., Shape],
    operands: tuple[str, ...],
    like: str,
) -> None:
    """Make `<op>_out` of the function that computes the product.

    Args:
        op: Name of the product.
        run: Computes it on real tensors, into its last argument.
        shape_of: Checks the operands and gives the shape of the result.
        operands: The tensors among the arguments: names in their order.
        like: The operand whose dtype and device the result has.
    """
    (schema,) = (schema for schema in SCHEMAS if schema.startswith(f"{op}("))
    signature = schema.removeprefix(op).removesuffix(") -> Tensor")
    LIBRARY.define(f"{op}_out{signature}, *, Tensor(a!) out) -> ()")
    where = operands.index(like)

    def check(*args: Any, out: Tensor) -> None:
        fit_out(op, out, shape_of(*args), args[where])

    def compute(*args: Any, out: Tensor) -> None:
        check(*args, out=out)
        apart(op, out, dict(zip(operands, args, strict=False)))
        run(*args, out=out)

    def rule(*args: Any, out: Tensor) -> None:
        if differentiates(*args, out):
            raise RuntimeError(
                f"{op}: out was given, but an argument requires grad; products into a given "
                "tensor have no gradient: call without out, or under torch.no_grad()"
            )
        increment_version(out)  # what was saved of it for a backward pass is gone
        with torch._C._AutoDispatchBelowAutograd():
            operator(*args, out=out)

    LIBRARY.impl(f"{op}_out", compute, "CompositeExplicitAutograd")
    LIBRARY.impl(f"{op}_out", rule, "Autograd")
    torch.library.register_fake(f"sparsetile::{op}_out", check, lib=LIBRARY)
    operator = getattr(torch.ops.sparsetile, f"{op}_out").default


_register("linear", run_linear, shape_of_linear, ("x", "values", "crow", "col", "bias"), "x")
_register("spmm", run_spmm, shape_of_spmm, ("values", "crow", "col", "x"), "x")
_register("sddmm", run_sddmm, shape_of_sddmm, ("a", "b", "crow", "col"), "a")
