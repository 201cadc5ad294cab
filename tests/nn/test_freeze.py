"""Frozen models: fused activations, narrow values, packed copies that follow changes."""

import copy

import pytest
import torch
from torch import nn

from sparsetile.nn import MLP, Embedding, Linear, densify_, empty_twin, freeze_, sparsify_
from sparsetile.ops import backend, last_kernel
from sparsetile.ops.cpu import _arrange
from support_ops import TOLERANCE
from support_transformers import bert, gpt2, llama, t5

ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": lambda: nn.GELU(approximate="tanh"),
    "silu": nn.SiLU,
}
BLOCKS = [1, (1, 4), 4, (5, 3), 16]
HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("backend_name", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", [None, *HALVES])
@pytest.mark.parametrize("blocksize", BLOCKS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_frozen_layer_is_the_function_of_the_rounded_weights(
    name, blocksize, dtype, backend_name
):
    torch.manual_seed(0)
    layer = Linear(37, 29, density=0.4, blocksize=blocksize)
    model = freeze_(nn.Sequential(layer, ACTIVATIONS[name]()), dtype=dtype)
    assert layer.activation == name and not layer.values.requires_grad
    assert layer.values.dtype == (dtype or torch.float32)
    assert layer.bias.dtype == torch.float32
    for rows in (1, 3, 33):
        x = torch.randn(rows, 37)
        weight = layer.weight.to_dense().double()
        want = ACTIVATIONS[name]()(x.double() @ weight.T + layer.bias.double())
        with torch.inference_mode(), backend(backend_name):
            got = model(x)
            assert last_kernel().startswith(backend_name)
        assert got.dtype == torch.float32
        assert (got - want).abs().max() <= TOLERANCE[torch.float32] * max(want.abs().max(), 1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_packed_copy_is_kept_until_the_values_change(dtype, mode, monkeypatch):
    torch.manual_seed(0)
    model = freeze_(nn.Sequential(Linear(48, 40, density=0.5, blocksize=(1, 2))), dtype=dtype)
    layer, x = model[0], torch.randn(200, 48)
    packed = []
    real = _arrange._move
    monkeypatch.setattr(_arrange, "_move", lambda *args: (packed.append(args[1]), real(*args)))

    def product():
        with mode():
            return model(x)

    def wanted():
        return x.double() @ layer.weight.to_dense().double().T + layer.bias.double()

    with backend("cpu"):
        for _ in range(4):
            got = product()
        torch.testing.assert_close(got.double(), wanted(), rtol=1e-5, atol=1e-5)
        before = len(packed)
        assert torch.equal(product(), got) and len(packed) == before
        with torch.no_grad():
            layer.values.mul_(-3)
        torch.testing.assert_close(product().double(), wanted(), rtol=1e-5, atol=1e-5)
        with torch.no_grad():
            layer.values[3] = 7
        torch.testing.assert_close(product().double(), wanted(), rtol=1e-5, atol=1e-5)
        layer.set_pattern_(Linear(48, 40, density=0.3, blocksize=(1, 2)).pattern)
        torch.testing.assert_close(product().double(), wanted(), rtol=1e-5, atol=1e-5)


MODELS = {"bert": (bert, 2), "gpt2": (gpt2, 2), "llama": (llama, 2), "t5": (t5, 2)}


@pytest.mark.parametrize("make, count", MODELS.values(), ids=MODELS)
def test_models_of_transformers_compute_the_same_fused(make, count):
    torch.manual_seed(0)
    model = sparsify_(make(), density=0.5, blocksize=8, embeddings=True).eval()
    ids = torch.randint(1, 64, (3, 10))
    with torch.no_grad():
        want = model(input_ids=ids, labels=ids).logits
        keys = list(model.state_dict())
        frozen = freeze_(copy.deepcopy(model))
        torch.testing.assert_close(frozen(input_ids=ids, labels=ids).logits, want)
        fused = [m for m in frozen.modules() if isinstance(m, Linear) and m.activation]
        assert len(fused) == count
        assert list(frozen.state_dict()) == keys
        half = freeze_(copy.deepcopy(frozen), dtype=torch.bfloat16)
        got = half(input_ids=ids, labels=ids).logits
        assert got.dtype == torch.float32 and not torch.equal(got, want)
        torch.testing.assert_close(got, want, rtol=0.05, atol=0.05 * float(want.abs().max()))
        assert {m.values.dtype for m in half.modules() if isinstance(m, Embedding)} == {
            torch.float32
        }
        densify_(frozen)
        torch.testing.assert_close(frozen(input_ids=ids, labels=ids).logits, want)


def test_gradients_are_those_of_the_model_before():
    torch.manual_seed(0)
    model = nn.Sequential(Linear(24, 24, density=0.5, blocksize=8), nn.GELU())
    frozen = freeze_(copy.deepcopy(model), dtype=torch.bfloat16)
    model[0].values.data.copy_(frozen[0].values)
    frozen[0].values.requires_grad_()
    results = []
    for each in (model, frozen):
        x = torch.randn(5, 24, generator=torch.Generator().manual_seed(1)).requires_grad_()
        each(x).square().sum().backward()
        results.append((x.grad, each[0].values.grad))
    torch.testing.assert_close(results[1][0], results[0][0])
    assert results[1][1].dtype == torch.bfloat16
    torch.testing.assert_close(results[1][1].float(), results[0][1], rtol=1e-2, atol=1e-2)


def test_only_an_activation_that_follows_is_fused():
    act = nn.ReLU()
    shared = Linear(8, 8, density=1.0, blocksize=4)
    hooked = nn.ReLU()
    hooked.register_forward_hook(lambda *args: None)
    model = nn.Sequential(
        nn.Sequential(shared, act),
        nn.Sequential(shared, nn.Identity()),
        nn.Sequential(Linear(8, 8, density=1.0, blocksize=4), hooked),
        nn.Sequential(nn.Linear(8, 8), nn.ReLU()),
        nn.Sequential(Linear(8, 8, density=1.0, blocksize=4), nn.GELU(), nn.ReLU()),
        MLP(8, 16, density=1.0, blocksize=4),
    )
    x = torch.randn(3, 8)
    want = model(x)
    freeze_(model)
    torch.testing.assert_close(model(x), want)
    assert [m.activation for m in model.modules() if isinstance(m, Linear)] == [
        *(None, None, "gelu", None, None)
    ]
    assert "activation='gelu'" in repr(model)
    torch.testing.assert_close(densify_(model)(x), want)


def test_a_twin_without_data_keeps_the_activation():
    model = freeze_(nn.Sequential(Linear(8, 8, density=1.0, blocksize=4), nn.ReLU()))
    assert empty_twin(model[0], {"": model[0].pattern}).activation == "relu"


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="dtype"):
        freeze_(nn.Linear(2, 2), dtype=torch.float64)
    with pytest.raises(TypeError, match="model"):
        freeze_(3)
