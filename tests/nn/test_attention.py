"""Self-attention and MLP against torch's own layers with the same weights."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsetile import ops
from sparsetile.nn import MLP, SelfAttention
from support import without_type_checks


def attention(**options):
    options = {"blocksize": 4, "density": 0.5, "dtype": torch.float64} | options
    layer = SelfAttention(24, 3, **options)
    return layer, torch.randn(2, 5, 24, dtype=torch.float64)


def torchs(layer):
    """torch's attention, with a mask that hides where it is true."""
    twin = nn.MultiheadAttention(
        24, 3, batch_first=True, dtype=torch.float64, bias=layer.qkv.bias is not None
    )
    dense, out = layer.qkv.to_linear(), layer.out.to_linear()
    twin.in_proj_weight, twin.in_proj_bias = dense.weight, dense.bias
    twin.out_proj.weight, twin.out_proj.bias = out.weight, out.bias
    return lambda x, mask=None: twin(x, x, x, attn_mask=mask, need_weights=False)[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_attention_is_torchs(bias, causal):
    layer, x = attention(bias=bias, causal=causal)
    hidden = ~torch.ones(5, 5, dtype=torch.bool).tril() if causal else None
    got, want = layer(x), torchs(layer)(x, hidden)
    torch.testing.assert_close(got, want)


def test_masks_hide_with_and_without_order():
    padding = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    padding[1, ..., 3:] = False
    added = torch.zeros(2, 1, 1, 5, dtype=torch.float64).masked_fill(~padding, -torch.inf)
    for causal in (False, True):
        layer, x = attention(causal=causal)
        seen = layer(x, padding)
        torch.testing.assert_close(seen, layer(x, added))
        other = x.clone()
        other[1, 3:] = 7.0  # what is hidden does not matter to what sees
        torch.testing.assert_close(layer(other, padding)[1, :3], seen[1, :3])
        alone = layer(x[1:, :3])
        torch.testing.assert_close(seen[1:, :3], alone)


def test_attention_takes_any_leading_dimensions_and_drops_in_training_alone():
    layer, x = attention(dropout=1.0)
    torch.testing.assert_close(layer.eval()(x[0]), layer(x)[0])
    torch.testing.assert_close(layer(x[None].expand(3, -1, -1, -1))[2], layer(x))
    assert torch.equal(layer.train()(x), layer.out(torch.zeros_like(x)))


def test_queries_keys_and_values_are_one_product():
    layer, x = attention()
    calls = []
    layer.qkv.register_forward_hook(lambda module, args, y: calls.append(y.shape))
    layer(x).sum().backward()
    assert calls == [(2, 5, 72)]
    assert layer.qkv.values.grad.shape == layer.qkv.values.shape


@pytest.mark.parametrize(
    "name, function",
    [
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("silu", F.silu),
    ],
)
def test_mlp_is_its_dense_twin_with_and_without_gradients(name, function):
    mlp = MLP(16, 48, 8, name, blocksize=4, density=0.5)
    x = torch.randn(6, 16)
    up, down = mlp.up.to_linear(), mlp.down.to_linear()
    want = down(function(up(x)))
    with torch.no_grad():
        torch.testing.assert_close(mlp(x), want, rtol=1e-5, atol=1e-5)
    got = mlp(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.sum().backward()
    want.sum().backward()
    torch.testing.assert_close(mlp.up.bias.grad, up.bias.grad, rtol=1e-4, atol=1e-5)


def test_mlp_fuses_its_activation_where_no_gradient_is_wanted(monkeypatch):
    mlp = MLP(16, 48, blocksize=4, density=0.5)
    assert mlp.down.out_features == 16
    from sparsetile.ops import _activation

    passes = []
    monkeypatch.setitem(_activation.ACTIVATIONS, "gelu", lambda y: passes.append(1) or F.gelu(y))
    with ops.backend("cpu"):
        mlp(torch.randn(32, 16))
        assert passes == [1]
        with torch.no_grad():
            mlp(torch.randn(32, 16))
    assert passes == [1]


def test_both_compile():
    layer, x = attention(causal=True, dtype=torch.float32)
    model = nn.Sequential(layer, MLP(24, 48, blocksize=4, density=0.5))
    x = x.float()
    torch._dynamo.reset()
    with without_type_checks():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), model(x))
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
    torch._dynamo.reset()


BAD = {
    "heads": (lambda: SelfAttention(24, 5, density=0.5), "heads must divide width=24, got 5"),
    "no_heads": (lambda: SelfAttention(24, 0, density=0.5), "heads must divide width=24, got 0"),
    "width": (lambda: SelfAttention(24.0, 3, density=0.5), "width must be an int"),
    "dropout": (lambda: SelfAttention(24, 3, dropout=-1, density=0.5), "dropout must be a share"),
    "activation": (lambda: MLP(8, 8, activation="tanh", density=0.5), "activation must be one of"),
    "hidden": (lambda: MLP(8, -8, density=0.5), "out_features must be 0 or more"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_are_refused_in_words(case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((ValueError, TypeError), match=message):
        call()
