import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import Pattern
from sparsetile.nn import Linear
from sparsetile.train import Change, Room, block_l1, uniform
from sparsetile.train._positions import positions
from sparsetile.train._update import apply_, choose

GRID = 4  # block columns of the worked example
# dropped: the two smallest; grown: where the stand-in below says. Positions are row * 4 + column.
EXAMPLES = [
    # stored, L1 scores, count, grown, expected positions, where each value comes from (None: zero)
    ([0, 5, 6], [3, 1, 2], 1, [1], [0, 1, 6], [3, None, 2]),
    ([0, 5, 6], [3, 1, 2], 2, [7, 15], [0, 7, 15], [3, None, None]),
    ([2, 3, 9, 12], [1, 1, 1, 1], 2, [0, 1], [0, 1, 9, 12], [None, None, 1, 1]),
    ([2, 3, 9, 12], [4, 3, 2, 1], 0, [], [2, 3, 9, 12], [4, 3, 2, 1]),
    ([1], [5], 1, [14], [14], [None]),
]


def move_blocks_(layer, count, *, grow=uniform, seed=0, state=()):
    free = layer.pattern.grid[0] * layer.pattern.grid[1] - layer.nnzb
    count = min(count, free)
    room = Room(layer, positions(layer), torch.Generator().manual_seed(seed))
    dropped = room.taken
    move = choose(room, block_l1(layer), Change(count, count), grow)
    apply_(move, layer, [(tensor, lambda _: None) for tensor in state])
    return move, dropped[move.leaves]


def layer_at(stored, rows=4, columns=GRID, blocksize=2):
    stored = torch.tensor(stored, dtype=torch.int64)
    crow = torch.searchsorted(stored, torch.arange(rows + 1) * columns)
    shape = (rows * blocksize, columns * blocksize)
    pattern = Pattern(shape, blocksize, crow, stored % columns)
    return Linear(shape[1], shape[0], pattern=pattern)


@pytest.mark.parametrize(("stored", "scores", "count", "grown", "after", "values"), EXAMPLES)
def test_worked_example(stored, scores, count, grown, after, values):
    layer = layer_at(stored)
    marks = torch.tensor(scores, dtype=torch.float32)[:, None, None]
    layer.values.data.copy_(marks.expand(-1, 2, 2))
    move, _ = move_blocks_(layer, count, grow=lambda *_: torch.tensor(grown, dtype=torch.int64))
    assert positions(layer).tolist() == after
    assert layer.values[:, 0, 0].tolist() == [value or 0 for value in values]
    assert move.grown.tolist() == grown


@settings(max_examples=60)
@given(
    rows=st.integers(1, 8),
    columns=st.integers(1, 8),
    blocksize=st.sampled_from([1, 2, (1, 3)]),
    density=st.floats(0.01, 1),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**31),
)
def test_an_update_moves_blocks_and_nothing_else(rows, columns, blocksize, density, share, seed):
    torch.manual_seed(seed)
    r, c = blocksize if isinstance(blocksize, tuple) else (blocksize, blocksize)
    layer = Linear(columns * c, rows * r, blocksize=blocksize, density=density)
    layer.values.grad = torch.randn_like(layer.values)
    moments = [torch.rand_like(layer.values) + 1, torch.rand_like(layer.values) + 1]
    kept = [layer.values, layer.crow_indices, layer.col_indices, layer.values.grad, *moments]
    places = [tensor.data_ptr() for tensor in kept]
    tensors = [layer.values, layer.values.grad, *moments]
    before = [
        dict(zip(positions(layer).tolist(), tensor.detach().clone(), strict=True))
        for tensor in tensors
    ]
    nnzb, count = layer.nnzb, round(share * layer.nnzb)

    move, dropped = move_blocks_(layer, count, seed=seed, state=moments)

    stored = positions(layer).tolist()  # through a validated Pattern
    assert layer.nnzb == nnzb == len(stored)
    assert len(move.grown) == len(dropped) == min(count, rows * columns - nnzb)
    assert not set(move.grown.tolist()) & set(before[0])
    assert set(stored) == set(before[0]) - set(dropped.tolist()) | set(move.grown.tolist())
    assert [tensor.data_ptr() for tensor in kept] == places
    for tensor, old in zip(tensors, before, strict=True):
        for position, block in zip(stored, tensor, strict=True):
            assert torch.equal(block, old.get(position, torch.zeros_like(block)))


def test_the_weakest_blocks_go():
    layer = Linear(64, 64, blocksize=4, density=0.3)
    scores = dict(zip(positions(layer).tolist(), block_l1(layer).tolist(), strict=True))
    _, dropped = move_blocks_(layer, 20)
    assert sorted(dropped.tolist()) == sorted(sorted(scores, key=scores.get)[:20])


def test_fewer_blocks_move_when_fewer_positions_are_free():
    layer = Linear(16, 16, blocksize=4, density=14 / 16)
    move, _ = move_blocks_(layer, 10)
    assert len(move.grown) == 2


def test_an_update_is_seen_by_the_next_product():
    layer = Linear(32, 32, blocksize=4, density=0.3)
    x = torch.randn(3, 32)
    layer(x)
    move_blocks_(layer, 8)
    torch.testing.assert_close(layer(x), layer.to_linear()(x))


def test_two_hundred_thousand_single_values_move_at_once():
    layer = Linear(1024, 1024, blocksize=1, density=0.2)
    before = positions(layer)
    move, _ = move_blocks_(layer, 100_000)
    assert len(move.grown.unique()) == 100_000
    assert not torch.isin(move.grown, before).any()
