"""Derivatives of the products: each is again a product, so they have derivatives themselves."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from sparsetile.ops._activation import activate
from sparsetile.ops._register import LIBRARY, LINEAR, SDDMM, SPMM

Gradients = tuple[Tensor | None, ...]


def apply_linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    transpose: bool,
    activation: str = "",
) -> Tensor:
    """Compute x[..., k] · Wᵀ + bias, or x[..., m] · W + bias if `transpose`; differentiable.

    The activation of that name follows: inside the product, or after it where a gradient is wanted.
    """
    args = (x, values, crow, col, bias, m, k, transpose)
    return dispatched(LayerProduct, LINEAR, *args, activation=activation)


def apply_spmm(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, m: int, k: int, transpose: bool
) -> Tensor:
    """Compute W · x[..., k, n], or Wᵀ · x[..., m, n] if `transpose`; differentiable.

    `values` is one matrix `[nnzb, r, c]`, or one for each leading index of x.
    """
    return dispatched(Product, SPMM, values, crow, col, x, m, k, transpose)


def apply_sddmm(
    a: Tensor, b: Tensor, crow: Tensor, col: Tensor, r: int, c: int, reduce: bool
) -> Tensor:
    """Compute the stored blocks of a[..., m, t] · b[..., t, k], summed over `...` if `reduce`."""
    return dispatched(SampledProduct, SDDMM, a, b, crow, col, r, c, reduce)


def dispatched(
    function: type[torch.autograd.Function],
    op: Callable[..., Tensor],
    *args: Any,
    activation: str = "",
) -> Tensor:
    """Call an operator; through its autograd function only where a derivative may be wanted."""
    fused = (activation,) if activation else ()
    if torch.compiler.is_compiling():
        return op(*args, *fused)  # the operator's own autograd rule is traced later
    if differentiates(*args) or torch._C._are_functorch_transforms_active():
        return activate(function.apply(*args), activation)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args, *fused)


def differentiates(*args: Any) -> bool:
    """Whether reverse or forward mode may want a derivative of this call."""
    return forward_ad._current_level >= 0 or (
        torch.is_grad_enabled() and torch._C._any_requires_grad(*args)
    )


def autograd_rule(
    name: str, function: type[torch.autograd.Function], op: Any, arguments: int
) -> None:
    """Make the operator itself differentiable, for compiled and exported graphs.

    An activation may come after its `arguments`.
    """

    def rule(*args: Any) -> Tensor:
        if differentiates(*args):
            return activate(function.apply(*args[:arguments]), *args[arguments:])
        with torch._C._AutoDispatchBelowAutograd():
            return op(*args)

    LIBRARY.impl(name, rule, "Autograd")


class LayerProduct(torch.autograd.Function):
    """Y = X · Wᵀ + b; dX is the product with the other orientation, dW an sddmm."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Compute the product."""
        with torch._C._AutoDispatchBelowAutograd():
            return LINEAR(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep an operand only if the gradient of the other one is wanted."""
        x, values, crow, col, _, ctx.m, ctx.k, ctx.transpose = inputs
        needs = ctx.needs_input_grad
        (ctx.r, ctx.c), ctx.dtype = values.shape[-2:], values.dtype
        ctx.save_for_backward(x if needs[1] else None, values if needs[0] else None, crow, col)
        ctx.save_for_forward(x, values, crow, col)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        """Give dX, dvalues and db."""
        x, values, crow, col = ctx.saved_tensors
        dx = dvalues = dbias = None
        if ctx.needs_input_grad[0]:
            dx = apply_linear(dy, values, crow, col, None, ctx.m, ctx.k, not ctx.transpose)
        if ctx.needs_input_grad[1]:
            a, b = (x, dy) if ctx.transpose else (dy, x)
            dvalues = apply_sddmm(rows_of(a).t(), rows_of(b), crow, col, ctx.r, ctx.c, False)
            dvalues = dvalues.to(ctx.dtype)
        if ctx.needs_input_grad[4]:
            dbias = rows_of(dy).sum(0)
        return dx, dvalues, None, None, dbias, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        """Give the directional derivative: the product is linear in each operand."""
        x, values, crow, col = ctx.saved_tensors
        tx, tvalues, _, _, tbias, *_ = tangents
        rest = (ctx.m, ctx.k, ctx.transpose)
        terms = []
        if tx is not None:
            terms.append(apply_linear(tx, values, crow, col, None, *rest))
        if tvalues is not None:
            terms.append(apply_linear(x, tvalues, crow, col, None, *rest))
        if tbias is not None:
            width = ctx.k if ctx.transpose else ctx.m
            terms.append(tbias.expand(*x.shape[:-1], width))
        return _sum(terms)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        """Batch over x (one product), or over values (one matrix a sample)."""
        x, values, crow, col, bias, m, k, transpose = args
        _refuse_batched_indices("linear", in_dims[2:4])
        x = _front(x, in_dims[0], info.batch_size)
        if in_dims[1] is None and in_dims[4] is None:
            return apply_linear(x, values, crow, col, bias, m, k, transpose), 0
        if in_dims[1] is None:
            y = apply_linear(x, values, crow, col, None, m, k, transpose)
        else:
            *lead, features = x.shape
            values = _front(values, in_dims[1], info.batch_size)
            stacked = x.reshape(lead[0], math.prod(lead[1:]), features).mT
            y = apply_spmm(values, crow, col, stacked, m, k, transpose).mT
            y = y.reshape(*lead, y.shape[-1])
        if bias is not None:
            bias = _front(bias, in_dims[4], info.batch_size)
            y = y + bias.reshape(info.batch_size, *[1] * (y.dim() - 2), bias.shape[-1])
        return y, 0


class Product(torch.autograd.Function):
    """Y = W · X; dX is the product with the other orientation, dW an sddmm."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Compute the product."""
        with torch._C._AutoDispatchBelowAutograd():
            return SPMM(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep an operand only if the gradient of the other one is wanted."""
        values, crow, col, x, ctx.m, ctx.k, ctx.transpose = inputs
        needs = ctx.needs_input_grad
        (ctx.r, ctx.c), ctx.dtype = values.shape[-2:], values.dtype
        ctx.batched = values.dim() > 3
        ctx.save_for_backward(values if needs[3] else None, crow, col, x if needs[0] else None)
        ctx.save_for_forward(values, crow, col, x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Gradients:
        """Give dvalues and dX."""
        values, crow, col, x = ctx.saved_tensors
        dx = dvalues = None
        if ctx.needs_input_grad[3]:
            dx = apply_spmm(values, crow, col, dy, ctx.m, ctx.k, not ctx.transpose)
        if ctx.needs_input_grad[0]:
            a, b = (x, dy) if ctx.transpose else (dy, x)
            dvalues = apply_sddmm(a, b.mT, crow, col, ctx.r, ctx.c, not ctx.batched)
            dvalues = dvalues.to(ctx.dtype)
        return dvalues, None, None, dx, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        """Give the directional derivative: the product is linear in each operand."""
        values, crow, col, x = ctx.saved_tensors
        tvalues, _, _, tx, *_ = tangents
        rest = (ctx.m, ctx.k, ctx.transpose)
        terms = []
        if tvalues is not None:
            terms.append(apply_spmm(tvalues, crow, col, x, *rest))
        if tx is not None:
            terms.append(apply_spmm(values, crow, col, tx, *rest))
        return _sum(terms)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        """Batch over x (one product), or over values (one matrix a sample)."""
        values, crow, col, x, m, k, transpose = args
        _refuse_batched_indices("spmm", in_dims[1:3])
        x = _front(x, in_dims[3], info.batch_size)
        if in_dims[0] is not None or values.dim() > 3:
            values = _front(values, in_dims[0], info.batch_size)
            if values.dim() == 4:
                values = values.reshape(len(values), *[1] * (x.dim() - 3), *values.shape[1:])
            values = values.expand(*x.shape[:-2], *values.shape[-3:])
        return apply_spmm(values, crow, col, x, m, k, transpose), 0


class SampledProduct(torch.autograd.Function):
    """S = blocks of A · B; dA = dS · Bᵀ and dB = Aᵀ · dS, both products with sparse dS."""

    @staticmethod
    def forward(*args: Any) -> Tensor:
        """Compute the blocks."""
        with torch._C._AutoDispatchBelowAutograd():
            return SDDMM(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep an operand only if the gradient of the other one is wanted."""
        a, b, crow, col, ctx.r, ctx.c, ctx.reduce = inputs
        needs = ctx.needs_input_grad
        ctx.m, ctx.k = a.shape[-2], b.shape[-1]
        ctx.save_for_backward(a if needs[1] else None, b if needs[0] else None, crow, col)
        ctx.save_for_forward(a, b, crow, col)

    @staticmethod
    def backward(ctx: Any, ds: Tensor) -> Gradients:
        """Give dA and dB."""
        a, b, crow, col = ctx.saved_tensors
        da = db = None
        if ctx.needs_input_grad[0]:
            da = apply_spmm(ds, crow, col, b.mT, ctx.m, ctx.k, False)
        if ctx.needs_input_grad[1]:
            db = apply_spmm(ds, crow, col, a, ctx.m, ctx.k, True).mT
        return da, db, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        """Give the directional derivative: the product is linear in each operand."""
        a, b, crow, col = ctx.saved_tensors
        ta, tb, *_ = tangents
        rest = (crow, col, ctx.r, ctx.c, ctx.reduce)
        terms = []
        if ta is not None:
            terms.append(apply_sddmm(ta, b, *rest))
        if tb is not None:
            terms.append(apply_sddmm(a, tb, *rest))
        return _sum(terms)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Tensor, int]:
        """Batch over the operands: a batched product."""
        a, b, crow, col, r, c, reduce = args
        _refuse_batched_indices("sddmm", in_dims[2:4])
        a = _front(a, in_dims[0], info.batch_size)
        b = _front(b, in_dims[1], info.batch_size)
        if reduce:  # the sum over the other leading dimensions is a longer sum over t
            a, b = a.mT.flatten(1, -2).mT, b.flatten(1, -2)
        return apply_sddmm(a, b, crow, col, r, c, False), 0


autograd_rule("linear", LayerProduct, LINEAR, 8)
autograd_rule("spmm", Product, SPMM, 7)
autograd_rule("sddmm", SampledProduct, SDDMM, 7)


def rows_of(x: Tensor) -> Tensor:
    """Flatten all dimensions but the last."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _front(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Move the batch dimension to the front, or make one."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _sum(terms: list[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _refuse_batched_indices(op: str, dims: tuple[Any, ...]) -> None:
    if any(dim is not None for dim in dims):
        raise ValueError(
            f"{op}: torch.func.vmap over crow_indices or col_indices was asked for; only the "
            "floating operands can be batched, the pattern is shared: use in_dims=None for it"
        )
