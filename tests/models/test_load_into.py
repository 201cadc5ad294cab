"""A checkpoint in a model: sparse where the checkpoint is, and refused as torch refuses."""

import copy

import pytest
import torch
from torch import nn

from sparsetile.models import load_into, read_checkpoint
from sparsetile.nn import Linear
from support_models import bitmask_parts, bsr_parts, mlp, sparse_weight, write


def parts(**changes):
    """A pruned first layer of an MLP, and a dense second one."""
    up, mask = sparse_weight(32, 16, block=4)
    down = torch.randn(8, 32)
    found = {
        **{"0.weight_orig": up, "0.weight_mask": mask.float(), "0.bias": torch.randn(32)},
        **{"2.weight": down, "2.bias": torch.randn(8)},
    }
    return {name: value for name, value in (found | changes).items() if value is not None}


def test_function_is_that_of_the_checkpoint(tmp_path):
    state = parts()
    dense = mlp()
    dense.load_state_dict(
        {"0.weight": state["0.weight_orig"]}
        | {k: v for k, v in state.items() if "weight_" not in k}
    )
    loaded = load_into(mlp(), write(tmp_path / "a.pt", state))
    x = torch.randn(5, 16)
    torch.testing.assert_close(loaded.model(x), dense(x))
    assert loaded.sparse == ["0"] and loaded.missing_keys == [] == loaded.unexpected_keys
    assert loaded.model[0].blocksize == (4, 4) and type(loaded.model[2]) is nn.Linear


def test_checkpoint_may_be_given_read(tmp_path):
    checkpoint = read_checkpoint(write(tmp_path / "a.pt", parts()))
    assert load_into(mlp(), checkpoint).sparse == load_into(mlp(), checkpoint).sparse == ["0"]


@pytest.mark.parametrize(("blocksize", "side"), [(1, 1), (8, 8), (32, 32), ("auto", 4)])
def test_other_blocks_hold_the_same_weight(tmp_path, blocksize, side):
    state = parts()
    model = load_into(mlp(), write(tmp_path / "a.pt", state), blocksize=blocksize).model
    assert model[0].blocksize == (side, side)
    assert torch.equal(model[0].weight.to_dense(), state["0.weight_orig"])


def test_dense_weights_full_of_zeros_become_sparse_only_when_asked(tmp_path):
    down, _ = sparse_weight(8, 32, block=8, density=0.25)
    path = write(tmp_path / "a.pt", parts(**{"2.weight": down}))
    assert load_into(mlp(), path).sparse == ["0"]
    loaded = load_into(mlp(), path, blocksize="auto")
    assert loaded.sparse == ["0", "2"] and loaded.model[2].blocksize == (8, 8)
    assert torch.equal(loaded.model[2].weight.to_dense(), down)


def test_names_are_reported_as_torch_reports_them(tmp_path):
    path = write(tmp_path / "a.pt", parts(**{"2.bias": None, "3.weight": torch.ones(2)}))
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match=r"Missing.*2\.bias") as refusal:
        load_into(model, path)
    assert "Unexpected key(s): 3.weight" in str(refusal.value)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    loaded = load_into(model, path, strict=False)
    assert (loaded.missing_keys, loaded.unexpected_keys) == (["2.bias"], ["3.weight"])
    assert isinstance(loaded.model[0], Linear)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", ["0.weight", "2.weight"])
def test_shapes_that_differ_are_refused(tmp_path, name, strict):
    changes = {"2.weight": torch.ones(8, 31)}
    if name == "0.weight":
        changes = {"0.weight_orig": torch.ones(31, 16), "0.weight_mask": torch.ones(31, 16)}
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match=f"size mismatch for {name}.*31.*32"):
        load_into(model, write(tmp_path / "a.pt", parts(**changes)), strict=strict)
    assert all(torch.equal(before[key], t) for key, t in model.state_dict().items())


def test_damage_found_on_the_way_leaves_the_model_as_it_was(tmp_path):
    bad = bitmask_parts("2.weight", torch.randn(8, 32))
    bad["2.weight.compressed"] = bad["2.weight.compressed"][:-1]
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    path = write(tmp_path / "a.pt", parts(**{"2.weight": None}) | bad)
    with pytest.raises(ValueError, match=r"2\.weight\.compressed"):
        load_into(model, path)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


def test_blocks_that_cannot_fit_are_refused(tmp_path):
    crow, col, values = bsr_parts(torch.ones(64, 64), 16)
    names = ("0.values", "0.crow_indices", "0.col_indices")
    state = parts(**{"0.weight_orig": None, "0.weight_mask": None})
    state |= dict(zip(names, (values, crow, col), strict=True))
    with pytest.raises(ValueError, match=r"0\.weight.*build the model"):
        load_into(mlp(), write(tmp_path / "a.pt", state))


def test_layers_that_are_sparse_already_take_the_pattern(tmp_path):
    state = parts()
    model = nn.Sequential(Linear(16, 32, density=0.5, blocksize=4), nn.GELU(), nn.Linear(32, 8))
    loaded = load_into(model, write(tmp_path / "a.pt", state))
    assert loaded.model is model
    assert torch.equal(model[0].weight.to_dense(), state["0.weight_orig"])
    assert torch.equal(model[0].bias, state["0.bias"])
    other = nn.Sequential(Linear(16, 32, density=0.5, blocksize=8), nn.GELU(), nn.Linear(32, 8))
    load_into(other, tmp_path / "a.pt")
    assert torch.equal(other[0].weight.to_dense(), state["0.weight_orig"])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight


def test_shared_weights_are_needed_once_and_stay_dense(tmp_path):
    weight, mask = sparse_weight(12, 8)
    path = write(tmp_path / "a.pt", {"embed.weight_orig": weight, "embed.weight_mask": mask})
    loaded = load_into(Tied(), path)
    assert loaded.sparse == [] and torch.equal(loaded.model.head.weight, weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_weights_take_the_models_dtype(tmp_path, dtype):
    state = parts()
    model = load_into(mlp().to(dtype), write(tmp_path / "a.pt", state)).model
    assert model[0].values.dtype == dtype
    assert torch.equal(model[0].weight.to_dense(), state["0.weight_orig"].to(dtype))


def test_wrong_arguments_are_refused(tmp_path):
    path = write(tmp_path / "a.pt", parts())
    with pytest.raises(TypeError, match="model"):
        load_into(3, path)
    with pytest.raises(TypeError, match="strict"):
        load_into(mlp(), path, strict="no")
    with pytest.raises(ValueError, match="blocksize: got 3; allowed: None"):
        load_into(mlp(), path, blocksize=3)
    with pytest.raises(TypeError, match="blocksize"):
        load_into(mlp(), path, blocksize=True)
    with pytest.raises(ValueError, match="meta device"):
        load_into(mlp().to("meta"), path)


def bert(**changes):
    import transformers

    config = transformers.BertConfig(
        **{"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
        **{"intermediate_size": 64, "max_position_embeddings": 16} | changes,
    )
    return transformers.BertModel(config).eval()


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_hugging_face_models_take_block_pruned_checkpoints(tmp_path, prefix):
    model = bert()
    state = {}
    for name, value in model.state_dict().items():
        if "intermediate.dense.weight" in name or "query.weight" in name:
            block, keep = sparse_weight(*value.shape, block=16, density=0.4)
            state |= {f"{prefix}{name}_orig": block, f"{prefix}{name}_mask": keep.float()}
        else:
            state[prefix + name] = value
    loaded = load_into(bert(), write(tmp_path / "pytorch_model.bin", state))
    assert len(loaded.sparse) == 4
    ids = torch.arange(6)[None]
    plain = {
        k: v for k, v in load_into(bert(), tmp_path / "pytorch_model.bin").model.named_modules()
    }
    assert plain["encoder.layer.1.intermediate.dense"].blocksize == (16, 16)
    assert loaded.model(ids).last_hidden_state.isfinite().all()


def test_conv1d_of_gpt2_is_turned(tmp_path):
    import transformers

    config = transformers.GPT2Config(n_layer=1, n_embd=16, n_head=2, vocab_size=20, n_positions=8)
    model = transformers.GPT2Model(config).eval()
    weight, mask = sparse_weight(16, 64, block=8)
    state = dict(model.state_dict())
    del state["h.0.mlp.c_fc.weight"]
    state |= {"h.0.mlp.c_fc.weight_orig": weight, "h.0.mlp.c_fc.weight_mask": mask.float()}
    loaded = load_into(transformers.GPT2Model(config), write(tmp_path / "a.pt", state))
    assert loaded.sparse == ["h.0.mlp.c_fc"]
    assert torch.equal(loaded.model.h[0].mlp.c_fc.weight.to_dense(), weight.t())
