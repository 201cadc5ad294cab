"""Equal rows: a worked example, and what must hold on any pattern."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.nn import Linear
from sparsetile.train import (
    ByGradient,
    ByMomentum,
    Constant,
    EqualRows,
    Every,
    Method,
    Room,
    block_l1,
    uniform,
)
from sparsetile.train._positions import pattern_at, positions
from support import without_type_checks

# Grid of 3×4 blocks. Stored positions, their scores, drop, grow, which leave, rows afterwards.
EXAMPLES = [
    ([0, 1, 4, 8], [1, 2, 3, 4], 1, 1, [0], [2, 1, 1]),  # the weakest goes; row 0 is due two
    ([0, 1, 2, 3], [1, 2, 3, 4], 0, 0, [0, 1], [2, 1, 1]),  # a full row gives to the others
    ([0, 1, 4, 5, 8, 9], [1, 2, 3, 4, 5, 6], 2, 2, [0, 1], [2, 2, 2]),  # a row turns over
    ([0, 4, 8], [3, 2, 1], 0, 3, [], [2, 2, 2]),  # all grow
    ([0, 4, 8], [3, 2, 1], 3, 0, [0, 4, 8], [0, 0, 0]),  # all go
]


def layer_at(stored, grid):
    empty = Linear(grid[1], grid[0], blocksize=1, density=1.0)
    return Linear(grid[1], grid[0], pattern=pattern_at(empty, torch.tensor(stored)))


@pytest.mark.parametrize(("stored", "scores", "drop", "grow", "left", "rows"), EXAMPLES)
def test_worked_example(stored, scores, drop, grow, left, rows):
    room = Room(layer_at(stored, (3, 4)), torch.tensor(stored))
    marks = torch.tensor(scores, dtype=torch.float32)
    leaves, grown = EqualRows().choose(room, marks, drop, grow, uniform)
    assert room.taken[leaves].tolist() == left
    after = torch.cat([room.taken[~leaves], grown])
    assert torch.bincount(after // 4, minlength=3).tolist() == rows


@settings(max_examples=80)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    density=st.floats(0.01, 1),
    share=st.floats(0, 1),
    ablate=st.sampled_from([0.0, 0.3, 0.95]),
    seed=st.integers(0, 2**31),
)
def test_rows_are_equal_and_the_total_stays(rows, columns, density, share, ablate, seed):
    torch.manual_seed(seed)
    layer = Linear(columns, rows, blocksize=1, density=density)
    room = Room(layer, positions(layer), torch.Generator().manual_seed(seed))
    count = min(round(share * layer.nnzb), room.free)
    scores = torch.rand(layer.nnzb)
    leaves, grown = EqualRows(ablate).choose(room, scores, count, count, uniform)
    after = torch.cat([room.taken[~leaves], grown])
    assert len(after) == layer.nnzb == len(after.unique())
    assert not torch.isin(grown, room.taken).any()
    counts = torch.bincount(after // columns, minlength=rows)
    alive = counts[~room.memory["given_up"]]
    assert counts.sum() == alive.sum()
    assert alive.max() - alive.min() <= 1


def test_rows_with_too_few_salient_blocks_are_given_up_for_good():
    torch.manual_seed(0)
    layer = Linear(16, 8, blocksize=1, density=0.5)
    room = Room(layer, positions(layer))
    row = room.taken // 16
    scores = torch.where(row == 3, 0.0, 1.0) + torch.rand(len(row)) / 10
    first = int((row == 3).sum())

    def elsewhere(room, count, rows=None):
        if rows is not None:
            return uniform(room, count, rows)
        free = [p for p in range(128) if p not in set(room.taken.tolist()) and p // 16 != 3]
        return torch.tensor(free[:count])

    leaves, grown = EqualRows(0.5).choose(room, scores, first, first, elsewhere)
    assert room.memory["given_up"].nonzero()[:, 0].tolist() == [3]
    after = torch.cat([room.taken[~leaves], grown])
    counts = torch.bincount(after // 16, minlength=8)
    assert counts[3] == 0
    assert counts.sum() == layer.nnzb


BAD = {
    "ablate": (lambda: EqualRows(1.5), "ablate_below must be between 0 and 1, got 1.5"),
    "ablate_text": (lambda: EqualRows("all"), "ablate_below must be a number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_is_refused(case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((ValueError, TypeError), match=message):
        call()


# Whether rows may be given up or not, what grows is what has the largest gradient in its row.
@pytest.mark.parametrize("ablate", [0.0, 0.3])
@pytest.mark.parametrize(
    "grow",
    [ByGradient(), ByGradient(candidates=1e6), ByMomentum(candidates=None)],
    ids=["exact", "candidates", "momentum"],
)
def test_rows_grow_where_the_score_says(grow, ablate):
    torch.manual_seed(0)
    layer = Linear(32, 32, blocksize=4, density=0.25, bias=False, dtype=torch.float64)
    method = Method(
        drop=block_l1,
        grow=grow,
        clock=Every(1, total_steps=9),
        amount=Constant(0.4),
        constraint=EqualRows(ablate),
    )
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    trainer = method.attach(layer, optimizer)
    before = positions(layer)
    x = torch.randn(16, 32, dtype=torch.float64)
    layer(x).square().sum().backward()
    gradient = 2 * layer(x).mT @ x
    optimizer.step()
    after = positions(layer)
    scores = gradient.detach().view(8, 4, 8, 4).abs().sum(dim=(1, 3)).flatten()
    scores[before] = -1
    grown = after[~torch.isin(after, before)]
    assert trainer.history[-1].total == len(grown) > 0
    for row in range(8):
        here = grown[grown // 8 == row]
        best = scores.view(8, 8)[row].topk(len(here)).indices + 8 * row
        assert here.tolist() == sorted(best.tolist())
