"""Really sparse: no tensor of the dense weight's size is made, forward or backward."""

import pytest
import torch

import sparsetile.ops._reference as reference
from sparsetile.matrix import random_pattern
from sparsetile.ops import linear, sddmm, spmm
from support_ops import most_bytes

M = K = 256
DENSE_BYTES = M * K * 4
N = 4


@pytest.mark.parametrize("b", [1, 4, 16])
@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_nothing_dense_is_made(compute, op, b):
    pattern = random_pattern(M, K, blocksize=b, density=1 / 64, seed=0)
    values = torch.randn(pattern.nnzb, b, b, requires_grad=True)
    x = torch.randn(N, K, requires_grad=True)
    a = torch.randn(M, N, requires_grad=True)
    product = {
        "linear": lambda: linear(x, values, pattern).sum().backward(),
        "spmm": lambda: spmm(values, pattern, x.mT).sum().backward(),
        "sddmm": lambda: sddmm(a, x, pattern).sum().backward(),
    }[op]
    taken = compute(lambda: most_bytes(product), ("linear", "spmm", "sddmm"), torch.float32, (b, b))
    if taken is not None:
        assert taken < DENSE_BYTES / 4


def test_the_meter_sees_what_is_dense():
    assert most_bytes(lambda: torch.randn(M, 1) @ torch.randn(1, K)) >= DENSE_BYTES


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_reference_gathers_in_pieces(on_reference, monkeypatch, op):
    pattern = random_pattern(24, 40, blocksize=4, density=0.8, seed=0)
    values, x = torch.randn(pattern.nnzb, 4, 4), torch.randn(6, 40)

    def result():
        if op == "linear":
            return linear(x, values, pattern)
        return spmm(values, pattern, x.mT) if op == "spmm" else sddmm(torch.ones(24, 6), x, pattern)

    whole = result()
    monkeypatch.setattr(reference, "GATHER_BYTES", 2 * 4 * 6 * 4)  # two blocks' rows
    torch.testing.assert_close(result(), whole)
