import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsetile.train import Constant, Cosine, DynSparse, Evenly, Every, Never, Stepped


@given(st.integers(1, 500), st.data())
def test_a_run_cut_into_n_pieces_has_n_minus_one_updates(total, data):
    pieces = data.draw(st.integers(1, total))
    clock = Evenly(pieces, total)
    steps = [step for step in range(1, total + 10) if clock.due(step)]
    assert len(steps) == pieces - 1
    gaps = [b - a for a, b in zip([0, *steps], [*steps, total], strict=True)]
    assert max(gaps) - min(gaps) <= 1


def test_every_leaves_out_the_last_step():
    assert [s for s in range(1, 20) if Every(4, 12).due(s)] == [4, 8]


def test_never_is_never():
    assert not any(Never().due(step) for step in range(1, 100))


@pytest.mark.parametrize("step", [1, 37, 100, 150, 199])
def test_cosine_is_the_published_formula(step):
    nnzb, total, ratio = 1001, 200, 0.3
    most = math.ceil(ratio * nnzb)
    expected = math.ceil(0.5 * most * (1 + math.cos(math.pi * step / total)))
    assert Cosine(ratio, total).count(step, nnzb) == expected


def test_cosine_moves_nothing_at_the_end():
    assert Cosine(0.5, 100).count(100, 1000) == 0


def test_constant_is_constant():
    assert {Constant(0.1).count(step, 55) for step in range(1, 9)} == {6}


def test_dynsparse_updates_79_times_by_default_and_not_at_the_end():
    clock = DynSparse(total_steps=1000).clock
    due = [step for step in range(1, 1001) if clock.due(step)]
    assert len(due) == 79
    assert due[-1] < 1000


def test_dynsparse_every_overrides_the_pieces():
    clock = DynSparse(total_steps=10, every=3).clock
    assert [s for s in range(1, 12) if clock.due(s)] == [3, 6, 9]


# Products that come out a little above the whole number that they are.
@pytest.mark.parametrize(
    ("ratio", "nnzb", "count"), [(0.07, 100, 7), (0.55, 100, 55), (0.14, 50, 7)]
)
@pytest.mark.parametrize(
    "amount", [Constant, lambda r: Cosine(r, 10**6), lambda r: Stepped((r,), 9)]
)
def test_a_share_that_is_whole_is_not_rounded_up(amount, ratio, nnzb, count):
    assert ratio * nnzb > count
    assert amount(ratio).count(1, nnzb) == count
