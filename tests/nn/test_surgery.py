import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from sparsetile.nn import Linear, densify_, sparsify_


def mlp(**kwargs):
    return nn.Sequential(nn.Linear(32, 64, **kwargs), nn.ReLU(), nn.Linear(64, 8, **kwargs))


def sparse_names(model):
    return [name for name, module in model.named_modules() if isinstance(module, Linear)]


def test_every_linear_becomes_sparse_in_place():
    model = mlp()
    assert sparsify_(model, density=0.25, blocksize=8) is model
    assert sparse_names(model) == ["0", "2"]
    assert model[0].nnzb == 8


def test_the_model_is_what_is_left_of_its_weights():
    model = mlp()
    dense = model[0].weight.detach().clone()
    sparsify_(model, density=0.25, blocksize=8)
    kept = torch.where(model[0].pattern.to_mask(), dense, 0)
    assert torch.equal(model[0].to_linear().weight, kept)


def test_magnitude_keeps_more_than_chance():
    strong, chance = mlp(), mlp()
    strong.load_state_dict(chance.state_dict())
    sparsify_(strong, density=0.25, blocksize=4, method="magnitude")
    sparsify_(chance, density=0.25, blocksize=4, method="random")
    assert strong[0].values.abs().sum() > chance[0].values.abs().sum()


def test_what_belongs_to_a_layer_stays_with_it():
    model = mlp(dtype=torch.float64).eval()
    model[0].weight.requires_grad_(False)
    bias, seen = model[0].bias, []
    handle = model[0].register_forward_hook(lambda *_: seen.append(1))
    sparsify_(model, density=0.5, blocksize=8)
    layer = model[0]
    assert layer.bias is bias
    assert layer.values.dtype == torch.float64
    assert not layer.training
    assert not layer.values.requires_grad
    model(torch.randn(2, 32, dtype=torch.float64))
    handle.remove()
    model(torch.randn(2, 32, dtype=torch.float64))
    assert seen == [1]


def test_sparse_layers_are_left_alone():
    model = sparsify_(mlp(), density=0.25, blocksize=8)
    layer = model[0]
    with pytest.warns(UserWarning, match="replaced nothing.*2 sparse already"):
        sparsify_(model, density=0.5, blocksize=4)
    assert model[0] is layer


def test_a_filter_chooses():
    model = sparsify_(mlp(), density=0.25, blocksize=8, filter=lambda module, name: name == "2")
    assert sparse_names(model) == ["2"]


def test_a_linear_itself_is_returned_sparse():
    dense = nn.Linear(32, 32)
    assert isinstance(sparsify_(dense, density=0.5, blocksize=8), Linear)


def test_a_layer_used_twice_stays_one():
    shared = nn.Linear(16, 16)
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared)})
    sparsify_(model, density=0.5, blocksize=4)
    assert isinstance(model["a"], Linear)
    assert model["a"] is model["b"][0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 32)
        self.body = nn.Linear(32, 32)
        self.head = nn.Linear(32, 16, bias=False)
        self.head.weight = self.embed.weight


def test_tied_weights_stay_dense():
    assert sparse_names(sparsify_(Tied(), density=0.5, blocksize=8)) == ["body"]


def test_a_filter_that_selects_a_tied_weight_is_refused_and_nothing_changes():
    model = Tied()
    with pytest.raises(ValueError, match=r"'head'.*shared with 'embed'"):
        sparsify_(model, density=0.5, blocksize=8, filter=lambda module, name: True)
    assert sparse_names(model) == []


class Special(nn.Linear):
    pass


def test_subclasses_are_replaced_only_when_a_filter_says_so():
    model = nn.Sequential(Special(16, 16))
    with pytest.warns(UserWarning, match="replaced nothing.*1 of a subclass"):
        sparsify_(model, density=0.5, blocksize=8)
    assert sparse_names(model) == []
    sparsify_(model, density=0.5, blocksize=8, filter=lambda m, name: isinstance(m, Special))
    assert sparse_names(model) == ["0"]


def pruned():
    model = mlp()
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def normed():
    model = mlp()
    parametrizations.weight_norm(model[0])
    return model


def biased(apply):
    def make():
        model = mlp()
        apply(model[0])
        return model

    return make


COMPUTED = {
    "pruned": (pruned, "weight"),
    "normed": (normed, "weight"),
    "pruned_bias": (biased(lambda m: prune.l1_unstructured(m, "bias", 0.5)), "bias"),
    "parametrized_bias": (
        biased(lambda m: parametrize.register_parametrization(m, "bias", nn.Tanh())),
        "bias",
    ),
}


@pytest.mark.parametrize("filter", [None, lambda m, name: name == "0"], ids=["all", "filter"])
@pytest.mark.parametrize("case", COMPUTED)
def test_computed_parameters_are_refused_with_the_way_out(case, filter):
    make, part = COMPUTED[case]
    with pytest.raises(ValueError, match=rf"'0'.*its {part} is.*remove_parametrizations"):
        sparsify_(make(), density=0.5, blocksize=8, filter=filter)


NOTHING = {
    "no_linear": (nn.Sequential(nn.ReLU()), None, "the model has no linear layer"),
    "filter": (nn.Sequential(nn.Linear(4, 4)), lambda m, n: False, "1 not selected by filter"),
    "attention": (nn.MultiheadAttention(4, 1), None, "1 inside MultiheadAttention"),
}


@pytest.mark.parametrize("case", NOTHING)
def test_replacing_nothing_warns_once_and_says_why(case):
    model, filter, why = NOTHING[case]
    with pytest.warns(UserWarning, match=why) as caught:
        sparsify_(model, density=0.5, blocksize=2, filter=filter)
    assert len(caught) == 1


@pytest.mark.parametrize("blocksize", [1, 8, (4, 16)], ids=str)
def test_densify_gives_the_same_function(blocksize):
    model = sparsify_(mlp(), density=0.5, blocksize=blocksize)
    x = torch.randn(5, 32)
    expected = model(x)
    densify_(model)
    assert type(model[0]) is nn.Linear
    torch.testing.assert_close(model(x), expected)


def test_densify_keeps_the_bias_parameter():
    model = sparsify_(mlp(), density=0.5, blocksize=8)
    bias = model[0].bias
    assert densify_(model)[0].bias is bias


def test_densify_returns_the_dense_layer_of_a_sparse_one():
    assert type(densify_(Linear(16, 16, density=0.5))) is nn.Linear
