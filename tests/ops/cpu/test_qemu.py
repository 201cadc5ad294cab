"""Kernels for 64-bit Arm compute what they should, under an emulator: ``make test-arm``."""

import pytest
import torch

import sparsetile as st
from support_arm import TOOLS, emulated, missing_tools
from support_ops import assert_close, dense_of, dense_twin, values_for

pytestmark = pytest.mark.arm

BLOCKS = [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 32), (3, 5), (16, 4)]
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
CASES = [
    *[("neoverse-n1", block, F32, F32, n) for block in BLOCKS for n in (1, 21)],
    *[("apple-m1", block, F32, F32, 21) for block in BLOCKS],
    *[
        ("neoverse-n1", block, *dtypes, 21)
        for block in ((1, 1), (4, 4), (16, 16), (3, 5))
        for dtypes in ((BF16, BF16), (F16, F16), (F32, BF16))
    ],
]


@pytest.fixture(scope="module", autouse=True)
def _tools():
    if missing := missing_tools():
        pytest.fail(f"needs {' and '.join(TOOLS)}; not found: {', '.join(missing)}")


@pytest.fixture
def arm(cpu, monkeypatch, tmp_path):
    with emulated(monkeypatch, tmp_path, cpu) as emulator, st.backend("cpu"):
        yield
    assert emulator.runs


@pytest.mark.parametrize(("cpu", "blocksize", "dtype", "stored", "n"), CASES, ids=str)
def test_products_and_gradients(arm, cpu, blocksize, dtype, stored, n):
    pattern = st.random_pattern(50, 70, blocksize=blocksize, density=0.4, seed=0)
    values = values_for(pattern, stored).requires_grad_()
    x = torch.randn(n, 70, dtype=dtype, requires_grad=True)
    bias, dy = torch.randn(50, dtype=dtype), torch.randn(n, 50, dtype=dtype)
    dense = dense_of(dense_twin(values, pattern), pattern)
    there = dense_of(torch.ones_like(values, dtype=torch.float64), pattern)

    y = st.linear(x, values, pattern, bias)
    assert_close(y, x.double() @ dense.T + bias.double(), dtype, "linear")
    z = st.spmm(values, pattern, x.mT.contiguous())
    assert_close(z, dense @ x.double().mT, dtype, "spmm")
    y.backward(dy)
    assert_close(x.grad, dy.double() @ dense, dtype, "dx")
    dvalues = dense_of(dense_twin(values.grad, pattern), pattern)
    assert_close(dvalues.to(stored), (dy.double().T @ x.double()) * there, stored, "dvalues")
