"""What other libraries write is read as the weight that they meant."""

import pytest
import torch
from torch import nn
from torch.ao.pruning import WeightNormSparsifier
from torch.nn.utils import prune

from sparsetile.matrix import BSR
from sparsetile.models import load_into, read_checkpoint
from sparsetile.nn import Linear
from support_models import (
    OneLinear,
    bitmask24_parts,
    bitmask_parts,
    block_sparse_parts,
    mlp,
    sparse_weight,
    stk_parts,
    torchao_parts,
    two_of_four,
    write,
    write_shards,
)


def noisy(weight, mask):
    """What a mask hides: other values, of which nothing must be left."""
    return torch.where(mask, weight, torch.full_like(weight, 7.0))


def prune_parts(weight, mask):
    return {"up.weight_orig": noisy(weight, mask), "up.weight_mask": mask.float()}


def ao_parts(weight, mask):
    base = "up.parametrizations.weight"
    return {f"{base}.original": noisy(weight, mask), f"{base}.0.mask": mask.float()}


def mask_parts(weight, mask):
    return {"up.weight": noisy(weight, mask), "up.mask": mask}


# Name, blocks of the weight, what the file holds, blocks it is read in.
CASES = [
    ("torch.nn.utils.prune", 1, prune_parts, 1),
    ("torch.nn.utils.prune", 8, prune_parts, 8),
    ("torch.ao.pruning", 4, ao_parts, 4),
    ("mask buffers", 1, mask_parts, 1),
    ("compressed-tensors sparse-bitmask", 1, lambda w, _: bitmask_parts("up.weight", w), 1),
    ("compressed-tensors sparse-bitmask", 16, lambda w, _: bitmask_parts("up.weight", w), 16),
    ("pytorch_block_sparse", 32, lambda w, _: block_sparse_parts("up.weight", w), 32),
    ("torchao BlockSparseTensor", 16, lambda w, _: torchao_parts("up.weight", w, 16), 16),
    ("torchao BlockSparseTensor", 8, lambda w, _: torchao_parts("up.weight", w, 8, "_"), 8),
    ("STK", 16, lambda w, _: stk_parts("up.weight", w, 16), 16),
]
IDS = [f"{name}-{block}" for name, block, _, _ in CASES]


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize(("name", "block", "parts", "stored"), CASES, ids=IDS)
def test_layout_is_recognised_and_converted(tmp_path, name, block, parts, stored, suffix):
    weight, mask = sparse_weight(96, 64, block=block)
    if name == "STK":
        weight = weight.half().float()
    checkpoint = read_checkpoint(write(tmp_path / f"a{suffix}", parts(weight, mask)))
    assert checkpoint.formats == (name,)
    assert list(checkpoint) == ["up.weight"]
    found = checkpoint["up.weight"]
    assert isinstance(found, BSR)
    assert found.blocksize == (stored, stored)
    dense = found.to_dense()
    width = dense.shape[1]  # columns after the last block are not always known
    assert torch.equal(dense.float(), weight[:, :width]) and not weight[:, width:].any()
    assert name in str(checkpoint)


@pytest.mark.parametrize(("name", "block", "parts", "stored"), CASES, ids=IDS)
def test_layout_is_loaded_with_exactly_its_pattern(tmp_path, name, block, parts, stored):
    weight, mask = sparse_weight(96, 64, block=block, seed=1)
    weight[:, -block:], mask[:, -block:] = 0, False  # so the file may not say how wide it is
    if name == "STK":
        weight = weight.half().float()
    loaded = load_into(OneLinear(64, 96), write(tmp_path / "a.pt", parts(weight, mask)))
    layer = loaded.model.up
    assert isinstance(layer, Linear)
    assert loaded.sparse == ["up"]
    assert torch.equal(layer.weight.to_dense(), weight)
    assert torch.equal(layer.pattern.to_mask(), mask)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_two_of_four_keeps_its_kept_zeros(tmp_path, suffix):
    weight, mask = two_of_four(16, 24)
    path = write(tmp_path / f"a{suffix}", bitmask24_parts("up", weight, mask))
    checkpoint = read_checkpoint(path)
    assert checkpoint.formats == ("compressed-tensors sparse-24-bitmask",)
    assert torch.equal(checkpoint["up.weight"].to_dense(), weight)
    assert torch.equal(checkpoint["up.weight"].pattern.to_mask(), mask)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_bitmask_keeps_the_dtype(tmp_path, dtype):
    weight, _ = sparse_weight(9, 13, dtype=dtype)
    path = write(tmp_path / "a.safetensors", bitmask_parts("up.weight", weight))
    found = read_checkpoint(path)["up.weight"]
    assert found.dtype == dtype and torch.equal(found.to_dense(), weight)


def test_state_of_a_pruned_module_is_read(tmp_path):
    model = mlp()
    prune.l1_unstructured(model[0], "weight", amount=0.75)
    prune.l1_unstructured(model[0], "bias", amount=0.5)
    x = torch.randn(3, 16)
    loaded = load_into(mlp(), write(tmp_path / "a.pt", model.state_dict()))
    assert loaded.sparse == ["0"] and loaded.model[0].density == 0.25
    torch.testing.assert_close(loaded.model(x), model(x))


@pytest.mark.parametrize("key", ["model", "state_dict"])
def test_sparsifier_state_beside_the_model_brings_the_masks(tmp_path, key):
    model = mlp()
    sparsifier = WeightNormSparsifier(sparsity_level=0.5, sparse_block_shape=(1, 4))
    sparsifier.prepare(model, [{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    x = torch.randn(3, 16)
    kept = sparsifier.state_dict()["state"]
    state = {key: model.state_dict(), "sparsifier": {"state": dict(kept)}, "epoch": 3}
    torch.save(state | {"sparsifier": {"state": kept}}, tmp_path / "b.pt")
    with pytest.raises(ValueError, match=r"collections\.defaultdict.*under 'masks'"):
        read_checkpoint(tmp_path / "b.pt")
    loaded = load_into(mlp(), write(tmp_path / "a.pt", state))
    assert loaded.sparse == ["0"] and loaded.model[0].density == 0.5
    torch.testing.assert_close(loaded.model(x), model(x))


def test_mask_dictionary_beside_the_model_is_applied(tmp_path):
    weight, mask = sparse_weight(8, 8)
    state = {"model": {"up.weight": noisy(weight, mask)}, "masks": {"up.weight": mask}}
    found = read_checkpoint(write(tmp_path / "a.pt", state))["up.weight"]
    assert torch.equal(found.to_dense(), weight)


def test_masked_weights_that_are_no_matrix_stay_dense(tmp_path):
    conv = prune.l1_unstructured(nn.Conv2d(2, 3, 3), "weight", amount=0.5)
    path = write(tmp_path / "a.pt", {f"c.{k}": v for k, v in conv.state_dict().items()})
    found = read_checkpoint(path)["c.weight"]
    assert torch.equal(found, conv.weight.detach())


@pytest.mark.parametrize("layout", ["sparse_bsr", "sparse_csr", "sparse_coo"])
def test_torch_sparse_tensors_are_read(tmp_path, layout):
    weight, _ = sparse_weight(8, 12, block=4)
    sparse = {
        "sparse_bsr": lambda: weight.to_sparse_bsr((4, 4)),
        "sparse_csr": weight.to_sparse_csr,
        "sparse_coo": weight.to_sparse_coo,
    }[layout]()
    checkpoint = read_checkpoint(write(tmp_path / "a.pt", {"up.weight": sparse}))
    assert checkpoint.formats == (f"torch {layout}",)
    assert torch.equal(checkpoint["up.weight"].to_dense(), weight)


def test_dense_weights_full_of_zeros_stay_as_they_are(tmp_path):
    weight, _ = sparse_weight(8, 8)
    checkpoint = read_checkpoint(write(tmp_path / "a.safetensors", {"up.weight": weight}))
    assert checkpoint.formats == ("dense",)
    assert torch.equal(checkpoint["up.weight"], weight)


def test_own_layers_are_read_back(tmp_path):
    sparse = nn.Sequential(Linear(30, 20, density=0.3, blocksize=8))
    loaded = load_into(
        nn.Sequential(nn.Linear(30, 20)), write(tmp_path / "a.safetensors", sparse.state_dict())
    )
    assert loaded.model[0].pattern == sparse[0].pattern
    assert torch.equal(loaded.model[0].values, sparse[0].values)


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_shards_are_joined(tmp_path, suffix):
    weight, mask = sparse_weight(8, 8)
    tensors = prune_parts(weight, mask) | {"norm.weight": torch.ones(8)}
    write_shards(tmp_path, tensors, suffix)
    checkpoint = read_checkpoint(tmp_path)
    assert sorted(checkpoint) == ["norm.weight", "up.weight"]
    assert torch.equal(checkpoint["up.weight"].to_dense(), weight)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_names_lose_what_wrappers_put_before_them(tmp_path, prefix):
    weight, mask = sparse_weight(8, 8)
    parts = {prefix + name: part for name, part in prune_parts(weight, mask).items()}
    assert list(read_checkpoint(write(tmp_path / "a.pt", parts))) == ["up.weight"]


def test_weights_are_read_when_asked_for(tmp_path):
    path = write(tmp_path / "a.safetensors", {"a": torch.zeros(4, 4), "b": torch.ones(4)})
    checkpoint = read_checkpoint(path)
    assert checkpoint.entries["a"].shape == (4, 4) and len(checkpoint) == 2
    assert checkpoint["a"] is not checkpoint["a"]
