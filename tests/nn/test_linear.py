import math

import pytest
import torch
from torch import nn

from sparsetile.matrix import Pattern, random_pattern
from sparsetile.nn import Linear

SIZES = [(48, 64, 16), (50, 37, 4), (5, 3, (8, 2)), (20, 24, 1), (64, 32, (4, 16))]


@pytest.mark.parametrize(("k", "m", "blocksize"), SIZES)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
def test_linear_equals_its_dense_twin(k, m, blocksize, bias):
    layer = Linear(k, m, bias, blocksize=blocksize, density=0.4, dtype=torch.float64)
    x = torch.randn(3, 7, k, dtype=torch.float64)
    torch.testing.assert_close(layer(x), layer.to_linear()(x))


@pytest.mark.parametrize(("k", "m", "blocksize"), SIZES)
def test_gradients_equal_those_of_the_dense_twin(k, m, blocksize):
    layer = Linear(k, m, blocksize=blocksize, density=0.4, dtype=torch.float64)
    dense = layer.to_linear()
    x = torch.randn(7, k, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    (layer(ours) ** 2).sum().backward()
    (dense(theirs) ** 2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(layer.bias.grad, dense.bias.grad)
    full = Linear.from_linear(dense, pattern=layer.pattern)  # to cut the gradient by
    dense.weight.data.copy_(dense.weight.grad)
    expected = Linear.from_linear(dense, pattern=layer.pattern).values
    torch.testing.assert_close(layer.values.grad, expected.detach())
    assert full.nnzb == layer.nnzb


def test_values_are_drawn_within_the_true_fan_in_of_each_row():
    pattern = Pattern((8, 400), (4, 4), [0, 100, 101], [*range(100), 7])
    layer = Linear(400, 8, pattern=pattern)
    wide, narrow = layer.values[:100].abs().max(), layer.values[100].abs().max()
    assert 0.9 / math.sqrt(400) < wide <= 1 / math.sqrt(400)
    assert 0.5 / math.sqrt(4) < narrow <= 1 / math.sqrt(4)


def test_a_full_layer_has_the_spread_of_torchs():
    ours = Linear(256, 256, density=1.0, blocksize=16).values
    theirs = nn.Linear(256, 256).weight
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.03)


def test_bias_is_drawn_within_the_fan_in_and_rows_without_blocks_use_all_inputs():
    pattern = Pattern((128, 100), (64, 1), [0, 1, 1], [3])
    bias = Linear(100, 128, pattern=pattern).bias
    assert 0.1 < bias[:64].abs().max() <= 1
    assert bias[64:].abs().max() <= 0.1


def test_padding_is_zero():
    layer = Linear(5, 7, blocksize=4, density=1.0)
    assert layer.values[1, :, 1:].abs().max() == 0  # columns 5..7 of the matrix
    assert layer.values[2, 3:].abs().max() == 0  # row 7


def test_the_random_pattern_follows_manual_seed():
    def pattern(seed):
        torch.manual_seed(seed)
        return Linear(64, 64, blocksize=4, density=0.2).pattern

    assert pattern(1) == pattern(1)
    assert pattern(1) != pattern(2)


@pytest.mark.parametrize("k", [0, 12])
@pytest.mark.parametrize("m", [0, 8])
def test_empty_sizes_run(k, m):
    layer = Linear(k, m, blocksize=4, pattern=Pattern((m, k), 4, [0] * (m // 4 + 1), []))
    out = layer(torch.randn(3, k))
    torch.testing.assert_close(out, layer.bias.expand(3, m))


def test_pattern_is_kept_until_the_indices_change():
    layer = Linear(32, 32, blocksize=8, density=0.5)
    first = layer.pattern
    assert layer.pattern is first
    layer.col_indices.copy_(layer.col_indices.clone())
    assert layer.pattern is not first
    assert layer.pattern == first


def test_damaged_indices_are_found_when_the_pattern_is_asked_for():
    layer = Linear(32, 32, blocksize=8, density=0.5)
    layer.col_indices.fill_(99)
    with pytest.raises(ValueError, match="col_indices"):
        layer.pattern  # noqa: B018


def test_a_layer_does_not_share_indices_with_the_pattern_it_was_given():
    pattern = random_pattern(32, 32, blocksize=8, density=0.5, seed=0)
    layer = Linear(32, 32, pattern=pattern)
    layer.col_indices.zero_()
    assert pattern.col_indices.any()


@pytest.mark.parametrize("method", ["magnitude", "random"])
def test_from_linear_keeps_the_values_of_its_blocks(method):
    dense = nn.Linear(40, 24)
    layer = Linear.from_linear(dense, blocksize=8, density=0.3, method=method)
    expected = torch.where(layer.pattern.to_mask(), dense.weight, 0)
    torch.testing.assert_close(layer.to_linear().weight, expected, rtol=0, atol=0)
    assert torch.equal(layer.bias, dense.bias)


def test_from_linear_keeps_the_strongest_blocks():
    dense = nn.Linear(16, 16)
    dense.weight.data[:4, 4:8] = 9
    layer = Linear.from_linear(dense, blocksize=4, density=1 / 16)
    assert layer.pattern.block_mask()[0, 1]


def test_from_linear_copies():
    dense = nn.Linear(16, 16)
    layer = Linear.from_linear(dense, blocksize=4, density=0.5)
    dense.weight.data.zero_()
    dense.bias.data.zero_()
    assert layer.values.any()
    assert layer.bias.any()


def test_set_pattern_keeps_what_both_patterns_store():
    layer = Linear(4, 4, pattern=Pattern((4, 4), 2, [0, 2, 3], [0, 1, 0]))
    before = layer.values.detach().clone()
    values = layer.values
    layer.set_pattern_(Pattern((4, 4), 2, [0, 1, 3], [1, 0, 1]))
    assert layer.values is values
    assert torch.equal(layer.values[:2], before[1:])
    assert not layer.values[2].any()


def test_training_continues_after_the_number_of_blocks_changed():
    layer = Linear(8, 8, blocksize=2, density=0.5)
    layer(torch.randn(3, 8)).sum().backward()
    layer.set_pattern_(random_pattern(8, 8, blocksize=2, density=1.0, seed=0))
    assert layer.values.grad is None
    layer(torch.randn(3, 8)).sum().backward()
    assert layer.values.grad.shape == (16, 2, 2)


def test_repr_is_one_line_with_what_matters():
    layer = Linear(64, 32, bias=False, blocksize=(4, 8), density=0.25)
    assert repr(layer) == (
        "Linear(in_features=64, out_features=32, bias=False, blocksize=(4, 8), "
        "density=0.25, nnzb=16)"
    )


def test_weight_is_a_matrix_that_shares_memory():
    layer = Linear(16, 16, blocksize=4, density=0.5)
    assert layer.weight.values is layer.values
    torch.testing.assert_close(layer.weight.to_dense(), layer.to_linear().weight)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_values_serve_and_train_beside_a_float32_bias(half):
    layer, x = Linear(24, 16, blocksize=4, density=0.5), torch.randn(5, 24)
    layer.values.data = layer.values.data.to(half)
    dense = layer.to_linear()
    assert (dense.weight.dtype, dense.bias.dtype) == (torch.float32, torch.float32)
    for _ in range(2):  # with a gradient and without, on either road
        torch.testing.assert_close(layer(x), dense(x))
        with torch.no_grad():
            torch.testing.assert_close(layer(x), dense(x))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    before = (layer(x) ** 2).sum()
    before.backward()
    assert (layer.values.grad.dtype, layer.bias.grad.dtype) == (half, torch.float32)
    optimizer.step()
    assert (layer(x) ** 2).sum() < before
    copy = Linear(24, 16, blocksize=4, pattern=layer.pattern)
    copy.values.data = copy.values.data.to(half)
    copy.load_state_dict(layer.state_dict())
    assert torch.equal(copy.values, layer.values) and torch.equal(copy(x), layer(x))


def test_weight_says_where_the_tensors_are():
    weight = Linear(32, 24, blocksize=8, density=0.5).weight
    assert not hasattr(weight, "data")
    with pytest.raises(AttributeError, match=r"no attribute 'dim'; .*layer\.values.*to_dense\(\)"):
        nn.init.xavier_uniform_(weight)
