import copy
import io
import pickle

import jaxtyping
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from sparsetile.matrix import random_pattern
from sparsetile.nn import Linear
from sparsetile.ops import backend


@pytest.fixture
def layer():
    return Linear(32, 24, blocksize=8, density=0.5)


@pytest.fixture
def x():
    return torch.randn(5, 32)


@pytest.fixture
def untyped():
    # The type checkers of the tests are no part of the code that users compile.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def pickled(layer):
    return pickle.loads(pickle.dumps(layer))


def saved(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled, saved])
def test_a_copy_is_equal_and_its_own(duplicate, layer, x):
    pattern = layer.pattern
    twin = duplicate(layer)
    assert torch.equal(twin(x), layer(x))
    assert twin.pattern == pattern
    layer.set_pattern_(random_pattern(24, 32, blocksize=8, density=0.5, seed=5))
    assert twin.pattern == pattern


def test_a_copy_does_not_remember_an_older_pattern(layer):
    layer.pattern  # noqa: B018  fills the cache
    other = random_pattern(24, 32, blocksize=8, density=0.5, seed=5)
    layer.crow_indices.copy_(other.crow_indices)
    layer.col_indices.copy_(other.col_indices)
    assert copy.deepcopy(layer).pattern == other


CASTS = {
    "half": lambda m: m.half(),
    "bfloat16": lambda m: m.bfloat16(),
    "double": lambda m: m.double(),
    "to": lambda m: m.to(torch.float16),
    "type": lambda m: m.type(torch.float64),
    "to_empty": lambda m: m.to_empty(device="cpu"),
    "share_memory": lambda m: m.share_memory(),
}


@pytest.mark.parametrize("cast", CASTS)
def test_indices_keep_type_and_content(cast, layer):
    before = layer.pattern
    CASTS[cast](layer)
    assert layer.crow_indices.dtype == layer.col_indices.dtype == torch.int32
    assert layer.pattern == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_cast_layer_computes_in_its_dtype(dtype, layer, x):
    out = layer.to(dtype)(x.to(dtype))
    assert out.dtype == dtype
    # bfloat16 keeps 8 bits; sums are float32.
    torch.testing.assert_close(out, layer.to_linear()(x.to(dtype)), rtol=2e-2, atol=2e-2)


def test_a_layer_that_left_the_meta_device_must_be_loaded_first(x):
    layer = Linear(32, 24, blocksize=8, density=0.5, device="meta").to_empty(device="cpu")
    with backend("cpu"), pytest.raises(ValueError, match="crow_indices"):
        layer(x)
    layer.load_state_dict(Linear(32, 24, blocksize=8, density=0.5).state_dict())
    assert layer(x).shape == (5, 24)


def test_compiled_layer_follows_a_pattern_changed_in_place(untyped, layer, x):
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    compiled(x)
    for seed in (5, 6):
        layer.set_pattern_(random_pattern(24, 32, blocksize=8, density=0.5, seed=seed))
        torch.testing.assert_close(compiled(x), layer.to_linear()(x))
    assert counter.frame_count == 1


def test_compiled_layer_has_gradients(untyped, layer, x):
    torch._dynamo.reset()
    torch.compile(layer, fullgraph=True, backend="aot_eager")(x).sum().backward()
    compiled = layer.values.grad
    layer.values.grad = None
    layer(x).sum().backward()
    torch.testing.assert_close(compiled, layer.values.grad)


def test_autocast_runs_the_layer_in_bfloat16(layer, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


def test_averaged_model_averages_values(layer, x):
    average = torch.optim.swa_utils.AveragedModel(layer)
    average.update_parameters(layer)
    before = layer.values.detach().clone()
    layer.values.data.add_(2)
    average.update_parameters(layer)
    torch.testing.assert_close(average.module.values.detach(), before + 1)


def test_clipping_and_parameter_vectors_take_the_layer(layer, x):
    layer(x).sum().backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1e-3)
    assert layer.values.grad.norm() <= 1e-3
    assert len(nn.utils.parameters_to_vector(layer.parameters())) == layer.values.numel() + 24


def test_functional_call_uses_the_given_values(layer, x):
    out = torch.func.functional_call(layer, {"values": torch.zeros_like(layer.values)}, (x,))
    torch.testing.assert_close(out, layer.bias.expand(5, 24))


def test_a_frozen_layer_in_inference_mode(layer, x):
    expected = layer(x).detach()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), expected)
        made = Linear(32, 24, pattern=layer.pattern)
        assert made.pattern == layer.pattern
