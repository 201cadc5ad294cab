"""The CPU back end: LLVM kernels written by Python, for float32 and 16-bit formats."""

import torch
from torch import Tensor

from sparsetile.ops import _dispatch
from sparsetile.ops._activation import activate
from sparsetile.ops.cpu._decode_plan import DecodePlan
from sparsetile.ops.cpu._explain import Launch, explain
from sparsetile.ops.cpu._isa import host, instruction_sets
from sparsetile.ops.cpu._jit import cache_folder
from sparsetile.ops.cpu._operand import Dense, clear_padding, without_padding
from sparsetile.ops.cpu._plans import find_product, find_sample
from sparsetile.ops.cpu._roofline import Roofline, roofline

__all__ = [
    "Launch",
    "Roofline",
    "cache_folder",
    "explain",
    "instruction_sets",
    "linear",
    "roofline",
    "sddmm",
    "spmm",
    "unsupported",
]

host()  # where LLVM or the processor will not do, importing this back end says so

_NARROW = (torch.bfloat16, torch.float16)


def unsupported(
    op: str,
    dtype: torch.dtype,
    values_dtype: torch.dtype,
    blocksize: tuple[int, int],
    device: torch.device,
) -> str | None:
    """Say why a product cannot be computed here; None when it can."""
    if device.type != "cpu":
        return f"it computes on the CPU, and the operands are on {device.type}"
    if dtype is torch.float64:
        return "its kernels add up in float32, and the operands are float64"
    if dtype != values_dtype and (dtype is not torch.float32 or values_dtype not in _NARROW):
        return f"it has no kernel for operands in {dtype} and values in {values_dtype}"
    return None


def linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    shape: tuple[int, int],
    transpose: bool,
    activation: str = "",
    out: Tensor | None = None,
) -> Tensor:
    """Compute x[n, k] · Wᵀ + bias -> y[n, m], or x[n, m] · W + bias -> y[n, k] if ``transpose``."""
    n = x.size(0)
    y = out if out is not None and 1 in out.stride() else x.new_empty(n, shape[transpose])
    lines = x.stride(1) == 1 and (out is None or y.stride(1) == 1)
    plan, name, ragged = find_product(
        "linear", values, crow, col, x.dtype, shape, transpose, n, lines
    )
    if plan is None:
        y.zero_() if bias is None else y.copy_(bias)
        y.copy_(activate(y, activation))
    elif y.numel():
        if ragged or not values.is_contiguous():
            values = without_padding(values, crow, col, shape, columns=not transpose)
        if isinstance(plan, DecodePlan):
            plan.multiply(values, x, y, bias, activation)
        else:
            plan.multiply(values, Dense.of_lines(x), Dense.of_lines(y), bias, activation)
    _dispatch.ran(name)
    return y if out is None or out is y else out.copy_(y)


def spmm(
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    x: Tensor,
    shape: tuple[int, int],
    transpose: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Compute W · x[B, k, n] -> y[B, m, n], or Wᵀ · x[B, m, n] -> y[B, k, n] if ``transpose``."""
    size = (x.shape[0], shape[transpose], x.shape[2])
    y = out if out is not None and 1 in out.stride()[1:] else x.new_empty(size)
    plan, name, ragged = find_product(
        "spmm", values, crow, col, x.dtype, shape, transpose, size[2], False
    )
    if plan is None:
        y.zero_()
    elif y.numel():
        if ragged or not values.is_contiguous():
            values = without_padding(values, crow, col, shape, columns=not transpose)
        assert not isinstance(plan, DecodePlan)  # its operands come in lines
        plan.multiply(values, Dense.of(x), Dense.of(y), None, "")
    _dispatch.ran(name)
    return y if out is None or out is y else out.copy_(y)


def sddmm(
    a: Tensor,
    b: Tensor,
    crow: Tensor,
    col: Tensor,
    blocksize: tuple[int, int],
    reduce: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Compute the stored blocks of a[B, m, t] · b[B, t, k], each or summed over B."""
    (r, c), shape = blocksize, (a.shape[1], b.shape[2])
    plan, name = find_sample(crow, col, blocksize, shape, a.dtype)
    if plan is None:
        blocks = a.new_empty(0, r, c) if reduce else a.new_empty(a.shape[0], 0, r, c)
    else:
        blocks = plan.sample(Dense.of(a), Dense.of(b), reduce)
        clear_padding(blocks if blocks.dim() == 4 else blocks[None], crow, col, shape)
    _dispatch.ran(name)
    return blocks if out is None else out.copy_(blocks)
