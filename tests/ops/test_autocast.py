"""Autocast: operands are cast as torch's own products cast them, gradients are not."""

import pytest
import torch

from sparsetile.matrix import random_pattern
from sparsetile.ops import last_kernel, linear, sddmm, spmm
from support_ops import assert_close, dense_of, values_for

PATTERN = random_pattern(12, 20, blocksize=4, density=0.5, seed=0)
HALF = (torch.bfloat16, torch.float16)


def operands():
    x, bias = torch.randn(5, 20, requires_grad=True), torch.randn(12, requires_grad=True)
    return x, values_for(PATTERN).requires_grad_(), bias


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_linear_computes_in_the_dtype_of_autocast(dtype):
    x, values, bias = operands()
    with torch.autocast("cpu", dtype):
        y = linear(x, values, PATTERN, bias)
        want = torch.nn.functional.linear(x, dense_of(values, PATTERN), bias)
    assert y.dtype == want.dtype == dtype
    assert_close(y.detach(), want.detach().double(), dtype, "y")


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_linear_gives_gradients_in_the_dtype_of_the_parameters(dtype):
    leaves = operands()
    with torch.autocast("cpu", dtype):
        y = linear(*leaves[:2], PATTERN, leaves[2])
    grads = torch.autograd.grad(y.float().sum(), leaves)
    assert [g.dtype for g in grads] == [torch.float32] * 3


def test_spmm_and_sddmm_compute_in_the_dtype_of_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        y = spmm(values_for(PATTERN), PATTERN, torch.randn(20, 3))
        s = sddmm(torch.randn(12, 3), torch.randn(3, 20), PATTERN)
    assert (y.dtype, s.dtype) == (torch.bfloat16, torch.bfloat16)


def test_autocast_takes_operands_of_different_dtypes():
    x, values, bias = operands()
    with torch.autocast("cpu", torch.bfloat16):
        y = linear(x.detach().bfloat16(), values, PATTERN, bias)
    assert y.dtype == torch.bfloat16


def test_autocast_leaves_float64_alone():
    x, values, bias = (t.detach().double() for t in operands())
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, values, PATTERN, bias).dtype == torch.float64


def test_reference_sums_in_float32_inside_autocast(on_reference):
    # One row of 4096 ones: bfloat16 sums would stop at 256.
    pattern = random_pattern(4, 4096, blocksize=4, density=1.0, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        y = linear(torch.ones(1, 4096), torch.ones(pattern.nnzb, 4, 4), pattern)
    assert last_kernel() == "reference:linear"
    assert torch.equal(y, torch.full((1, 4), 4096.0, dtype=torch.bfloat16))
