"""The products as torch operators: one per contract, whose back end is chosen on real tensors."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sparsetile.ops import _dispatch
from sparsetile.ops._fit import fit_linear, fit_sddmm, fit_spmm

_SCHEMAS = (
    "linear(Tensor x, Tensor values, Tensor crow, Tensor col, Tensor? bias, "
    "int m, int k, bool transpose) -> Tensor",
    "spmm(Tensor values, Tensor crow, Tensor col, Tensor x, "
    "int m, int k, bool transpose) -> Tensor",
    "sddmm(Tensor a, Tensor b, Tensor crow, Tensor col, int r, int c, bool reduce) -> Tensor",
)
# Alive as long as the process: its death would unregister the operators.
LIBRARY = torch.library.Library("sparsetile", "DEF")
for _schema in _SCHEMAS:
    LIBRARY.define(_schema)


def _kernel(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a function that computes on real tensors, whatever their device."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return function

    return register


def _fake(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a function that gives the shape of the result alone."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        torch.library.register_fake(f"sparsetile::{name}", function, lib=LIBRARY)
        return function

    return register


@_kernel("linear")
def _linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    transpose: bool,
) -> Tensor:
    fit_linear(x, values, crow, col, bias, m, k, transpose)
    _, r, c = values.shape
    module = _dispatch.choose("linear", x.dtype, values.dtype, (r, c), x.device)
    if x.dim() == 2:
        return module.linear(x, values, crow, col, bias, (m, k), transpose)
    *lead, features = x.shape
    flat = x.reshape(math.prod(lead), features)
    y = module.linear(flat, values, crow, col, bias, (m, k), transpose)
    return y.view(*lead, k if transpose else m)


@_kernel("spmm")
def _spmm(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, m: int, k: int, transpose: bool
) -> Tensor:
    fit_spmm(values, crow, col, x, m, k, transpose)
    *lead, rows, n = x.shape
    r, c = values.shape[-2:]
    module = _dispatch.choose("spmm", x.dtype, values.dtype, (r, c), x.device)
    flat = x.reshape(math.prod(lead), rows, n)
    if values.dim() == 3:
        y = module.spmm(values, crow, col, flat, (m, k), transpose)
    else:
        # One matrix for each X (gradients of a batched sddmm, vmap): same pattern, same plan.
        y = x.new_empty(len(flat), k if transpose else m, n)
        matrices = values.reshape(len(flat), *values.shape[-3:])
        for i, matrix in enumerate(matrices):
            y[i] = module.spmm(matrix, crow, col, flat[i : i + 1], (m, k), transpose)[0]
    return y.view(*lead, k if transpose else m, n)


@_kernel("sddmm")
def _sddmm(a: Tensor, b: Tensor, crow: Tensor, col: Tensor, r: int, c: int, reduce: bool) -> Tensor:
    fit_sddmm(a, b, crow, col, r, c)
    *lead, m, t = a.shape
    k = b.shape[-1]
    module = _dispatch.choose("sddmm", a.dtype, a.dtype, (r, c), a.device)
    width = math.prod(lead)
    flat_a, flat_b = a.reshape(width, m, t), b.reshape(width, t, k)
    blocks = module.sddmm(flat_a, flat_b, crow, col, (r, c), reduce)
    return blocks if reduce else blocks.view(*lead, len(col), r, c)


@_fake("linear")
def _linear_shape(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    transpose: bool,
) -> Tensor:
    fit_linear(x, values, crow, col, bias, m, k, transpose)
    return x.new_empty((*x.shape[:-1], k if transpose else m))


@_fake("spmm")
def _spmm_shape(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, m: int, k: int, transpose: bool
) -> Tensor:
    fit_spmm(values, crow, col, x, m, k, transpose)
    return x.new_empty((*x.shape[:-2], k if transpose else m, x.shape[-1]))


@_fake("sddmm")
def _sddmm_shape(
    a: Tensor, b: Tensor, crow: Tensor, col: Tensor, r: int, c: int, reduce: bool
) -> Tensor:
    fit_sddmm(a, b, crow, col, r, c)
    return a.new_empty((*(() if reduce else a.shape[:-2]), col.shape[0], r, c))


LINEAR = torch.ops.sparsetile.linear.default
SPMM = torch.ops.sparsetile.spmm.default
SDDMM = torch.ops.sparsetile.sddmm.default
