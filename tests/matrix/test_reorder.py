import pytest
import torch

from sparsetile.matrix import BSR, pattern_of, reorder
from support import SHAPES, some_pattern, some_values, without_type_checks


def shuffled(w, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows, cols = (torch.randperm(size, generator=generator) for size in w.shape)
    return w[rows][:, cols]


@pytest.mark.parametrize("kept", [1.0, 0.5])
def test_hidden_blocks_are_found(kept):
    A = BSR.random(512, 384, blocksize=16, density=0.1, seed=1)
    w = A.to_dense() * (torch.rand(512, 384) < kept)
    found = reorder(shuffled(w), 16)
    # At least 95 % of what could be saved, and here all of it.
    assert found.before.live > 0.9 * found.before.blocks
    assert found.after.live <= A.nnzb * 1.05
    assert "almost nothing" not in str(found) and found.gain > 0.8


def test_only_the_sides_that_may_move_move():
    w = BSR.random(128, 128, blocksize=8, density=0.2, seed=1).to_dense()
    rows = w[torch.randperm(128)]
    found = reorder(rows, 8, cols=False)
    assert torch.equal(found.cols, torch.arange(128)) and found.after.live == 51
    assert reorder(rows.T, 8, rows=False).after.live == 51
    assert reorder(rows, 8, rows=False, cols=False).gain == 0


@pytest.mark.parametrize("blocksize", [1, 4, (1, 4), (3, 1), 64])
@pytest.mark.parametrize("kind", SHAPES)
def test_the_count_is_true_and_never_worse(kind, blocksize):
    pattern = some_pattern(kind)
    A = BSR(some_values(pattern), pattern)
    w = A.to_dense()
    found = reorder(A, blocksize, seed=3)
    for order, size in ((found.rows, w.shape[0]), (found.cols, w.shape[1])):
        assert torch.equal(order.sort().values, torch.arange(size))
    moved = found.apply(w)
    assert torch.equal(moved, w[found.rows][:, found.cols])
    assert pattern_of(moved != 0, blocksize).nnzb == found.after.live <= found.before.live
    assert torch.equal(found.inverse.apply(moved), w)
    blocks = found.apply(A)
    assert torch.equal(blocks.to_dense(), moved) and blocks.nnzb == found.after.live
    back = found.inverse.apply(blocks)
    assert torch.equal(back.to_dense(), w)
    assert found.apply(pattern_of(w != 0, 1)) == pattern_of(moved != 0, blocksize)


def test_a_product_is_the_same_in_the_new_order():
    w, x = (
        shuffled(BSR.random(64, 48, blocksize=8, density=0.3, seed=0).to_dense()),
        torch.randn(48),
    )
    found = reorder(w, 8)
    torch.testing.assert_close(found.apply(w) @ x[found.cols], (w @ x)[found.rows])


def test_zeros_without_structure_gain_almost_nothing_and_it_is_said():
    found = reorder((torch.rand(256, 256) < 0.1).float(), 16)
    assert 0 <= found.gain < 0.05 and "almost nothing" in str(found)


def test_the_same_seed_gives_the_same_order():
    w = (torch.rand(96, 80) < 0.03).float()
    first, second = reorder(w, 4, seed=5), reorder(w, 4, seed=5)
    assert torch.equal(first.rows, second.rows) and torch.equal(first.cols, second.cols)
    assert 0 < first.gain


def test_gradients_flow_back():
    w = torch.eye(4).requires_grad_()
    found = reorder(torch.eye(4), 2)
    found.apply(w).sum().backward()
    assert torch.equal(w.grad, torch.ones(4, 4))


@pytest.mark.parametrize(
    "call, error, word",
    [
        (lambda: reorder([[1]], 2), TypeError, "weight"),
        (lambda: reorder(torch.eye(2), 0), ValueError, "blocksize"),
        (lambda: reorder(torch.eye(2), 2, rows=1), TypeError, "rows"),
        (lambda: reorder(torch.eye(2), 2, seed=-1), ValueError, "seed"),
        (lambda: reorder(torch.eye(2), 2).apply(torch.eye(3)), ValueError, "weight"),
        (lambda: reorder(torch.eye(2), 2).apply([1]), TypeError, "weight"),
    ],
)
def test_bad_input_is_named(call, error, word):
    with without_type_checks(), pytest.raises(error, match=rf"{word}.*; allowed: "):
        call()
