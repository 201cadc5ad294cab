"""The product of a layer that multiplies by some of its blocks and gives the gradient of all."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from sparsetile.ops import _check
from sparsetile.ops._activation import activate, activation_name
from sparsetile.ops._autocast import autocast
from sparsetile.ops._autograd import (
    Gradients,
    apply_linear,
    apply_sddmm,
    autograd_rule,
    dispatched,
    rows_of,
)
from sparsetile.ops._linear import Activation
from sparsetile.ops._register import LIBRARY, LINEAR, run_linear, shape_of_linear

_OP = "linear_subset"


def linear_subset(
    x: Float[Tensor, "*batch k"],
    values: Float[Tensor, "nnzb r c"],
    crow_indices: Int[Tensor, " mb1"],
    col_indices: Int[Tensor, " nnzb"],
    blocks: Int[Tensor, " chosen"],
    blocks_crow: Int[Tensor, " mb1"],
    blocks_col: Int[Tensor, " chosen"],
    shape: tuple[int, int],
    bias: Float[Tensor, " m"] | None = None,
    *,
    activation: Activation | None = None,
) -> Float[Tensor, "*batch m"]:
    """Multiply by some of a weight's stored blocks, and give the gradient of all of them.

    The result, and the gradient of x, are those of a weight that has only the chosen blocks. The
    gradient of `values` is `dYᵀ · X` at every stored block: for those left out it is what they
    would get if they took part with the value zero. So it tells which of them should come in, as
    Top-KAST's larger backward set does (Jayakumar et al., NeurIPS 2020).

    Index tensors may be changed in place between calls, compiled ones too, as for
    `linear_from_indices`; their content is trusted.

    Args:
        x: Input `[..., k]`.
        values: All stored blocks of the weight `[nnzb, r, c]`.
        crow_indices: Where each block row of the stored blocks starts, int32 `[ceil(m / r) + 1]`.
        col_indices: Block column of each stored block, int32 `[nnzb]`, ascending in a row.
        blocks: Which of the stored blocks take part, int32 `[chosen]`, ascending.
        blocks_crow: Where each block row of the chosen blocks starts, int32 `[ceil(m / r) + 1]`.
        blocks_col: Block column of each chosen block, int32 `[chosen]`.
        shape: `(m, k)` of the weight.
        bias: Added to the result `[m]`.
        activation: As for `linear`; always a pass of its own.

    Returns:
        `activation(x · Wᵀ + bias)` with the chosen blocks as W, `[..., m]`, in the dtype of x, or
        that of autocast where it is on. It can be differentiated once, in reverse mode.

    Raises:
        TypeError: If an operand has a wrong type or dtype.
        ValueError: If shapes or devices do not fit.

    Examples:
        >>> import torch
        >>> from sparsetile.ops import linear_subset
        >>> crow, col = torch.tensor([0, 2]).int(), torch.tensor([0, 1]).int()  # 1×2 blocks, both
        >>> first, its_crow = torch.tensor([0]).int(), torch.tensor([0, 1]).int()
        >>> values = torch.ones(2, 1, 2, requires_grad=True)
        >>> x = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
        >>> y = linear_subset(x, values, crow, col, first, its_crow, col[first], (1, 4))
        >>> y.item()
        3.0
        >>> y.backward()
        >>> values.grad.tolist()
        [[[1.0, 2.0]], [[3.0, 4.0]]]
    """
    function = activation_name(_OP, activation)
    _check.operands(_OP, {"values": values})
    _check.indices(_OP, values, crow_indices, col_indices, shape)
    _check.is_tensor(_OP, "blocks", blocks)
    if blocks.dtype is not torch.int32 or blocks.dim() != 1:
        raise TypeError(
            f"{_OP}: blocks must be an int32 vector, got {blocks.dtype} of shape "
            f"{list(blocks.shape)}; a mask becomes one by mask.nonzero()[:, 0].int()"
        )
    if blocks.device != values.device:
        raise ValueError(
            f"{_OP}: blocks is on {blocks.device} but values is on {values.device}; all operands "
            "must be on one device: move one with .to()"
        )
    # Only these are cast by autocast, and kept for the backward pass.
    chosen = values.detach().index_select(0, blocks)
    x, chosen, bias = autocast(_OP, ("x", "values"), x, chosen, bias)
    _check.indices(_OP, chosen, blocks_crow, blocks_col, shape)
    m, k = shape
    _check.size(_OP, "x", x, -1, k, "[..., k]")
    args = (x, chosen, blocks_crow, blocks_col, bias, m, k, values, crow_indices, col_indices)
    return activate(dispatched(SubsetProduct, SUBSET, *args), function)


def run(
    x: Tensor,
    chosen: Tensor,
    chosen_crow: Tensor,
    chosen_col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    *stored: Tensor,
) -> Tensor:
    """Compute the product on real tensors; what is `stored` matters to its gradient alone."""
    return run_linear(x, chosen, chosen_crow, chosen_col, bias, m, k, False)


def _like_result(x: Tensor, *rest: Any) -> Tensor:
    """Give what compilers trace: an empty result."""
    chosen, chosen_crow, chosen_col, bias, m, k, *_ = rest
    return x.new_empty(shape_of_linear(x, chosen, chosen_crow, chosen_col, bias, m, k, False))


LIBRARY.define(
    "linear_subset(Tensor x, Tensor chosen, Tensor chosen_crow, Tensor chosen_col, Tensor? bias, "
    "int m, int k, Tensor values, Tensor crow, Tensor col) -> Tensor"
)
LIBRARY.impl(_OP, run, "CompositeExplicitAutograd")
torch.library.register_fake(f"sparsetile::{_OP}", _like_result, lib=LIBRARY)
SUBSET = torch.ops.sparsetile.linear_subset.default


class SubsetProduct(torch.autograd.Function):
    """Y = X · Aᵀ + b; dX multiplies by A, and the sddmm for the values has B's pattern."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Compute the product."""
        x, chosen, chosen_crow, chosen_col, bias, m, k, *_ = args
        with torch._C._AutoDispatchBelowAutograd():
            return LINEAR(x, chosen, chosen_crow, chosen_col, bias, m, k, False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep an operand only if the gradient of the other one is wanted."""
        x, chosen, chosen_crow, chosen_col, _, ctx.m, ctx.k, values, crow, col = inputs
        needs = ctx.needs_input_grad
        (ctx.r, ctx.c), ctx.dtype = values.shape[1:], values.dtype
        ctx.save_for_backward(
            x if needs[7] else None,
            chosen if needs[0] else None,
            chosen_crow,
            chosen_col,
            crow,
            col,
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        """Give dX, db and dvalues."""
        x, chosen, chosen_crow, chosen_col, crow, col = ctx.saved_tensors
        dx = dvalues = dbias = None
        if ctx.needs_input_grad[0]:
            dx = apply_linear(dy, chosen, chosen_crow, chosen_col, None, ctx.m, ctx.k, True)
        if ctx.needs_input_grad[7]:
            dvalues = apply_sddmm(rows_of(dy).t(), rows_of(x), crow, col, ctx.r, ctx.c, False)
            dvalues = dvalues.to(ctx.dtype)
        if ctx.needs_input_grad[4]:
            dbias = rows_of(dy).sum(0)
        return dx, None, None, None, dbias, None, None, dvalues, None, None


autograd_rule(_OP, SubsetProduct, SUBSET, 10)
