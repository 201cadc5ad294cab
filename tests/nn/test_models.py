"""Surgery on models people have: torch's transformer layers, Hugging Face's GPT-2 and BERT."""

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear, densify_, sparsify_
from support_transformers import bert, gpt2


def sparse_names(model):
    return [name for name, module in model.named_modules() if isinstance(module, Linear)]


def encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_torchs_encoder_runs_its_sparse_layers(training, grad):
    model = sparsify_(encoder(), density=0.5, blocksize=4).train(training)
    assert [n.split(".")[-1] for n in sparse_names(model)] == ["linear1", "linear2"] * 2
    x, padding = torch.randn(2, 6, 32), torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    with torch.set_grad_enabled(grad):
        ours = model(x, src_key_padding_mask=padding)
        theirs = densify_(model)(x, src_key_padding_mask=padding)
    torch.testing.assert_close(ours[~padding], theirs[~padding], rtol=1e-4, atol=1e-5)


def test_torchs_encoder_with_nested_tensors_leaves_its_fused_path():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = sparsify_(nn.TransformerEncoder(layer, 2), density=0.5, blocksize=4).eval()
    x, padding = torch.randn(2, 6, 32), torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    with torch.no_grad():
        assert model(x, src_key_padding_mask=padding).shape == (2, 6, 32)


def test_a_sparse_layer_put_into_an_encoder_by_hand_runs_in_eval():
    layer = encoder().layers[0].eval()
    layer.linear1 = Linear.from_linear(layer.linear1, blocksize=4, density=0.5)
    with torch.no_grad():
        assert layer(torch.randn(2, 6, 32)).shape == (2, 6, 32)


def test_densify_gives_the_encoder_its_fused_path_back():
    model = sparsify_(encoder(), density=0.5, blocksize=4)
    assert not model.layers[0].activation_relu_or_gelu
    assert densify_(model).layers[0].activation_relu_or_gelu == 1


def test_attention_projections_stay_dense_and_attention_runs():
    attention = nn.MultiheadAttention(32, 4, batch_first=True)
    with pytest.warns(UserWarning, match="1 inside MultiheadAttention"):
        sparsify_(attention, density=0.5, blocksize=4, filter=lambda module, name: True)
    assert sparse_names(attention) == []
    x = torch.randn(2, 6, 32)
    assert attention(x, x, x)[0].shape == (2, 6, 32)


@pytest.mark.parametrize(("make", "count"), [(gpt2, 8), (bert, 13)])
def test_hugging_face_models_become_sparse_but_for_the_tied_head(make, count):
    model = sparsify_(make(), density=0.5, blocksize=8)
    assert len(sparse_names(model)) == count
    assert type(model.get_output_embeddings()) is nn.Linear


@pytest.mark.parametrize("make", [gpt2, bert])
def test_hugging_face_models_train_and_become_dense_again(make):
    model = sparsify_(make(), density=0.5, blocksize=8).eval()
    tokens = torch.randint(64, (2, 8))
    out = model(input_ids=tokens, labels=tokens)
    out.loss.backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "values" in name)
    dense = densify_(model)(input_ids=tokens)
    torch.testing.assert_close(dense.logits, out.logits, rtol=1e-4, atol=1e-5)


def test_gpt2_is_the_same_model_at_full_density():
    model, tokens = gpt2().eval(), torch.randint(64, (2, 8))
    expected = model(input_ids=tokens).logits
    sparsify_(model, density=1.0, blocksize=8)
    torch.testing.assert_close(model(input_ids=tokens).logits, expected, rtol=1e-4, atol=1e-5)


def test_a_dense_gpt2_checkpoint_loads_transposed_also_where_square():
    dense = gpt2().eval()
    model = sparsify_(gpt2(), density=1.0, blocksize=8).eval()
    model.load_state_dict(dense.state_dict())
    tokens = torch.randint(64, (2, 8))
    torch.testing.assert_close(
        model(input_ids=tokens).logits, dense(input_ids=tokens).logits, rtol=1e-4, atol=1e-5
    )


def test_densify_gives_gpt2_its_own_layers_back():
    model = densify_(sparsify_(gpt2(), density=0.5, blocksize=8))
    assert type(model.transformer.h[0].mlp.c_fc).__name__ == "Conv1D"
    gpt2().load_state_dict(model.state_dict())
