import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import pattern_from_dense, pattern_of
from support import SHAPES, patterns

NORMS = {
    "l1": lambda block: block.abs().sum(),
    "l2": lambda block: block.square().sum().sqrt(),
    "max": lambda block: block.abs().amax(),
}


@settings(max_examples=40, deadline=None)
@given(patterns())
def test_pattern_of_its_own_mask_is_the_pattern(pattern):
    assert pattern_of(pattern.to_mask(), pattern.blocksize) == pattern


def test_one_true_element_stores_its_block():
    mask = torch.zeros(7, 7, dtype=torch.bool)
    mask[6, 3] = True
    assert pattern_of(mask, 3).block_mask().nonzero().tolist() == [[2, 1]]


def test_a_mask_of_any_strides_is_read():
    mask = torch.zeros(6, 4, dtype=torch.bool)
    mask[5, 0] = True
    assert pattern_of(mask.T, 2).block_mask().nonzero().tolist() == [[0, 2]]


@pytest.mark.parametrize("score", NORMS)
@pytest.mark.parametrize("kind", SHAPES)
def test_the_strongest_blocks_are_kept(kind, score):
    m, k, (r, c), density = SHAPES[kind]
    w = torch.randn(m, k, dtype=torch.float64)
    p = pattern_from_dense(w, (r, c), density, score)
    mb, kb = p.grid
    scores = torch.tensor(
        [
            [NORMS[score](w[i * r : i * r + r, j * c : j * c + c]) for j in range(kb)]
            for i in range(mb)
        ]
    ).reshape(mb, kb)
    assert p.nnzb == round(density * mb * kb)
    want = scores.flatten().argsort(descending=True)[: p.nnzb].sort().values
    assert p.block_mask().flatten().nonzero()[:, 0].tolist() == want.tolist()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.floats(0.01, 1.0))
def test_among_equals_the_first_blocks_win(blocks, density):
    p = pattern_from_dense(torch.ones(1, 2 * blocks), (1, 2), density)
    assert p.col_indices.tolist() == list(range(max(1, round(density * blocks))))


def test_equals_fill_up_after_the_stronger():
    p = pattern_from_dense(torch.tensor([[1.0, 1.0, 2.0, 1.0]]), 1, 0.5)
    assert p.col_indices.tolist() == [0, 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_dtypes_are_scored_without_overflow(dtype):
    w = torch.full((2, 512), 300.0).to(dtype)
    w[1] = 301 if dtype == torch.int64 else 304
    assert pattern_from_dense(w, (1, 512), 0.5, "l2").row_indices.tolist() == [1]


def test_no_gradient_is_recorded():
    w = torch.randn(4, 4, requires_grad=True)
    assert pattern_from_dense(w, 2, 0.5).nnzb == 2
