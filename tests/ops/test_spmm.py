"""spmm against dense float64: values, every gradient, every stride, size and dtype."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import BSR, random_pattern
from sparsetile.ops import spmm
from support_ops import (
    STRIDES,
    assert_close,
    dense_of,
    dense_twin,
    kernel_patterns,
    pattern_from,
    strided,
    values_for,
)

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BOTH = ("spmm", "sddmm")


def check_spmm(compute, pattern, lead, n, dtype, *, how="contiguous"):
    """Output and every gradient, by name, against dense float64."""
    m, k = pattern.shape
    values, x = values_for(pattern, dtype), strided(torch.randn(*lead, k, n).to(dtype), how)
    dy = torch.randn(*lead, m, n).to(dtype)

    def product():
        leaves = values.detach().requires_grad_(), x.detach().requires_grad_()
        y = spmm(leaves[0], pattern, leaves[1])
        return y, *torch.autograd.grad(y, leaves, dy)

    result = compute(product, BOTH, dtype, pattern.blocksize)
    if result is None:
        return
    leaves = dense_twin(values, pattern).requires_grad_(), x.detach().double().requires_grad_()
    y = dense_of(leaves[0], pattern) @ leaves[1]
    want = y.detach(), *torch.autograd.grad(y, leaves, dy.double())
    for name, got, expected in zip(("y", "dvalues", "dx"), result, want, strict=True):
        assert_close(got, expected, dtype, name)


@settings(max_examples=60, deadline=None)
@given(
    pattern=kernel_patterns(),
    lead=st.sampled_from(((), (1,), (3,), (2, 3), (0,))),
    n=st.sampled_from((0, 1, 2, 7, 19)),
    dtype=st.sampled_from(DTYPES),
    how=st.sampled_from(("contiguous", "transposed", "stepped", "offset")),
)
def test_spmm_agrees_with_dense(compute, pattern, lead, n, dtype, how):
    check_spmm(compute, pattern, lead, n, dtype, how=how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("b", [1, 4, 8, 16, 32, 64])
def test_spmm_agrees_with_dense_at_usual_blocks(compute, dtype, b):
    pattern = random_pattern(4 * b, 3 * b, blocksize=b, density=0.5, seed=0)
    check_spmm(compute, pattern, (), 33, dtype)


@pytest.mark.parametrize("how", STRIDES)
def test_spmm_takes_any_strides(compute, how):
    pattern = random_pattern(24, 40, blocksize=8, density=0.5, seed=0)
    check_spmm(compute, pattern, (3,), 5, torch.float32, how=how)


def test_spmm_leaves_empty_rows_zero(compute):
    pattern = pattern_from((12, 8), (4, 4), [[0, 1], [0, 0], [1, 0]])
    values = values_for(pattern)
    y = compute(lambda: spmm(values, pattern, torch.randn(8, 3)), ("spmm",), values.dtype, (4, 4))
    assert torch.equal(y[4:8], torch.zeros(4, 3))


def test_spmm_ignores_rows_that_no_block_touches(compute):
    pattern = pattern_from((8, 12), (4, 4), [[1, 0, 0], [0, 0, 1]])
    x, values = torch.randn(12, 5), values_for(pattern)
    poisoned = x.clone()
    poisoned[4:8] = float("nan")
    y = compute(lambda: spmm(values, pattern, poisoned), ("spmm",), x.dtype, (4, 4))
    assert_close(y, dense_of(values.double(), pattern) @ x.double(), x.dtype, "y")


def test_matrix_operators_multiply(on_reference):
    pattern = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
    values, x = values_for(pattern), torch.randn(12, 3)
    assert_close(
        BSR(values, pattern) @ x,
        dense_of(values.double(), pattern) @ x.double(),
        torch.float32,
        "A @ x",
    )
