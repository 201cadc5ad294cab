"""The CPU back end: LLVM kernels written by Python, for float32."""

import torch
from torch import Tensor

from sparsetile.ops import _dispatch
from sparsetile.ops._activation import activate
from sparsetile.ops.cpu._dot_plan import DotPlan
from sparsetile.ops.cpu._index import index_of
from sparsetile.ops.cpu._isa import host, instruction_sets
from sparsetile.ops.cpu._jit import cache_folder
from sparsetile.ops.cpu._memo import TensorMemo
from sparsetile.ops.cpu._operand import Dense, clear_padding, without_padding
from sparsetile.ops.cpu._outer_plan import OuterPlan
from sparsetile.ops.cpu._panel_plan import PanelPlan
from sparsetile.ops.cpu._product import ProductPlan
from sparsetile.ops.cpu._sample import SamplePlan
from sparsetile.ops.cpu._sliced_plan import SlicedPlan, is_few

__all__ = ["cache_folder", "instruction_sets", "linear", "sddmm", "spmm", "unsupported"]

host()  # where LLVM or the processor will not do, importing this back end says so

_products: TensorMemo[ProductPlan] = TensorMemo(most=512)
_samples: TensorMemo[SamplePlan] = TensorMemo(most=512)


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
    if (dtype, values_dtype) != (torch.float32, torch.float32):
        given = dtype if dtype == values_dtype else f"{dtype} and {values_dtype}"
        return f"its kernels are for float32, and the operands are {given}"
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
    y = x.new_empty(x.shape[0], shape[transpose])
    _multiply("linear", values, crow, col, x.t()[None], y.t()[None], bias, shape, transpose)
    y = activate(y, activation)
    return y if out is None else out.copy_(y)


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
    y = x.new_empty(x.shape[0], shape[transpose], x.shape[2])
    _multiply("spmm", values, crow, col, x, y, None, shape, transpose)
    return y if out is None else out.copy_(y)


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
    if len(col) == 0:
        _note("sddmm", blocksize, "", None)
        if out is not None:
            return out
        return a.new_empty(0, r, c) if reduce else a.new_empty(a.shape[0], 0, r, c)

    def make() -> SamplePlan:
        family = DotPlan if r * c in (1, 2, 4) else OuterPlan
        return family(index_of(crow, col, -(-shape[1] // c), transpose=False), blocksize, shape)

    plan = _samples.get((crow, col), (blocksize, shape), make)
    blocks = plan.sample(Dense.of(a), Dense.of(b), reduce)
    clear_padding(blocks if blocks.dim() == 4 else blocks[None], crow, col, shape)
    _note("sddmm", blocksize, "", plan)
    return blocks if out is None else out.copy_(blocks)


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
    way = "_t" if transpose else ""
    if len(col) == 0:
        y.zero_() if bias is None else y.copy_(bias[:, None])
        _note(op, (r, c), way, None)
        return

    block, matrix = ((c, r), shape[::-1]) if transpose else ((r, c), shape)
    sliced, columns = block[0] < 8 and block[1] <= 32, y.shape[2]

    def make() -> ProductPlan:
        index = index_of(crow, col, -(-shape[1] // c), transpose=transpose)
        if sliced:
            return SlicedPlan(index, block, matrix, transpose, columns)
        return PanelPlan(index, block, matrix, transpose)

    few = sliced and is_few(columns)
    plan = _products.get((crow, col), (r, c, shape, transpose, few), make)
    if y.numel():
        values = without_padding(values, crow, col, shape, columns=not transpose)
        plan.multiply(values, Dense.of(x), Dense.of(y), bias)
    _note(op, (r, c), way, plan)


def _note(op: str, blocksize: tuple[int, int], way: str, plan: object) -> None:
    kind = type(plan).__name__.removesuffix("Plan").lower() if plan else "empty"
    _dispatch.ran(f"cpu:{op}_f32_b{blocksize[0]}x{blocksize[1]}{way}/{kind}")
