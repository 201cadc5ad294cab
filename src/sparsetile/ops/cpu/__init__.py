"""The CPU back end: LLVM kernels written by Python, for float32."""

from types import ModuleType

import torch
from torch import Tensor

from sparsetile.ops import _dispatch
from sparsetile.ops.cpu import _dot_launch, _outer_launch, _panel_launch, _sliced_launch
from sparsetile.ops.cpu._operand import Dense

__all__ = ["linear", "sddmm", "spmm", "unsupported"]


def unsupported(
    op: str, dtype: torch.dtype, blocksize: tuple[int, int], device: torch.device
) -> str | None:
    """Say why a product cannot be computed here; None when it can."""
    if device.type != "cpu":
        return f"it computes on the CPU, and the operands are on {device.type}"
    if dtype != torch.float32:
        return f"its kernels are for float32, and the operands are {dtype}"
    return None


def linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    shape: tuple[int, int],
    transpose: bool,
) -> Tensor:
    """Compute x[n, k] · Wᵀ + bias -> y[n, m], or x[n, m] · W + bias -> y[n, k] if ``transpose``."""
    y = torch.empty(x.shape[0], shape[transpose])
    _multiply("linear", values, crow, col, x.t()[None], y.t()[None], bias, shape, transpose)
    return y


def spmm(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, shape: tuple[int, int], transpose: bool
) -> Tensor:
    """Compute W · x[B, k, n] -> y[B, m, n], or Wᵀ · x[B, m, n] -> y[B, k, n] if ``transpose``."""
    y = torch.empty(x.shape[0], shape[transpose], x.shape[2])
    _multiply("spmm", values, crow, col, x, y, None, shape, transpose)
    return y


def _multiply(
    op: str,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    x: Tensor,
    y: Tensor,
    bias: Tensor | None,
    shape: tuple[int, int],
    transpose: bool,
) -> None:
    _, r, c = values.shape
    rows, inner = (c, r) if transpose else (r, c)
    family = _sliced_launch if rows < 8 and inner <= 32 else _panel_launch
    if y.numel():
        family.multiply(values, crow, col, Dense.of(x), Dense.of(y), bias, shape, transpose)
    _note(op, (r, c), "_t" if transpose else "", family)


def sddmm(
    a: Tensor, b: Tensor, crow: Tensor, col: Tensor, blocksize: tuple[int, int], reduce: bool
) -> Tensor:
    """Compute the stored blocks of a[B, m, t] · b[B, t, k], each or summed over B."""
    family = _dot_launch if blocksize[0] * blocksize[1] in (1, 2, 4) else _outer_launch
    out = family.sample(Dense.of(a), Dense.of(b), crow, col, blocksize, reduce)
    _note("sddmm", blocksize, "", family)
    return out


def _note(op: str, blocksize: tuple[int, int], way: str, family: ModuleType) -> None:
    kind = family.__name__.rpartition("._")[2].removesuffix("_launch")
    _dispatch.ran(f"cpu:{op}_f32_b{blocksize[0]}x{blocksize[1]}{way}/{kind}")
