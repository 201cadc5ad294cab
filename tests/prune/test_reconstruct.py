import pytest
import torch

from sparsetile.prune import LeastSquares
from sparsetile.prune import _reconstruct as module
from support_prune import correlated, layer_of, mask_of


def by_lstsq(layer, blocks, x, ridge):
    """Each row alone, as an overdetermined system; the ridge is written as further equations."""
    mask, k = mask_of(blocks, layer), x.shape[1]
    rows = torch.cat([x, ridge**0.5 * torch.eye(k, dtype=x.dtype)])
    solved = torch.zeros_like(layer.weight)
    for i, keep in enumerate(mask):
        if keep.any():
            # In the ridge a kept value is pulled to its own dense one alone.
            A, b = rows[:, keep], rows @ layer.weight[i]
            solved[i, keep] = torch.linalg.lstsq(A, b[:, None]).solution[:, 0]
    return solved


@pytest.mark.parametrize("density", [0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(
    ("shape", "blocksize"),
    [((12, 20), 1), ((13, 23), 4), ((10, 21), (2, 5)), ((5, 7), (8, 2)), ((9, 16), (1, 16))],
)
def test_values_solve_the_least_squares_problem(shape, blocksize, density):
    x = correlated(150, shape[1])
    layer = layer_of(torch.randn(shape, dtype=torch.float64), blocksize, density, x)
    blocks = torch.rand(layer.grid) < density
    ridge = 0.01 * float(layer.inputs.gram.diagonal().mean())
    got = LeastSquares(damping=0.01).solve(layer, blocks)
    torch.testing.assert_close(got, by_lstsq(layer, blocks, x, ridge), rtol=1e-8, atol=1e-9)


def test_rows_of_different_size_are_solved_in_batches(monkeypatch):
    x = correlated(150, 24)
    layer = layer_of(torch.randn(20, 24, dtype=torch.float64), 2, 0.5, x)
    blocks = torch.rand(layer.grid) < torch.rand(layer.grid[0], 1)
    at_once = LeastSquares().solve(layer, blocks)
    seen = []
    whole = module._solved
    monkeypatch.setattr(module, "_solved", lambda *a: seen.append(len(a[1])) or whole(*a))
    monkeypatch.setattr(module, "_BYTES", 1000)
    torch.testing.assert_close(LeastSquares().solve(layer, blocks), at_once)
    assert len(seen) > 2


def test_nothing_moves_where_all_is_kept():
    layer = layer_of(torch.randn(8, 12, dtype=torch.float64), 4, 1.0, correlated(50, 12))
    solved = LeastSquares().solve(layer, torch.ones(2, 3, dtype=torch.bool))
    torch.testing.assert_close(solved, layer.weight)


def test_more_features_than_samples_stays_near_the_dense_weights():
    layer = layer_of(torch.randn(8, 40, dtype=torch.float64), 4, 0.5, correlated(5, 40))
    blocks = torch.ones(layer.grid, dtype=torch.bool)
    blocks[:, 0] = False
    solved = LeastSquares().solve(layer, blocks)
    assert float((solved - layer.weight)[:, 4:].norm()) < float(layer.weight[:, :4].norm())


@pytest.mark.parametrize("damping", [0, -1.0, float("nan"), float("inf")])
def test_damping_out_of_range_is_refused(damping):
    with pytest.raises(ValueError, match=r"damping: got .*; allowed: a finite number above 0"):
        LeastSquares(damping=damping)


def test_half_precision_is_refused():
    with pytest.raises(ValueError, match=r"dtype: got torch.bfloat16; allowed: torch.float32"):
        LeastSquares(dtype=torch.bfloat16)
