"""linear: what it must leave alone, and that it sees what has changed; test_agreement has sums."""

import pytest
import torch

from sparsetile.matrix import random_pattern
from sparsetile.ops import linear, linear_from_indices
from support import inside
from support_ops import assert_close, dense_of, pattern_from, values_for

BOTH = ("linear", "sddmm")


def test_linear_takes_any_strides_of_values(compute):
    pattern = random_pattern(24, 40, blocksize=8, density=0.5, seed=0)
    values, x = values_for(pattern), torch.randn(5, 40)
    turned = values.mT.contiguous().mT
    y = compute(lambda: linear(x, turned, pattern), ("linear",), torch.float32, (8, 8))
    assert_close(y, x.double() @ dense_of(values.double(), pattern).T, torch.float32, "y")


def test_linear_takes_an_expanded_gradient(compute):
    pattern = random_pattern(24, 40, blocksize=8, density=0.5, seed=0)
    values, x = values_for(pattern).requires_grad_(), torch.randn(5, 40, requires_grad=True)

    def product():
        return torch.autograd.grad(linear(x, values, pattern).sum(), (x, values))

    dx, dvalues = compute(product, BOTH, torch.float32, (8, 8))
    w = dense_of(values.detach().double(), pattern)
    assert_close(dx, w.sum(0).expand(5, 40), torch.float32, "dx")
    dw = x.detach().double().sum(0).expand(24, 40)
    back = dense_of(dvalues.double(), pattern)
    stored = pattern.to_mask()
    assert_close(back[stored].float(), dw[stored], torch.float32, "dvalues")


def test_linear_keeps_empty_rows_at_the_bias(compute):
    pattern = pattern_from((12, 8), (4, 4), [[0, 1], [0, 0], [1, 0]])
    values, bias = values_for(pattern), torch.arange(12.0)
    y = compute(
        lambda: linear(torch.randn(3, 8), values, pattern, bias), ("linear",), bias.dtype, (4, 4)
    )
    assert torch.equal(y[:, 4:8], bias[4:8].expand(3, 4))


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_linear_ignores_columns_that_no_block_touches(compute, poison):
    pattern = pattern_from((8, 12), (4, 4), [[1, 0, 0], [0, 0, 1]])
    x, values = torch.randn(3, 12), values_for(pattern)
    poisoned = x.clone()
    poisoned[:, 4:8] = poison
    y = compute(lambda: linear(poisoned, values, pattern), ("linear",), x.dtype, (4, 4))
    assert_close(y, x.double() @ dense_of(values.double(), pattern).T, x.dtype, "y")


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_linear_keeps_poison_in_the_rows_that_read_it(compute, poison):
    pattern = pattern_from((8, 12), (4, 4), [[1, 1, 0], [0, 0, 1]])
    x, values = torch.randn(20, 12), values_for(pattern)
    poisoned = x.clone()
    poisoned[:, 1] = poison  # block column 0: read by block row 0 alone
    poisoned[7, :] = poison  # one sample
    y = compute(lambda: linear(poisoned, values, pattern), ("linear",), x.dtype, (4, 4))
    others = [i for i in range(20) if i != 7]
    want = x.double() @ dense_of(values.double(), pattern).T
    assert_close(y[others, 4:], want[others, 4:], x.dtype, "y")


@pytest.mark.parametrize("blocksize", [(4, 4), (8, 8), (16, 16), (3, 5)])
def test_padded_gradients_are_zero(compute, blocksize):
    pattern = random_pattern(21, 37, blocksize=blocksize, density=0.6, seed=1)
    values, x = values_for(pattern).requires_grad_(), torch.randn(6, 37)

    def product():
        return torch.autograd.grad(linear(x, values, pattern).square().sum(), values)[0]

    dvalues = compute(product, BOTH, torch.float32, blocksize)
    assert torch.equal(dvalues[~inside(pattern)].unique(), torch.zeros(1))


def test_linear_of_a_vector_has_no_batch_dimension(compute):
    pattern = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
    x, values = torch.randn(12, requires_grad=True), values_for(pattern)

    def product():
        y = linear(x, values, pattern)
        return y.detach(), torch.autograd.grad(y.sum(), x)[0]

    y, dx = compute(product, BOTH, values.dtype, (4, 4))
    w = dense_of(values.double(), pattern)
    assert_close(y, w @ x.detach().double(), values.dtype, "y")
    assert_close(dx, w.sum(0), values.dtype, "dx")


WRITES = {
    "copy_": lambda t, new: t.copy_(new),
    "set_": lambda t, new: t.set_(new),
    "item": lambda t, new: t.__setitem__(slice(None), new),
    "view": lambda t, new: t.view(2, 1)[:, 0].copy_(new),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_linear_from_indices_sees_indices_changed_in_place(compute, write):
    pattern = pattern_from((8, 8), (4, 4), [[1, 0], [0, 1]])
    crow, col = pattern.crow_indices.clone(), pattern.col_indices.clone()
    x, values = torch.randn(3, 8), values_for(pattern)

    def product():
        return linear_from_indices(x, values, crow, col, (8, 8))

    compute(product, ("linear",), x.dtype, (4, 4))
    write(col, torch.tensor([1, 0], dtype=torch.int32))
    y = compute(product, ("linear",), x.dtype, (4, 4))
    w = dense_of(values.double(), pattern_from((8, 8), (4, 4), [[0, 1], [1, 0]]))
    assert_close(y, x.double() @ w.T, x.dtype, "y")


def test_linear_sees_values_changed_in_place(compute):
    pattern = random_pattern(32, 32, blocksize=16, density=0.5, seed=0)
    x, values = torch.randn(3, 32), values_for(pattern)
    before = compute(lambda: linear(x, values, pattern), ("linear",), x.dtype, (16, 16))
    values.mul_(2.0)
    after = compute(lambda: linear(x, values, pattern), ("linear",), x.dtype, (16, 16))
    assert_close(after, 2 * before.double(), x.dtype, "y")


def test_linear_never_returns_memory_of_its_inputs(compute):
    pattern = random_pattern(8, 8, blocksize=4, density=1.0, seed=0)
    x, values, bias = torch.randn(8), values_for(pattern), torch.randn(8)
    y = compute(lambda: linear(x, values, pattern, bias), ("linear",), x.dtype, (4, 4))
    inputs = {t.untyped_storage().data_ptr() for t in (x, values, bias)}
    assert y.untyped_storage().data_ptr() not in inputs
