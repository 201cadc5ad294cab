"""sddmm: broadcast batches and the padding; test_agreement has the sums."""

import pytest
import torch

from sparsetile.matrix import random_pattern
from sparsetile.ops import sddmm
from support_ops import assert_close, blocks_of

LEADS = [((2, 1), (3,)), ((), (2,)), ((2, 3), ()), ((0,), ())]


@pytest.mark.parametrize("leads", LEADS, ids=str)
def test_sddmm_broadcasts_batches(compute, leads):
    pattern = random_pattern(6, 9, blocksize=(2, 4), density=0.5, seed=0)
    a = torch.randn(*leads[0], 6, 5, requires_grad=True)
    b = torch.randn(*leads[1], 5, 9, requires_grad=True)
    ds = torch.randn(*torch.broadcast_shapes(*leads), pattern.nnzb, 2, 4)

    def product():
        s = sddmm(a, b, pattern)
        return s, *torch.autograd.grad(s, (a, b), ds)

    result = compute(product, ("sddmm", "spmm"), torch.float32, (2, 4))
    twins = [t.detach().double().requires_grad_() for t in (a, b)]
    s = blocks_of(twins[0] @ twins[1], pattern)
    want = s, *torch.autograd.grad(s, twins, ds.double())
    for name, got, expected in zip(("s", "da", "db"), result, want, strict=True):
        assert_close(got.detach(), expected.detach(), torch.float32, name)


def test_sddmm_is_zero_outside_the_matrix(compute):
    pattern = random_pattern(6, 7, blocksize=4, density=1.0, seed=0)
    a, b = torch.full((6, 2), float("inf")), torch.ones(2, 7)
    s = compute(lambda: sddmm(a, b, pattern), ("sddmm",), a.dtype, (4, 4))
    assert torch.equal(s, blocks_of(torch.full((6, 7), float("inf")), pattern))
