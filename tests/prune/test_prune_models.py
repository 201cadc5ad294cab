import copy

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear, densify_
from sparsetile.prune import prune_
from support_prune import correlated
from support_transformers import bert, gpt2, llama

IDS = torch.arange(24).view(2, 12) % 60 + 1


@pytest.mark.parametrize("method", ["magnitude", "wanda", "sparsegpt"])
@pytest.mark.parametrize("make", [bert, gpt2, llama])
def test_transformers_models_are_pruned_and_tied_heads_left(make, method):
    model = make().eval()
    before = copy.deepcopy(model)
    head = model.get_output_embeddings()
    batch = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    batch["attention_mask"][0, 8:] = 0
    report = prune_(model, density=0.5, blocksize=4, method=method, calibration=[batch])
    assert model.get_output_embeddings() is head
    assert head.weight is model.get_input_embeddings().weight
    assert all(layer.output_error < 1 for layer in report.layers)
    with torch.no_grad():
        out, dense = (m(input_ids=IDS).logits for m in (densify_(copy.deepcopy(model)), before))
        torch.testing.assert_close(model(input_ids=IDS).logits, out, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(out, dense)


def test_conv1d_layers_are_turned_the_right_way():
    model = gpt2().eval()
    dense = copy.deepcopy(model)
    name = "transformer.h.0.mlp.c_fc"
    report = prune_(
        model,
        density=0.5,
        blocksize=4,
        method="sparsegpt",
        calibration=[IDS],
        filter=lambda module, at: at == name,
        sequential=True,
        steps=2,
    )
    seen = []
    layer = dense.get_submodule(name)
    layer.register_forward_hook(lambda module, args, out: seen.append(args[0]))
    dense(IDS)
    x = seen[0].reshape(-1, 32).detach()
    wanted, sparse = layer.weight.detach(), model.get_submodule(name).weight.to_dense().detach()
    error = (x @ wanted - x @ sparse.T).norm() / (x @ wanted).norm()
    assert report.layers[0].output_error == pytest.approx(float(error), rel=1e-3)


def test_layers_inside_torchs_encoder_are_reached():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = correlated(40, 16, dtype=torch.float32).view(4, 10, 16)
    report = prune_(model, density=0.5, blocksize=4, method="sparsegpt", calibration=[x])
    assert [row.name.split(".")[-1] for row in report.layers] == ["linear1", "linear2"] * 2
    assert isinstance(model.layers[0].linear1, Linear)
    assert model(x).isfinite().all()


def test_a_layer_used_in_two_places_counts_both():
    shared = nn.Linear(16, 16)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    prune_(model, density=0.5, blocksize=4, method="wanda", calibration=[torch.randn(9, 16)])
    assert model[0] is model[2] and isinstance(model[0], Linear)
