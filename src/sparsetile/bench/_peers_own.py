"""This library's products as the benchmark calls them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sparsetile.bench._bench_case import CannotError, Operands
from sparsetile.bench._peers import Call
from sparsetile.matrix import Pattern
from sparsetile.nn import Linear
from sparsetile.ops import last_kernel, linear, sddmm, spmm


def prepare(name: str, given: Operands) -> Call:
    """Make this library's call of a case."""
    op, (dense, stored) = given.case.op, given.case.formats
    if stored != dense and op not in ("linear", "dx", "spmm"):
        raise CannotError("mixed dtypes are for inference")
    if op == "train-step":
        layer = Linear(given.case.k, given.case.m, bias=False, pattern=given.pattern, dtype=dense)
        with torch.no_grad():
            layer.values.copy_(given.values)
        return Call(train_step(layer, given), lambda found: found, "", kernel_of=last_kernel)
    run = sparse_call(op, given.pattern, given.x, given.values, given.g, given.xt, given.gt)
    return Call(run, lambda found: _feature_major(op, found), "", kernel_of=last_kernel)


def sparse_call(
    op: str,
    pattern: Pattern,
    x: Tensor,
    values: Tensor,
    g: Tensor,
    xt: Tensor | None = None,
    gt: Tensor | None = None,
) -> Callable[[], Any]:
    """Give the call of one product.

    Args:
        op: One of `_bench_case.OPS` but `train-step`.
        pattern: Of the weight.
        x: Input `[n, k]`.
        values: Stored blocks of the weight.
        g: Gradient of the output `[n, m]`.
        xt: For `spmm`, the input as `[k, n]`.
        gt: For `sddmm`, the left factor as `[m, n]`.

    Returns:
        The call; it returns a tensor, or both gradients for `linear+grad`.
    """
    if op == "dx":
        indices = (pattern.crow_indices, pattern.col_indices)
        return lambda: torch.ops.sparsetile.linear(g, values, *indices, None, *pattern.shape, True)
    if op == "dvalues":
        return lambda: sddmm(g.t(), x, pattern)
    if op == "spmm" and xt is not None:
        return lambda: spmm(values, pattern, xt)
    if op == "sddmm" and gt is not None:
        return lambda: sddmm(gt, x, pattern)
    if op == "linear+grad":
        return both_gradients(lambda x, w: linear(x, w, pattern), x, values, g)
    return lambda: linear(x, values, pattern)


def both_gradients(
    product: Callable[[Tensor, Tensor], Tensor], x: Tensor, w: Tensor, g: Tensor
) -> Callable[[], Any]:
    """Give the call that computes a product and the gradients of both its operands."""
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    return lambda: torch.autograd.grad(product(x, w), (x, w), g)


def train_step(layer: torch.nn.Module, given: Operands) -> Callable[[], tuple[Tensor, Tensor]]:
    """Give the call that trains a layer of one weight by one step of AdamW.

    The call returns the gradient of the input `[k, n]` and that of the weight.
    """
    (weight,) = layer.parameters()
    x = given.x.clone().requires_grad_()
    optimizer = torch.optim.AdamW([weight], lr=1e-4, fused=True)

    def step() -> tuple[Tensor, Tensor]:
        x.grad = None
        optimizer.zero_grad()
        layer(x).backward(given.g)
        optimizer.step()
        assert x.grad is not None and weight.grad is not None
        return x.grad.t(), weight.grad

    return step


def _feature_major(op: str, found: Any) -> tuple[Tensor, ...]:
    if op == "linear+grad":
        dx, blocks = found
        return dx.t(), blocks
    return (found.t() if op in ("linear", "dx") else found,)
