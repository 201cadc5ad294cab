"""spmm: what it must leave alone, and its operator; test_agreement has the sums."""

import torch

from sparsetile.matrix import BSR, random_pattern
from sparsetile.ops import spmm
from support_ops import assert_close, dense_of, pattern_from, values_for


def test_spmm_leaves_empty_rows_zero(compute):
    pattern = pattern_from((12, 8), (4, 4), [[0, 1], [0, 0], [1, 0]])
    values = values_for(pattern)
    y = compute(lambda: spmm(values, pattern, torch.randn(8, 3)), ("spmm",), values.dtype, (4, 4))
    assert torch.equal(y[4:8], torch.zeros(4, 3))


def test_spmm_ignores_rows_that_no_block_touches(compute):
    pattern = pattern_from((8, 12), (4, 4), [[1, 0, 0], [0, 0, 1]])
    x, values = torch.randn(12, 5), values_for(pattern)
    poisoned = x.clone()
    poisoned[4:8] = float("nan")
    y = compute(lambda: spmm(values, pattern, poisoned), ("spmm",), x.dtype, (4, 4))
    assert_close(y, dense_of(values.double(), pattern) @ x.double(), x.dtype, "y")


def test_matrix_operators_multiply(on_reference):
    pattern = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
    values, x = values_for(pattern), torch.randn(12, 3)
    assert_close(
        BSR(values, pattern) @ x,
        dense_of(values.double(), pattern) @ x.double(),
        torch.float32,
        "A @ x",
    )
