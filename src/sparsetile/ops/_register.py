"""The products as torch operators: one per contract, whose back end is chosen on real tensors."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sparsetile.ops import _dispatch
from sparsetile.ops._fit import fit_linear, fit_sddmm, fit_spmm
from sparsetile.ops._tap import WATCHED

Shape = tuple[int, ...]
SCHEMAS = (
    "linear(Tensor x, Tensor values, Tensor crow, Tensor col, Tensor? bias, "
    "int m, int k, bool transpose, str activation='') -> Tensor",
    "spmm(Tensor values, Tensor crow, Tensor col, Tensor x, "
    "int m, int k, bool transpose) -> Tensor",
    "sddmm(Tensor a, Tensor b, Tensor crow, Tensor col, int r, int c, bool reduce) -> Tensor",
)
# Alive as long as the process: its death would unregister the operators.
LIBRARY = torch.library.Library("sparsetile", "DEF")
for _schema in SCHEMAS:
    LIBRARY.define(_schema)


def _kernel(name: str) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a function that computes on real tensors, whatever their device."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        LIBRARY.impl(name, function, "CompositeExplicitAutograd")
        return function

    return register


@_kernel("linear")
def run_linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    transpose: bool,
    activation: str = "",
    out: Tensor | None = None,
) -> Tensor:
    """Compute `linear` on real tensors, into `out` where one is given."""
    fit_linear(x, values, crow, col, bias, m, k, transpose, activation)
    _, r, c = values.shape
    module = _dispatch.choose("linear", x.dtype, values.dtype, (r, c), x.device)
    *lead, features = x.shape
    width, rows = k if transpose else m, math.prod(lead)
    flat = x if x.dim() == 2 else x.reshape(rows, features)
    target = _viewed(out, (rows, width))
    y = module.linear(flat, values, crow, col, bias, (m, k), transpose, activation, target)
    return _delivered(y if x.dim() == 2 else y.view(*lead, width), out, target)


@_kernel("spmm")
def run_spmm(
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    x: Tensor,
    m: int,
    k: int,
    transpose: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Compute `spmm` on real tensors, into `out` where one is given."""
    fit_spmm(values, crow, col, x, m, k, transpose)
    *lead, rows, n = x.shape
    r, c = values.shape[-2:]
    module = _dispatch.choose("spmm", x.dtype, values.dtype, (r, c), x.device)
    flat = x.reshape(math.prod(lead), rows, n)
    shape = (len(flat), k if transpose else m, n)
    target = _viewed(out, shape)
    if values.dim() == 3:
        y = module.spmm(values, crow, col, flat, (m, k), transpose, target)
    else:
        # One matrix for each X (gradients of a batched sddmm, vmap): same pattern, same plan.
        y = x.new_empty(shape) if target is None else target
        matrices = values.reshape(len(flat), *values.shape[-3:])
        for i, matrix in enumerate(matrices):
            module.spmm(matrix, crow, col, flat[i : i + 1], (m, k), transpose, y[i : i + 1])
    return _delivered(y.view(*lead, *shape[1:]), out, target)


@_kernel("sddmm")
def run_sddmm(
    a: Tensor,
    b: Tensor,
    crow: Tensor,
    col: Tensor,
    r: int,
    c: int,
    reduce: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Compute `sddmm` on real tensors, into `out` where one is given."""
    fit_sddmm(a, b, crow, col, r, c)
    if WATCHED and (see := WATCHED.get(crow.data_ptr())):
        see(a, b)
    *lead, m, t = a.shape
    k = b.shape[-1]
    module = _dispatch.choose("sddmm", a.dtype, a.dtype, (r, c), a.device)
    width = math.prod(lead)
    flat_a, flat_b = a.reshape(width, m, t), b.reshape(width, t, k)
    blocks = (len(col), r, c)
    target = _viewed(out, blocks if reduce else (width, *blocks))
    y = module.sddmm(flat_a, flat_b, crow, col, (r, c), reduce, target)
    return _delivered(y if reduce else y.view(*lead, *blocks), out, target)


def _viewed(out: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
    """See `out` in the shape that back ends write; None if its strides do not allow that."""
    try:
        return None if out is None else out.view(shape)
    except RuntimeError:
        return None


def _delivered(y: Tensor, out: Tensor | None, target: Tensor | None) -> Tensor:
    """Bring a result to `out` where the back end could not write there."""
    return y if out is None or target is not None else out.copy_(y)


def shape_of_linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    m: int,
    k: int,
    transpose: bool,
    activation: str = "",
) -> Shape:
    """Check the operands of `linear` and give the shape of its result."""
    fit_linear(x, values, crow, col, bias, m, k, transpose, activation)
    return (*x.shape[:-1], k if transpose else m)


def shape_of_spmm(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, m: int, k: int, transpose: bool
) -> Shape:
    """Check the operands of `spmm` and give the shape of its result."""
    fit_spmm(values, crow, col, x, m, k, transpose)
    return (*x.shape[:-2], k if transpose else m, x.shape[-1])


def shape_of_sddmm(
    a: Tensor, b: Tensor, crow: Tensor, col: Tensor, r: int, c: int, reduce: bool
) -> Shape:
    """Check the operands of `sddmm` and give the shape of its result."""
    fit_sddmm(a, b, crow, col, r, c)
    return (*(() if reduce else a.shape[:-2]), col.shape[0], r, c)


def _fake(name: str, shape_of: Callable[..., Shape], like: int) -> None:
    """Register what compilers trace: an empty result of the dtype and device of one operand."""

    def empty(*args: Any) -> Tensor:
        result: Tensor = args[like].new_empty(shape_of(*args))
        return result

    torch.library.register_fake(f"sparsetile::{name}", empty, lib=LIBRARY)


_fake("linear", shape_of_linear, 0)
_fake("spmm", shape_of_spmm, 3)
_fake("sddmm", shape_of_sddmm, 0)

LINEAR = torch.ops.sparsetile.linear.default
SPMM = torch.ops.sparsetile.spmm.default
SDDMM = torch.ops.sparsetile.sddmm.default
