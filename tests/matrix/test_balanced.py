import hashlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import random_pattern


def loads(pattern):
    mask = pattern.block_mask().int()
    return mask.sum(1), mask.sum(0)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(0, 1, exclude_min=True),
    st.integers(0, 2**64 - 1),
)
def test_rows_and_columns_differ_by_one_block_at_most(m, k, density, seed):
    p = random_pattern(m, k, blocksize=1, density=density, seed=seed, balanced=True)
    assert p.nnzb == max(1, round(density * m * k))
    assert all(load.max() - load.min() <= 1 for load in loads(p))


def test_no_row_and_no_column_of_a_narrow_layer_is_empty():
    # Chance alone leaves 18 % of both empty here.
    p = random_pattern(256, 256, blocksize=16, density=0.1, seed=0, balanced=True)
    assert all(load.min() == 1 and load.max() == 2 for load in loads(p))


@pytest.mark.parametrize(("m", "k", "density"), [(4, 5, 0.3), (4, 5, 0.7), (8, 2, 0.2)])
def test_every_block_is_as_likely_as_any_other(m, k, density):
    hits = torch.zeros(m, k)
    for seed in range(600):
        p = random_pattern(m, k, blocksize=1, density=density, seed=seed, balanced=True)
        hits += p.block_mask()
    share = p.nnzb / (m * k)
    # 600 draws of probability `share`: five standard deviations.
    assert (hits - 600 * share).abs().amax() < 5 * (600 * share * (1 - share)) ** 0.5


def test_pairs_of_blocks_are_not_those_of_a_band():
    # Two of a row's blocks are neighbours as often as chance has it: once in 24 pairs or so.
    near = total = 0
    for seed in range(20):
        p = random_pattern(48, 48, blocksize=1, density=1 / 12, seed=seed, balanced=True)
        col = p.col_indices.view(48, 4).long()
        near += int((col.diff(dim=1) == 1).sum())
        total += 48 * 6
    assert near / total == pytest.approx(2 / 48, abs=0.012)


def test_a_seed_gives_the_same_blocks_on_every_machine():
    p = random_pattern(512, 512, blocksize=4, density=0.2, seed=7, balanced=True)
    digest = hashlib.sha256(p.col_indices.numpy().astype("<i4").tobytes()).hexdigest()
    assert digest.startswith("9cff7b7d0a0789ca")
