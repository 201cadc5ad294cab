"""Inspection counts zeros, blocks and bytes of modules, checkpoints and matrices."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.ao.pruning import WeightNormSparsifier
from torch.nn.utils import parametrize, prune

from sparsetile.matrix import BSR, random_pattern, save
from sparsetile.models import inspect, save_pretrained
from sparsetile.nn import Embedding, Linear
from support import without_type_checks
from support_models import sparse_weight

SIDES = (1, 4, 8, 16, 32)


def filled(m, k, block, density, dtype=torch.float32):
    layer = nn.Linear(k, m, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(sparse_weight(m, k, block=block, density=density, dtype=dtype)[0])
    return layer


def counted(weight, side):
    """Live blocks, one by one."""
    blocks = [block for rows in weight.split(side) for block in rows.split(side, dim=1)]
    return sum(bool((block != 0).any()) for block in blocks), len(blocks)


def check(layer, weight):
    m, k = weight.shape
    size = weight.element_size()
    assert layer.shape == (m, k) and layer.dense_bytes == m * k * size
    assert layer.zeros == pytest.approx(float((weight == 0).double().mean()), abs=1e-12)
    for side in SIDES:
        live, blocks = counted(weight, side)
        assert layer.live[side] == live / blocks
        indices = 4 * (live + -(-m // side) + 1)
        assert layer.block_bytes[side] == live * side * side * size + indices


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("m", "k"), [(64, 64), (37, 70), (5, 3)])
@pytest.mark.parametrize("block", [1, 4, 16])
def test_modules_are_counted_block_by_block(m, k, block, dtype):
    layer = filled(m, k, block, 0.2, dtype)
    check(inspect(nn.Sequential(layer))["0"], layer.weight.detach())


def test_each_kind_of_layer_is_found_and_named():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(32, 64),
        prune.random_unstructured(nn.Linear(64, 64), "weight", amount=0.9),
        Linear(64, 64, density=0.25, blocksize=16),
        Embedding(16, 64, density=0.5, blocksize=4),
        nn.BatchNorm1d(64),
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = inspect(model)
    kinds = {layer.name: layer.kind for layer in found.layers}
    assert kinds == {"0": "dense", "1": "masked", "2": "sparse 16×16", "3": "sparse 4×4"}
    assert found["0"].why == "0 % zeros: stays dense" and found["0"].blocksize is None
    mask = model[1].weight_mask
    assert found["1"].zeros == pytest.approx(float((mask == 0).double().mean()))
    assert "stored as" not in found["1"].why and "of 32×32 blocks are live" in found["1"].why
    assert found["1"].bytes == 2 * found["1"].dense_bytes
    values = model[2].values
    assert found["2"].zeros == 0.75 and found["2"].live[16] == 0.25
    assert found["2"].bytes == values.nbytes + 4 * (5 + 4)
    assert "stored in 16×16 already, 3.5× as fast as dense" in found["2"].why
    assert found.other_tensors == 3 + 5
    rest = sum(t.nbytes for n, t in before.items() if n.endswith("bias") or n.startswith("4."))
    assert found.other_bytes == rest
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for words in ("Sequential: dense, masked, sparse 16×16", "live 1", "total", "other tensors"):
        assert words in str(found)
    with pytest.raises(KeyError):
        found["9"]


def test_stored_zeros_of_a_sparse_layer_count_as_kept():
    layer = Linear(8, 8, density=0.5, blocksize=4)
    with torch.no_grad():
        layer.values.zero_()
    assert inspect(layer).layers[0].zeros == 0.5


def test_masks_of_parametrizations_count():
    model = nn.Sequential(nn.Linear(16, 16))
    sparsifier = WeightNormSparsifier(sparsity_level=0.5, sparse_block_shape=(1, 4))
    sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    layer = inspect(model)["0"]
    assert (layer.kind, layer.zeros) == ("masked", 0.5)


def test_computed_weights_are_counted_as_they_are():
    class Half(nn.Module):
        def forward(self, weight):
            return torch.cat([weight[:, :8], torch.zeros_like(weight[:, 8:])], dim=1)

    layer = nn.Linear(16, 16)
    parametrize.register_parametrization(layer, "weight", Half())
    found = inspect(nn.Sequential(layer))["0"]
    assert (found.kind, found.zeros) == ("computed", 0.5)


def test_conv1d_of_transformers_is_turned():
    from transformers.pytorch_utils import Conv1D

    layer = Conv1D(12, 8)
    with torch.no_grad():
        layer.weight[:, 4:] = 0
    check(inspect(nn.Sequential(layer))["0"], layer.weight.detach().t())


def test_empty_layers_and_models_hold_nothing():
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(torch.empty(4, 0))
    found = inspect(nn.Sequential(layer))
    assert found.layers[0].zeros == 0.0 and found.dense_bytes == 0
    assert inspect(nn.ReLU()).layers == () and "total" in str(inspect(nn.ReLU()))


@pytest.mark.parametrize("kind", ["folder", "safetensors", "pt"])
def test_checkpoints_are_read_tensor_by_tensor(tmp_path, kind):
    weight = sparse_weight(64, 48, block=4, density=0.2)[0]
    state = {"up.weight": weight, "up.bias": torch.ones(64), "conv": torch.ones(2, 2, 3, 3)}
    path = tmp_path / {"folder": "model", "safetensors": "m.safetensors", "pt": "m.pt"}[kind]
    if kind == "pt":
        torch.save(state, path)
    else:
        (tmp_path / "model").mkdir()
        save_file(state, path / "model.safetensors" if kind == "folder" else path)
    found = inspect(path)
    check(found["up.weight"], weight)
    assert found.source == path.name and found.formats == ("dense",)
    assert (found.other_tensors, found.other_bytes) == (2, 64 * 4 + 36 * 4)
    assert found["up.weight"].blocksize == 4
    assert found.best_bytes == found["up.weight"].block_bytes[4] < found.dense_bytes
    assert "by estimate" in str(found)


def test_masks_and_our_own_layers_in_files_are_named(tmp_path):
    layer = prune.l1_unstructured(nn.Linear(32, 32), "weight", amount=0.75)
    torch.save(nn.Sequential(layer).state_dict(), tmp_path / "pruned.pt")
    found = inspect(tmp_path / "pruned.pt")
    assert found["0.weight"].kind == "torch.nn.utils.prune"
    assert found["0.weight"].zeros == 0.75
    model = nn.Sequential(Linear(64, 32, density=0.25, blocksize=8), nn.ReLU())
    save_pretrained(model, tmp_path / "ours")
    found = inspect(tmp_path / "ours")
    assert found["0.weight"].kind == "sparsetile" and found["0.weight"].live[8] == 0.25


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz", ".smtx", ".npz", ".pt", ".safetensors"])
def test_files_of_one_matrix_are_read_too(tmp_path, suffix):
    pattern = random_pattern(40, 24, blocksize=4, density=0.25, seed=0)
    values = torch.rand(pattern.nnzb, 4, 4) + 1
    path = tmp_path / f"a{suffix}"
    save(pattern if suffix == ".smtx" else BSR(values, pattern), path)
    (layer,) = inspect(path).layers
    assert layer.name == "" and layer.live[4] == pattern.nnzb / 60
    assert layer.zeros == 1 - pattern.nnzb / 60


def test_pictures_are_drawn_of_what_has_zeros(tmp_path):
    model = nn.ModuleDict({"a/b": filled(8, 8, 4, 0.5), "A_b": filled(8, 8, 4, 0.5)})
    model["full"] = nn.Linear(4, 4)
    told = []
    found = inspect(model, spy=tmp_path / "new" / "pictures", progress=lambda *a: told.append(a))
    files = sorted(path.name for path in (tmp_path / "new" / "pictures").iterdir())
    assert files == ["A_b-2.svg", "a_b.svg"]
    assert set(found.pictures) == {"a/b", "A_b"}
    for file in found.pictures.values():
        with open(file) as picture:
            assert picture.read().startswith("<svg")
    assert told == [(0, 3, "a/b"), (1, 3, "A_b"), (2, 3, "full"), (3, 3, "")]


def test_json_holds_all_of_it(tmp_path):
    model = nn.Sequential(filled(32, 32, 4, 0.2), nn.Linear(4, 4))
    with torch.no_grad():
        model[1].weight.zero_()  # nothing to compute: a gain that JSON cannot say
    found = json.loads(inspect(model).to_json(), parse_constant=pytest.fail)
    assert [layer["name"] for layer in found["layers"]] == ["0", "1"]
    assert found["layers"][0]["live"].keys() == {"1", "4", "8", "16", "32"}
    assert found["layers"][1]["gain"] is None and found["layers"][1]["zeros"] == 1.0
    assert found["dense_bytes"] == 4 * (32 * 32 + 16)


BAD = [
    (3, {}, TypeError, "model: got a int"),
    (b"a", {}, TypeError, "model: got a bytes"),
    (nn.Linear(4, 4, device="meta"), {}, ValueError, "meta device"),
    (Linear(4, 4, density=1.0, blocksize=4).to("meta"), {}, ValueError, "meta device"),
    (nn.ReLU(), {"spy": 3}, TypeError, "spy: got a int"),
    (nn.ReLU(), {"progress": 3}, TypeError, "progress: got 3"),
    ("nowhere.safetensors", {}, FileNotFoundError, "no such file"),
    ("nowhere.mtx", {}, FileNotFoundError, "no such file"),
    ("nowhere", {}, FileNotFoundError, "no such file"),
]


@pytest.mark.parametrize(("model", "flags", "error", "words"), BAD)
def test_bad_input_is_refused_by_name(model, flags, error, words):
    with without_type_checks(), pytest.raises(error, match=words):
        inspect(model, **flags)


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "a.mtx", "a.npz", "a.smtx", "a.onnx"])
def test_damaged_files_are_refused_with_their_name(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"\x93\x00 nothing of the kind" * 3)
    with pytest.raises((ValueError, ImportError), match=name):
        inspect(path)


def test_pictures_never_replace_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match="spy: got"):
        inspect(nn.ReLU(), spy=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
