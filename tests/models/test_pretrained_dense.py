"""The dense twin of a model with sparse layers is a checkpoint that needs nothing of ours."""

import copy
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from sparsetile import nn as stnn
from sparsetile.models import to_dense_checkpoint
from sparsetile.nn import densify_, sparsify_
from support_ops import most_bytes
from support_transformers import bert, gpt2, llama, t5

MODELS = {"bert": bert, "gpt2": gpt2, "llama": llama, "t5": t5}


def sparse(make):
    torch.manual_seed(0)
    return sparsify_(make(), density=0.5, blocksize=8, embeddings=True).eval()


def logits(model):
    ids = torch.randint(1, 64, (3, 10), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(input_ids=ids, labels=ids).logits


@pytest.mark.parametrize("most", [10**9, 20_000])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_transformers_loads_it(make, most, tmp_path):
    model = sparse(make)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    folder = to_dense_checkpoint(model, tmp_path / "m", most_bytes=most)
    assert len(list(folder.glob("*.safetensors"))) == 1 if most > 20_000 else 2
    again, told = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    assert not any(isinstance(m, stnn.BlockSparse | stnn.TiedHead) for m in again.modules())
    want = densify_(copy.deepcopy(model)).state_dict()
    assert want.keys() == again.state_dict().keys()
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, want[name]), name
    torch.testing.assert_close(logits(again), logits(model))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


class Net(nn.Module):
    """A recurrent layer, and others."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(20, 12, num_layers=2)
        self.up = nn.Linear(12, 30, dtype=torch.bfloat16)
        self.norm = nn.BatchNorm1d(30)
        self.register_buffer("odd", torch.tensor([1, 0, 1], dtype=torch.uint8))


def test_a_plain_module_gets_its_own_names(tmp_path):
    model = sparsify_(
        Net(), density=0.5, blocksize=8, filter=lambda module, name: name in ("rnn", "up")
    )
    folder = to_dense_checkpoint(model, tmp_path / "m")
    again = Net()
    again.load_state_dict(load_file(folder / "model.safetensors"))
    want = densify_(model).state_dict()
    for name, tensor in again.state_dict().items():
        assert tensor.dtype == want[name].dtype and torch.equal(tensor, want[name]), name


def test_one_layer_at_a_time_is_dense(tmp_path):
    layers = [stnn.Linear(512, 512, density=0.05) for _ in range(6)]
    model = nn.Sequential(*layers)
    one = 512 * 512 * 4
    assert most_bytes(lambda: to_dense_checkpoint(model, tmp_path / "m")) <= 2 * one
    assert not any(hasattr(layer, "weight") and layer.values.numel() == one for layer in layers)
    again = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])
    again.load_state_dict(load_file(tmp_path / "m" / "model.safetensors"))
    x = torch.randn(3, 512)
    torch.testing.assert_close(again(x), model(x))


def test_the_index_names_every_tensor(tmp_path):
    folder = to_dense_checkpoint(sparse(gpt2), tmp_path / "m", most_bytes=20_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for name, file in index["weight_map"].items():
        assert name in load_file(folder / file)
