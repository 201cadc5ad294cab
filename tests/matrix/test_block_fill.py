import numpy as np
import pytest
import torch

from sparsetile.matrix import BSR, block_fill, pattern_of
from support import SHAPES, some_pattern, some_values, without_type_checks


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("blocksize", [1, 4, (2, 3), 64])
def test_live_blocks_are_those_of_the_mask(kind, blocksize):
    pattern = some_pattern(kind)
    values = some_values(pattern)
    values.view(-1)[::3] = 0
    A = BSR(values, pattern)
    want = pattern_of(A.to_dense() != 0, blocksize)
    for weight in (A, A.to_dense()):
        (found,) = block_fill(weight, (blocksize,))
        assert found.live == want.nnzb and found.blocks == np.prod(want.grid)
        assert found.nonzeros == int((A.to_dense() != 0).sum())
        assert found.dtype == torch.float32
    (found,) = block_fill(pattern, (blocksize,), dtype=torch.bfloat16)
    assert found.live == pattern_of(pattern.to_mask(), blocksize).nnzb


def test_shares_and_bytes_are_counted():
    w = torch.zeros(8, 6, dtype=torch.float64)
    w[0, 0] = w[1, 1] = w[7, 5] = 1
    (found,) = block_fill(w, [4])
    assert (found.live, found.blocks, found.share_live) == (2, 4, 0.5)
    assert found.fill == 3 / 32 and found.zeros == 1 - 3 / 48
    assert found.bytes == 2 * 16 * 8 + 4 * (2 + 3) and found.dense_bytes == 48 * 8


def test_the_sentence_is_honest():
    w = (torch.rand(256, 256) < 0.1).float()
    text = str(block_fill(w, (16,))[0])
    assert text.startswith("90 % zeros, but 100 % of 16×16 blocks are live")
    blocked = BSR.random(256, 256, blocksize=16, density=0.125, seed=0)
    assert ", and 12 % of 16×16 blocks are live" in str(block_fill(blocked, (16,))[0])


def test_nothing_is_no_trouble():
    for w in (torch.zeros(0, 3), torch.zeros(4, 4)):
        (found,) = block_fill(w, (2,))
        assert (found.live, found.share_live, found.fill) == (0, 0, 1)
        assert "of 2×2 blocks are live" in str(found)


@pytest.mark.parametrize(
    "call, error, word",
    [
        (lambda: block_fill([[1]]), TypeError, "weight"),
        (lambda: block_fill(torch.ones(3)), ValueError, "weight"),
        (lambda: block_fill(torch.eye(2), 4), TypeError, "blocksizes"),
        (lambda: block_fill(torch.eye(2), (4, 0)), ValueError, r"blocksizes\[1\]"),
        (lambda: block_fill(torch.eye(2), dtype="float"), TypeError, "dtype"),
    ],
)
def test_bad_input_is_named(call, error, word):
    with without_type_checks(), pytest.raises(error, match=rf"{word}.*; allowed: "):
        call()
