"""sddmm against dense float64: values, every gradient, every stride, size and dtype."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import random_pattern
from sparsetile.ops import sddmm
from support_ops import STRIDES, assert_close, blocks_of, kernel_patterns, strided

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BOTH = ("sddmm", "spmm")


def check_sddmm(compute, pattern, lead_a, lead_b, t, dtype, *, how="contiguous"):
    """Output and every gradient, by name, against dense float64."""
    m, k = pattern.shape
    a = strided(torch.randn(*lead_a, m, t).to(dtype), how)
    b = strided(torch.randn(*lead_b, t, k).to(dtype), how)
    lead = torch.broadcast_shapes(lead_a, lead_b)
    ds = torch.randn(*lead, pattern.nnzb, *pattern.blocksize).to(dtype)

    def product():
        leaves = a.detach().requires_grad_(), b.detach().requires_grad_()
        s = sddmm(*leaves, pattern)
        return s, *torch.autograd.grad(s, leaves, ds)

    result = compute(product, BOTH, dtype, pattern.blocksize)
    if result is None:
        return
    leaves = a.detach().double().requires_grad_(), b.detach().double().requires_grad_()
    s = blocks_of(leaves[0] @ leaves[1], pattern)
    if pattern.nnzb:
        want = s.detach(), *torch.autograd.grad(s, leaves, ds.double())
    else:
        want = s.detach(), torch.zeros_like(leaves[0]), torch.zeros_like(leaves[1])
    for name, got, expected in zip(("s", "da", "db"), result, want, strict=True):
        assert_close(got, expected.detach(), dtype, name)


@settings(max_examples=60, deadline=None)
@given(
    pattern=kernel_patterns(),
    leads=st.sampled_from((((), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (2,)), ((0,), (0,)))),
    t=st.sampled_from((0, 1, 2, 7, 19)),
    dtype=st.sampled_from(DTYPES),
    how=st.sampled_from(("contiguous", "transposed", "stepped", "offset")),
)
def test_sddmm_agrees_with_dense(compute, pattern, leads, t, dtype, how):
    check_sddmm(compute, pattern, *leads, t, dtype, how=how)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("b", [1, 4, 8, 16, 32, 64])
def test_sddmm_agrees_with_dense_at_usual_blocks(compute, dtype, b):
    pattern = random_pattern(4 * b, 3 * b, blocksize=b, density=0.5, seed=0)
    check_sddmm(compute, pattern, (), (), 33, dtype)


@pytest.mark.parametrize("how", STRIDES)
def test_sddmm_takes_any_strides(compute, how):
    pattern = random_pattern(24, 40, blocksize=8, density=0.5, seed=0)
    check_sddmm(compute, pattern, (3,), (3,), 5, torch.float32, how=how)


def test_sddmm_is_zero_outside_the_matrix(compute):
    pattern = random_pattern(6, 7, blocksize=4, density=1.0, seed=0)
    a, b = torch.full((6, 2), float("inf")), torch.ones(2, 7)
    s = compute(lambda: sddmm(a, b, pattern), ("sddmm",), a.dtype, (4, 4))
    assert torch.equal(s, blocks_of(torch.full((6, 7), float("inf")), pattern))
