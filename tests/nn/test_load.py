import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sparsetile.matrix import random_pattern
from sparsetile.nn import Linear


def model(density, seed=0, **kwargs):
    torch.manual_seed(seed)
    return nn.Sequential(
        Linear(32, 24, blocksize=8, density=density, **kwargs),
        nn.ReLU(),
        Linear(24, 16, blocksize=8, density=density, **kwargs),
    )


def through_torch(state, path):
    torch.save(state, path)
    return torch.load(path, weights_only=True)


def through_safetensors(state, path):
    save_file(state, path)
    return load_file(path)


@pytest.mark.parametrize("through", [through_torch, through_safetensors])
@pytest.mark.parametrize("density", [0.5, 0.25], ids=["same_count", "other_count"])
@pytest.mark.parametrize("assign", [False, True], ids=["copy", "assign"])
def test_a_checkpoint_loads_into_another_pattern(through, density, assign, tmp_path):
    source, target = model(0.5, seed=1), model(density, seed=2)
    state = through(source.state_dict(), tmp_path / "model")
    target.load_state_dict(state, assign=assign)
    x = torch.randn(5, 32)
    assert torch.equal(target(x), source(x))
    assert target[0].pattern == source[0].pattern


def test_state_dict_is_plain_strided_tensors():
    state = model(0.5).state_dict()
    names = {name.split(".")[1] for name in state}
    assert names == {"values", "crow_indices", "col_indices", "bias"}
    assert all(tensor.layout is torch.strided for tensor in state.values())


def test_the_parameter_stays_the_same_object_when_the_count_changes():
    target = model(0.25)
    optimizer = torch.optim.SGD(target.parameters(), lr=0.1)
    values = target[0].values
    target.load_state_dict(model(0.5).state_dict())
    assert target[0].values is values
    target(torch.randn(4, 32)).sum().backward()
    before = values.detach().clone()
    optimizer.step()
    assert not torch.equal(values, before)


def test_a_graph_made_before_loading_does_not_disturb_the_next():
    target = model(0.25)
    kept = target(torch.randn(4, 32)).sum()  # keeps the old gradient node alive
    target.load_state_dict(model(0.5).state_dict())
    target(torch.randn(4, 32)).sum().backward()
    assert target[0].values.grad.shape == target[0].values.shape
    assert kept.requires_grad


def test_dtype_of_the_layer_holds():
    target = model(0.25, dtype=torch.float64)
    target.load_state_dict(model(0.5).state_dict())
    assert target[0].values.dtype == torch.float64


def test_int64_indices_become_int32():
    state = model(0.5, seed=1).state_dict()
    state["0.col_indices"] = state["0.col_indices"].long()
    target = model(0.5)
    target.load_state_dict(state, assign=True)
    assert target[0].col_indices.dtype == torch.int32


def test_a_dense_checkpoint_loads_at_the_present_pattern_and_says_what_it_drops():
    dense = nn.Linear(32, 24)
    layer = Linear(32, 24, blocksize=8, density=0.5)
    with pytest.warns(UserWarning, match=r"6 blocks .* 5\d\.\d% of its L1 norm was dropped|L1"):
        layer.load_state_dict(dense.state_dict())
    expected = torch.where(layer.pattern.to_mask(), dense.weight, 0)
    assert torch.equal(layer.to_linear().weight, expected)
    assert torch.equal(layer.bias, dense.bias)


def test_the_share_of_the_norm_that_is_dropped_is_right():
    layer = Linear(32, 24, blocksize=8, density=0.5)
    dense = nn.Linear(32, 24)
    dense.weight.data.fill_(1)
    with pytest.warns(UserWarning, match="50.0% of its L1 norm"):
        layer.load_state_dict(dense.state_dict())


def test_a_dense_checkpoint_that_loses_nothing_loads_silently():
    layer = Linear(32, 24, blocksize=8, density=0.5)
    Linear(32, 24, pattern=layer.pattern).load_state_dict(layer.to_linear().state_dict())


def test_a_meta_model_is_filled_by_its_checkpoint():
    source = model(0.5, seed=1)
    target = model(0.5, device="meta")
    target.to_empty(device="cpu")
    target.load_state_dict(source.state_dict())
    x = torch.randn(5, 32)
    assert torch.equal(target(x), source(x))


def test_a_meta_model_is_filled_by_assignment():
    source = model(0.5, seed=1)
    with torch.device("meta"):
        target = model(0.25)
    target.load_state_dict(source.state_dict(), assign=True)
    x = torch.randn(5, 32)
    assert torch.equal(target(x), source(x))


def broken(state, **changes):
    for name, change in changes.items():
        if change is None:
            del state[name]
        else:
            state[name] = change(state[name])
    return state


REFUSED = {
    "column_out_of_range": ({"col_indices": lambda t: t + 9}, "pattern is not valid"),
    "negative_column": ({"col_indices": lambda t: t - 9}, "pattern is not valid"),
    "unsorted": ({"col_indices": lambda t: t.flip(0)}, "pattern is not valid"),
    "crow_not_rising": ({"crow_indices": lambda t: t.flip(0)}, "pattern is not valid"),
    "crow_too_short": ({"crow_indices": lambda t: t[:-1]}, "pattern is not valid"),
    "float_indices": ({"col_indices": lambda t: t.float()}, "pattern is not valid"),
    "values_too_few": ({"values": lambda t: t[:-1]}, "5 blocks of values for 6"),
    "values_flat": ({"values": lambda t: t.flatten()}, r"\[nnzb, r, c\]"),
    "values_integers": ({"values": lambda t: t.int()}, "floating"),
    "other_blocksize": ({"values": lambda t: t.unflatten(1, (2, 4)).flatten(0, 1)}, "blocksize"),
    "no_indices": ({"crow_indices": None, "col_indices": None}, "all three"),
    "no_values": ({"values": None}, "all three"),
    "bias_shape": ({"bias": lambda t: t[:3]}, "bias must have shape"),
    "no_tensor": ({"values": lambda t: t.tolist()}, "values must be a tensor"),
    "values_complex": ({"values": lambda t: t.to(torch.complex64)}, "values must be of a floating"),
    "values_sparse": ({"values": lambda t: t.to_sparse()}, "values must be a plain"),
    "values_on_meta": ({"values": lambda t: t.to("meta")}, "values is on the meta device"),
    "sparse_indices": ({"crow_indices": lambda t: t.to_sparse()}, "crow_indices must be a plain"),
    "bias_on_meta": ({"bias": lambda t: t.to("meta")}, "bias is on the meta device"),
    "bias_complex": ({"bias": lambda t: t.to(torch.complex64)}, "bias must be of a floating"),
    "meta_indices": ({"col_indices": lambda t: t.to("meta")}, "meta"),
}


@pytest.mark.parametrize("density", [0.5, 0.25], ids=["same_count", "other_count"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_checkpoint_is_refused_and_nothing_is_loaded(case, density):
    changes, message = REFUSED[case]
    layer = Linear(32, 24, blocksize=8, density=density)
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    pattern = random_pattern(24, 32, blocksize=8, density=0.5, seed=7)
    state = broken(Linear(32, 24, pattern=pattern).state_dict(), **changes)
    with pytest.raises(RuntimeError, match=message):
        layer.load_state_dict(state)
    after = layer.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("shape", [(32, 24), (24, 31), (24,)], ids=str)
def test_a_dense_weight_of_another_shape_is_refused(shape):
    with pytest.raises(RuntimeError, match=r"dense weight must have shape \[24, 32\]"):
        Linear(32, 24, blocksize=8, density=0.5).load_state_dict(
            {"weight": torch.zeros(shape), "bias": torch.zeros(24)}
        )


@pytest.mark.parametrize("fault", ["meta", torch.complex64, torch.int32], ids=str)
def test_a_dense_weight_without_floating_data_is_refused(fault):
    with pytest.raises(RuntimeError, match=r"weight (is on the meta|must be of a floating)"):
        Linear(32, 24, blocksize=8, density=0.5).load_state_dict(
            {"weight": torch.zeros(24, 32).to(fault), "bias": torch.zeros(24)}
        )


def test_missing_and_unexpected_keys_are_reported_as_torch_does():
    layer = Linear(32, 24, blocksize=8, density=0.5)
    result = layer.load_state_dict({"extra": torch.zeros(1)}, strict=False)
    assert set(result.missing_keys) == {"values", "crow_indices", "col_indices", "bias"}
    assert result.unexpected_keys == ["extra"]
