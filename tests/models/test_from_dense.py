"""Dense models full of zeros become sparse, say why, and compute the same function."""

import pytest
import torch
from torch import nn
from torch.ao.pruning import WeightNormSparsifier
from torch.nn.utils import parametrize, prune

from sparsetile.models import from_dense
from sparsetile.nn import Linear
from support_models import mlp, sparse_weight

X = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))


def filled(block, density, *, m=96, k=64, seed=0, dtype=torch.float32):
    layer = nn.Linear(k, m, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(sparse_weight(m, k, block=block, density=density, seed=seed)[0])
    return layer


# Blocks of the weight, density, what it is to be stored in, what the reason says.
CHOICES = [
    (1, 0.1, 1, "of 32×32 blocks are live: stored as 1×1"),
    (4, 0.2, 4, "blocks are live: stored as 4×4"),
    (8, 0.2, 8, "stored as 8×8"),
    (16, 0.2, 16, "stored as 16×16"),
    (32, 0.4, 32, "stored as 32×32"),
    (1, 0.5, None, "stays dense"),
    (1, 1.0, None, "0 % zeros: stays dense"),
    (16, 1.0, None, "0 % zeros: stays dense"),
]


@pytest.mark.parametrize(("block", "density", "side", "why"), CHOICES)
def test_blocks_are_chosen_by_what_is_live(block, density, side, why):
    dense = nn.Sequential(filled(block, density))
    model, report = from_dense(dense)
    layer = report["0"]
    assert layer.blocksize == side and why in layer.why and why in str(report)
    assert isinstance(model[0], Linear) == (side is not None)
    torch.testing.assert_close(model(X), dense(X))
    assert layer.bytes_before == 96 * 64 * 4
    if side is None:
        assert layer.bytes_after == layer.bytes_before
        return
    weight = model[0].weight
    assert model[0].blocksize == (side, side)
    assert torch.equal(weight.to_dense(), dense[0].weight)
    parts = (model[0].values, model[0].crow_indices, model[0].col_indices)
    assert layer.bytes_after == sum(part.nbytes for part in parts) < layer.bytes_before
    assert set(layer.live) == {1, 4, 8, 16, 32}
    for at in layer.live:
        mb, kb = -(-96 // at), -(-64 // at)
        live = sum(
            bool((block != 0).any())
            for rows in dense[0].weight.detach().split(at)
            for block in rows.split(at, dim=1)
        )
        assert layer.live[at] == live / (mb * kb)


def test_scattered_zeros_are_told_honestly():
    _, report = from_dense(nn.Sequential(filled(1, 0.1, m=320, k=320)))
    assert report["0"].why == "90 % zeros, but 100 % of 32×32 blocks are live: stored as 1×1"
    low = filled(1, 0.1, m=320, k=320, dtype=torch.bfloat16)
    _, report = from_dense(nn.Sequential(low))
    assert report["0"].blocksize is None and "single values cost too much" in report["0"].why


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (33, 65), (96, 31)])
def test_odd_sizes_hold_every_value(shape):
    dense = filled(8, 0.2, m=shape[0], k=shape[1])
    model, _ = from_dense(nn.Sequential(dense), min_gain=0)
    x = torch.randn(3, shape[1])
    torch.testing.assert_close(model(x), dense(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_keeps_its_values(dtype):
    dense = nn.Sequential(filled(16, 0.2, dtype=dtype))
    model, report = from_dense(dense)
    assert report["0"].blocksize == 16
    assert torch.equal(model[0].weight.to_dense(), dense[0].weight)


def test_a_weight_of_zeros_stores_nothing():
    dense = nn.Sequential(nn.Linear(64, 32))
    nn.init.zeros_(dense[0].weight)
    model, report = from_dense(dense)
    assert model[0].nnzb == 0 and report["0"].zeros == 1
    torch.testing.assert_close(model(X), dense(X))


def test_the_model_given_is_left_alone():
    dense = mlp(64, 96, 8)
    with torch.no_grad():
        dense[0].weight[:, 8:] = 0
    before = {name: t.clone() for name, t in dense.state_dict().items()}
    model, _ = from_dense(dense, reorder=True)
    assert isinstance(model[0], Linear) and type(dense[0]) is nn.Linear
    with torch.no_grad():
        for p in model.parameters():
            p.add_(1)
    assert all(torch.equal(before[name], t) for name, t in dense.state_dict().items())


def test_pruning_masks_are_applied():
    dense = mlp(64, 96, 8)
    prune.ln_structured(dense[0], "weight", amount=0.75, n=1, dim=1)
    prune.l1_unstructured(dense[0], "bias", amount=0.5)
    prune.l1_unstructured(dense[2], "weight", amount=0.9)
    out = dense(X)  # so that a graph hangs on the computed weights
    model, report = from_dense(dense)
    torch.testing.assert_close(model(X), out)
    assert report["0"].zeros == 0.75 and report["2"].blocksize == 1
    assert not any("orig" in name or "mask" in name for name in model.state_dict())
    assert prune.is_pruned(dense)


def test_sparsifiers_of_torch_are_understood():
    dense = mlp(64, 96, 8)
    sparsifier = WeightNormSparsifier(
        sparsity_level=0.8, sparse_block_shape=(8, 8), zeros_per_block=64
    )
    sparsifier.prepare(dense, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    out = dense(X)
    model, report = from_dense(dense)
    torch.testing.assert_close(model(X), out)
    assert report["0"].blocksize == 8 and report["0"].zeros == pytest.approx(0.8, abs=0.02)
    torch.testing.assert_close(dense(X), out)  # the copy took nothing from it
    sparsifier.squash_mask()
    assert from_dense(dense).report["0"].blocksize == 8


def test_custom_masks_keep_the_zeros_inside():
    dense = nn.Sequential(filled(1, 1.0))
    mask = sparse_weight(96, 64, block=16)[1]
    prune.custom_from_mask(dense[0], "weight", mask.float())
    with torch.no_grad():
        dense[0].weight_orig[0, 0] = 0
    model, _ = from_dense(dense)
    assert torch.equal(model[0].pattern.to_mask(), mask)


class Twice(nn.Module):
    def forward(self, w):
        return 2 * w


def test_other_parametrizations_and_shared_weights_stay():
    model = nn.ModuleDict({"a": filled(16, 0.2), "b": filled(16, 0.2), "c": nn.Linear(64, 96)})
    parametrize.register_parametrization(model["a"], "weight", Twice())
    model["c"].weight = model["b"].weight
    sparse, report = from_dense(model)
    torch.testing.assert_close(sparse["a"](X), model["a"](X))
    assert not any(isinstance(m, Linear) for m in sparse.modules())
    assert "shared with c.weight" in report["b"].why


def test_attention_stays_dense_and_says_so():
    model = nn.MultiheadAttention(16, 2)
    nn.init.zeros_(model.out_proj.weight)
    sparse, report = from_dense(model)
    assert "plain weight" in report["out_proj"].why
    x = torch.randn(3, 1, 16)
    torch.testing.assert_close(sparse(x, x, x)[0], model(x, x, x)[0])


def test_filter_and_blocksize_are_followed():
    dense = nn.Sequential(filled(16, 0.2), nn.ReLU(), filled(16, 0.2, m=8, k=96))
    model, report = from_dense(dense, 4, filter=lambda module, name: name == "0")
    assert model[0].blocksize == (4, 4) and type(model[2]) is nn.Linear
    assert [layer.name for layer in report.layers] == ["0"]
    assert from_dense(dense, min_gain=100).report["0"].blocksize is None
    assert from_dense(filled(16, 0.2)).model.blocksize == (16, 16)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"model": 3}, TypeError, "model"),
        ({"blocksize": 5}, ValueError, "blocksize: got 5"),
        ({"blocksize": "large"}, TypeError, "blocksize"),
        ({"blocksize": True}, TypeError, "blocksize"),
        ({"filter": 3}, TypeError, "filter"),
        ({"min_gain": -1}, ValueError, "min_gain"),
        ({"min_gain": float("nan")}, ValueError, "min_gain"),
        ({"reorder": 1}, TypeError, "reorder"),
    ],
)
def test_wrong_arguments_are_refused(change, error, text):
    with pytest.raises(error, match=text):
        from_dense(**{"model": mlp()} | change)
