import pytest
import torch

from sparsetile.matrix import pattern_from_dense
from sparsetile.prune import NM, Magnitude, Wanda
from support_prune import correlated, layer_of, mask_of

SHAPES = [((12, 20), 1), ((13, 23), 4), ((10, 21), (2, 5)), ((5, 7), (8, 16))]
DENSITIES = [0.05, 0.3, 0.5, 0.9, 1.0]


def block_sums(values, layer):
    (r, c), (mb, kb) = layer.blocksize, layer.grid
    sums = torch.zeros(mb, kb, dtype=values.dtype)
    for i in range(mb):
        for j in range(kb):
            sums[i, j] = values[i * r : (i + 1) * r, j * c : (j + 1) * c].sum()
    return sums


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize(("shape", "blocksize"), SHAPES)
def test_magnitude_keeps_what_the_matrix_room_keeps(shape, blocksize, density):
    layer = layer_of(torch.randn(shape), blocksize, density)
    for score in ("l1", "l2", "max"):
        wanted = pattern_from_dense(layer.weight, layer.blocksize, density, score).block_mask()
        assert torch.equal(Magnitude(score).prune(layer).blocks, wanted)


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize(("shape", "blocksize"), SHAPES)
def test_wanda_compares_within_each_block_row(shape, blocksize, density):
    x = correlated(50, shape[1])
    layer = layer_of(torch.randn(shape, dtype=torch.float64), blocksize, density, x)
    kept = Wanda().prune(layer).blocks
    scores = block_sums(layer.weight.abs() * x.norm(dim=0), layer)
    assert int(kept.sum()) == layer.count
    per_row = kept.sum(1)
    assert int(per_row.max() - per_row.min()) <= 1
    for row, mine in zip(scores, kept, strict=True):
        if mine.any() and not mine.all():
            assert row[mine].min() >= row[~mine].max()


@pytest.mark.parametrize(("shape", "blocksize"), SHAPES)
def test_wanda_by_layer_keeps_the_best_of_all(shape, blocksize):
    x = correlated(50, shape[1])
    layer = layer_of(torch.randn(shape, dtype=torch.float64), blocksize, 0.5, x)
    kept = Wanda(compare="layer").prune(layer).blocks
    scores = block_sums(layer.weight.abs() * x.norm(dim=0), layer)
    assert int(kept.sum()) == layer.count
    assert kept.all() or scores[kept].min() >= scores[~kept].max()


def test_remainder_goes_to_the_rows_with_the_strongest_next_block():
    weight = torch.tensor([[9.0, 8.0, 1.0], [7.0, 2.0, 1.0], [6.0, 5.0, 4.0]])
    layer = layer_of(weight, 1, 5 / 9)
    kept = Magnitude(compare="row").prune(layer).blocks
    assert kept.int().tolist() == [[1, 1, 0], [1, 0, 0], [1, 1, 0]]


def test_wanda_ignores_weights_of_dead_inputs():
    x = torch.ones(4, 4)
    x[:, 0] = 0
    layer = layer_of(torch.tensor([[100.0, 1.0, 2.0, 3.0]]), 1, 0.5, x)
    assert Wanda().prune(layer).blocks.tolist() == [[False, False, True, True]]


@pytest.mark.parametrize("compare", ["layer", "row"])
def test_equal_scores_keep_the_first(compare):
    kept = Magnitude(compare=compare).prune(layer_of(torch.zeros(2, 4), 1, 0.5)).blocks
    wanted = [[1, 1, 1, 1], [0, 0, 0, 0]] if compare == "layer" else [[1, 1, 0, 0]] * 2
    assert kept.int().tolist() == wanted


@pytest.mark.parametrize("compare", ["layer", "row"])
def test_blocks_that_left_before_stay_away(compare):
    live = torch.zeros(4, 6, dtype=torch.bool)
    live[:, :3] = True
    layer = layer_of(torch.randn(4, 6), 1, 0.4, live=live)
    kept = Magnitude(compare=compare).prune(layer).blocks
    assert int(kept.sum()) == layer.count
    assert not bool((kept & ~live).any())


@pytest.mark.parametrize(("n", "m"), [(2, 4), (4, 8), (1, 4), (4, 4)])
@pytest.mark.parametrize("k", [16, 18, 3])
def test_n_of_m_keeps_the_strongest_of_each_group(n, m, k):
    weight = torch.randn(5, k)
    layer = layer_of(weight, 1, 0.5, torch.ones(2, k), nm=NM(n, m))
    for method in (Magnitude(), Wanda()):
        kept = method.prune(layer).blocks
        assert int(kept.sum()) == NM(n, m).count((5, k))
        for row in range(5):
            for first in range(0, k, m):
                group, mine = weight[row, first : first + m].abs(), kept[row, first : first + m]
                best = group.topk(min(n, len(group))).values.min()
                assert torch.equal(mine, group >= best)
        assert NM(n, m).fits(weight * mask_of(kept, layer))


@pytest.mark.parametrize(("n", "m", "error"), [(5, 4, ValueError), (0, 4, ValueError)])
def test_bad_n_of_m_is_refused(n, m, error):
    with pytest.raises(error, match=r"n: got .*; allowed: .*NM\(2, 4\)"):
        NM(n, m)
