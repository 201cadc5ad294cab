import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsetile.nn import Linear
from sparsetile.train import Room, block_l1, uniform


@pytest.mark.parametrize("blocksize", [1, 4, (2, 8)], ids=str)
def test_l1_is_the_sum_of_magnitudes(blocksize):
    layer = Linear(32, 32, blocksize=blocksize, density=0.5)
    expected = layer.values.detach().double().abs().sum((1, 2))
    torch.testing.assert_close(block_l1(layer).double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("k", "m"), [(10, 7), (8, 7), (10, 8)])
def test_l1_never_reads_padding(k, m):
    layer = Linear(k, m, blocksize=4, density=1.0)
    expected = block_l1(layer)
    dense = torch.nn.Linear(k, m)
    dense.weight.data.fill_(1)
    inside = Linear.from_linear(dense, pattern=layer.pattern).values.detach().bool()
    layer.values.data.masked_fill_(~inside, float("nan"))
    assert torch.equal(block_l1(layer), expected)


def test_half_precision_is_summed_in_float32():
    layer = Linear(64, 64, blocksize=64, density=1.0, dtype=torch.float16)
    layer.values.data.fill_(60)
    assert block_l1(layer).item() == 60 * 64 * 64  # beyond float16


@given(st.integers(1, 30), st.integers(1, 30), st.data())
def test_uniform_chooses_different_free_positions(rows, columns, data):
    size = rows * columns
    taken = data.draw(st.sets(st.integers(0, size - 1)))
    count = data.draw(st.integers(0, size - len(taken)))
    layer = Linear(columns, rows, blocksize=1, density=1.0)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    listed = torch.tensor(sorted(taken), dtype=torch.int64)
    chosen = uniform(Room(layer, listed, generator), count).tolist()
    assert len(set(chosen)) == len(chosen) == count
    assert not set(chosen) & taken
    assert chosen == sorted(chosen)
    assert all(0 <= position < size for position in chosen)


@pytest.mark.parametrize("count", [2, 5], ids=["few", "most"])
def test_uniform_gives_every_free_position_the_same_chance(count):
    layer, generator = Linear(3, 3, blocksize=1, density=1.0), torch.Generator().manual_seed(0)
    taken = torch.tensor([0, 4, 8])
    hits = torch.zeros(9)
    for _ in range(3000):
        hits[uniform(Room(layer, taken, generator), count)] += 1
    expected = 3000 * count / 6
    free = [1, 2, 3, 5, 6, 7]
    # Five standard deviations of a binomial count.
    assert (hits[free] - expected).abs().max() < 5 * (expected * (1 - count / 6)) ** 0.5


def test_uniform_fills_every_free_position():
    layer = Linear(4, 4, blocksize=1, density=1.0)
    taken = torch.tensor([0, 3, 9])
    chosen = uniform(Room(layer, taken), 13).tolist()
    assert chosen == [i for i in range(16) if i not in (0, 3, 9)]
