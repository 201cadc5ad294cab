import pytest
import torch

from sparsetile.prune import NM, LeastSquares, Magnitude, SparseGPT
from support_prune import correlated, layer_of, mask_of

SHAPES = [((12, 20), 1), ((12, 20), 4), ((13, 23), 4), ((10, 21), (2, 5)), ((7, 30), (4, 1))]


def hessian(layer, damping):
    gram = layer.inputs.gram
    return gram + damping * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)


def settled_left_to_right(layer, blocks, damping):
    """One block column after another, each time with the inverse of what is left of H."""
    H, W = hessian(layer, damping), layer.weight.clone()
    (r, c), k = layer.blocksize, layer.weight.shape[1]
    for j in range(layer.grid[1]):
        first, after = j * c, min((j + 1) * c, k)
        inverse = torch.linalg.inv(H[first:, first:])
        own = torch.linalg.inv(inverse[: after - first, : after - first])
        for row in range(len(W)):
            if not blocks[row // r, j]:
                change = W[row, first:after] @ own @ inverse[: after - first]
                W[row, first:] -= change
                W[row, first:after] = 0
    return W


@pytest.mark.parametrize("columns", [1, 8, 128])
@pytest.mark.parametrize(("shape", "blocksize"), SHAPES)
def test_kept_weights_make_up_for_what_left_exactly(shape, blocksize, columns):
    weight = torch.randn(shape, dtype=torch.float64)
    layer = layer_of(weight, blocksize, 0.5, correlated(200, shape[1]))
    kept = SparseGPT(columns=columns).prune(layer)
    assert int(kept.blocks.sum()) == layer.count
    wanted = settled_left_to_right(layer, kept.blocks, 0.01)
    torch.testing.assert_close(kept.weight, wanted, rtol=1e-9, atol=1e-10)
    assert bool((kept.weight[~mask_of(kept.blocks, layer)] == 0).all())


@pytest.mark.parametrize(("shape", "blocksize"), SHAPES)
def test_first_group_loses_the_blocks_that_cost_least(shape, blocksize):
    # With one group the costs are those of the untouched weights, columns to the left settled.
    weight = torch.randn(shape, dtype=torch.float64)
    layer = layer_of(weight, blocksize, 0.4, correlated(200, shape[1]))
    H, (r, c) = hessian(layer, 0.01), layer.blocksize
    costs = torch.zeros(layer.grid, dtype=torch.float64)
    for i in range(layer.grid[0]):
        for j in range(layer.grid[1]):
            w = weight[i * r : (i + 1) * r, j * c : (j + 1) * c]
            inverse = torch.linalg.inv(H[j * c :, j * c :])[: w.shape[1], : w.shape[1]]
            costs[i, j] = (w * torch.linalg.solve(inverse, w.T).T).sum()
    best = torch.zeros(costs.numel(), dtype=torch.bool)
    best[costs.flatten().topk(layer.count).indices] = True
    kept = SparseGPT(columns=128).prune(layer)
    assert torch.equal(kept.blocks.flatten(), best)


def test_one_weight_leaves_as_the_optimal_brain_surgeon_says():
    # Hassibi and Stork (1993): the weight w_q with the least w_q²/[H⁻¹]_qq leaves, and the others
    # change by -w_q/[H⁻¹]_qq times column q of H⁻¹. Here the first column goes, so all may change.
    x = correlated(100, 6)
    weight = torch.randn(1, 6, dtype=torch.float64)
    given = torch.tensor([[False, True, True, True, True, True]])
    layer = layer_of(weight, 1, 0.5, x, given=given)
    inverse = torch.linalg.inv(hessian(layer, 0.01))
    wanted = weight - weight[0, 0] / inverse[0, 0] * inverse[0]
    got = SparseGPT().prune(layer).weight
    torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("density", [0.75, 0.5, 0.3, 0.2])
@pytest.mark.parametrize("blocksize", [1, 4, 16])
def test_it_beats_block_magnitude_on_data_it_has_not_seen(blocksize, density):
    k = 192
    weight = torch.randn(96, k, dtype=torch.float64) * (0.3 + torch.rand(k, dtype=torch.float64))
    layer = layer_of(weight, blocksize, density, correlated(2000, k))
    unseen = layer_of(weight, blocksize, density, correlated(1000, k, seed=1)).inputs

    def error(method):
        kept = method.prune(layer)
        assert int(kept.blocks.sum()) == layer.count
        return unseen.error(weight, kept.weight * mask_of(kept.blocks, layer)), kept.blocks

    magnitude, _ = error(Magnitude())
    obs, blocks = error(SparseGPT())
    assert obs < 0.9 * magnitude
    assert unseen.error(weight, LeastSquares().solve(layer, blocks)) <= obs


@pytest.mark.parametrize("columns", [1, 6, 128])
@pytest.mark.parametrize("k", [24, 22])
def test_n_of_m_keeps_n_of_each_group(k, columns):
    weight = torch.randn(8, k, dtype=torch.float64)
    layer = layer_of(weight, 1, 0.5, correlated(200, k), nm=NM(2, 4))
    kept = SparseGPT(columns=columns).prune(layer)
    assert int(kept.blocks.sum()) == NM(2, 4).count((8, k))
    assert NM(2, 4).fits(kept.weight)
    wanted = settled_left_to_right(layer, kept.blocks, 0.01)
    torch.testing.assert_close(kept.weight, wanted, rtol=1e-9, atol=1e-10)


def test_blocks_that_left_before_stay_away():
    live = torch.rand(6, 10) < 0.6
    layer = layer_of(
        torch.randn(12, 20, dtype=torch.float64), 2, 0.4, correlated(100, 20), live=live
    )
    kept = SparseGPT(columns=4).prune(layer)
    assert int(kept.blocks.sum()) == layer.count
    assert not bool((kept.blocks & ~live).any())


@pytest.mark.parametrize("case", ["dead inputs", "few samples", "all zero", "one sample"])
def test_degenerate_inputs_give_finite_weights(case):
    x = correlated(100, 20)
    if case == "dead inputs":
        x[:, 5:9] = 0
    elif case == "few samples":
        x = x[:7]
    elif case == "all zero":
        x = torch.zeros_like(x)
    else:
        x = x[:1]
    layer = layer_of(torch.randn(12, 20, dtype=torch.float64), 4, 0.5, x)
    kept = SparseGPT().prune(layer)
    assert int(kept.blocks.sum()) == layer.count
    assert bool(kept.weight.isfinite().all())
    assert bool(LeastSquares().solve(layer, kept.blocks).isfinite().all())


def test_equal_groups_keep_equal_shares():
    layer = layer_of(torch.randn(8, 32, dtype=torch.float64), 1, 0.5, correlated(100, 32))
    kept = SparseGPT(columns=8, equal=True).prune(layer).blocks
    assert kept.view(8, 4, 8).sum(dim=(0, 2)).tolist() == [32] * 4


def test_dead_inputs_go_first():
    x = correlated(100, 16)
    x[:, 4:8] = 0
    layer = layer_of(torch.ones(4, 16, dtype=torch.float64), 4, 0.75, x)
    assert SparseGPT().prune(layer).blocks.tolist() == [[True, False, True, True]]


def test_float32_agrees_with_float64():
    layer = layer_of(torch.randn(16, 32), 4, 0.5, correlated(300, 32, dtype=torch.float32))
    wide = SparseGPT().prune(layer)
    narrow = SparseGPT(dtype=torch.float32).prune(layer)
    assert wide.weight.dtype == narrow.weight.dtype == torch.float32
    assert torch.equal(wide.blocks, narrow.blocks)
    torch.testing.assert_close(narrow.weight, wide.weight, rtol=1e-3, atol=1e-4)
