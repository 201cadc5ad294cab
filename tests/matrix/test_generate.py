import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import (
    banded_pattern,
    block_diagonal_pattern,
    causal_pattern,
    pattern_of,
    random_pattern,
)
from sparsetile.matrix._generate import _choose
from support import SHAPES

SIZES = st.integers(0, 13)
BLOCKS = st.tuples(st.integers(1, 4), st.integers(1, 4))


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("density", [1e-9, 0.1, 0.37, 0.5, 0.8, 1.0])
def test_count_of_blocks_is_exact(kind, density, balanced):
    m, k, blocksize, _ = SHAPES[kind]
    p = random_pattern(m, k, blocksize=blocksize, density=density, seed=1, balanced=balanced)
    blocks = p.grid[0] * p.grid[1]
    assert p.nnzb == min(blocks, max(1, round(density * blocks)))


def test_a_seed_gives_the_same_blocks_on_every_machine():
    p = random_pattern(512, 512, blocksize=4, density=0.2, seed=7)
    digest = hashlib.sha256(p.col_indices.numpy().astype("<i4").tobytes()).hexdigest()
    assert digest.startswith("8969b9750361f198")


def test_seeds_give_different_blocks():
    first, second = (random_pattern(64, 64, blocksize=4, density=0.2, seed=s) for s in (0, 1))
    assert first != second


def test_every_block_is_as_likely_as_any_other():
    hits = torch.zeros(4, 5)
    for seed in range(600):
        hits += random_pattern(4, 5, blocksize=1, density=0.3, seed=seed).block_mask()
    # 600 draws of probability 0.3: five standard deviations.
    assert (hits - 180).abs().amax() < 5 * (600 * 0.3 * 0.7) ** 0.5


@pytest.mark.parametrize("balanced", [False, True])
def test_a_huge_grid_takes_memory_for_its_blocks_alone(balanced):
    # 2^40 places, of which a mark each would be a terabyte.
    p = random_pattern(2**20, 2**20, blocksize=1, density=2.0**-30, seed=0, balanced=balanced)
    assert p.nnzb == 2**10
    assert p.col_indices.unique().numel() > 1000


@pytest.mark.parametrize("count, size", [(9, 1000), (3, 300), (0, 5)])
def test_a_list_of_places_is_what_marks_in_the_grid_would_be(count, size):
    bits = np.random.PCG64(3)
    drawn = _choose(np.random.PCG64(3), count, size)
    marked = np.zeros(size, dtype=bool)
    while missing := count - marked.sum():
        marked[bits.random_raw(missing) % np.uint64(size)] = True
    assert drawn.tolist() == np.flatnonzero(marked).tolist()


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, BLOCKS, st.integers(0, 15), st.integers(0, 15))
def test_band_keeps_the_blocks_that_touch_it(m, k, blocksize, lower, upper):
    offset = torch.arange(k) - torch.arange(m)[:, None]
    want = pattern_of((offset >= -lower) & (offset <= upper), blocksize)
    assert banded_pattern(m, k, blocksize=blocksize, lower=lower, upper=upper) == want


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, BLOCKS, st.integers(-15, 15))
def test_causal_is_the_lower_triangle(m, k, blocksize, diagonal):
    want = pattern_of(torch.ones(m, k, dtype=torch.bool).tril(diagonal), blocksize)
    assert causal_pattern(m, k, blocksize=blocksize, diagonal=diagonal) == want


def test_block_diagonal_without_groups_is_the_diagonal():
    p = block_diagonal_pattern(10, 10, blocksize=3)
    assert torch.equal(p.block_mask(), torch.eye(4, dtype=torch.bool))


@pytest.mark.parametrize(("m", "k", "groups"), [(12, 12, 3), (12, 24, 2), (14, 10, 5), (8, 8, 1)])
def test_groups_cover_all_rows_and_columns_and_nothing_twice(m, k, groups):
    p = block_diagonal_pattern(m, k, blocksize=2, groups=groups)
    rows, mask = p.block_mask().unique(dim=0), p.block_mask()
    assert len(rows) == groups and mask.any(1).all() and (rows.sum(0) == 1).all()


@pytest.mark.parametrize(("m", "k"), [(0, 4), (4, 0), (0, 0)])
def test_empty_matrices_have_no_blocks(m, k):
    assert block_diagonal_pattern(m, k, blocksize=2).nnzb == 0
