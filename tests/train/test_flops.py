"""Operations of training: the published counts, and those of real models against torch's own."""

import math

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sparsetile.matrix import random_pattern
from sparsetile.nn import LSTM, Linear, SelfAttention, densify_, sparsify_
from sparsetile.train import FlopCount, count_flops, transformer_flops
from support import without_type_checks

# Dietrich et al. (2021), tables of BERT at sequence 128: layers, width, density, operations.
PUBLISHED = {
    "mini": (4, 256, 1.0, "2.617e+09"),
    "small": (4, 512, 1.0, "1.007e+10"),
    "medium_sparse": (8, 512, 0.1, "2.738e+09"),
    "base_sparse": (12, 768, 0.1, "8.335e+09"),  # printed there as 8.33e9
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_formula_gives_the_published_count(name):
    layers, width, density, printed = PUBLISHED[name]
    assert f"{transformer_flops(layers, width, 128, density=density):.4g}" == printed


def test_published_count_of_base_is_cut_not_rounded():
    assert math.floor(transformer_flops(12, 768, 128, density=0.1) / 1e7) == 833


def test_inner_width_counts_twice_its_product():
    wide, default = transformer_flops(2, 64, 32, ffn=512), transformer_flops(2, 64, 32)
    assert wide - default == 2 * 6 * 32 * 2 * 64 * 256


def bert(layers=2, width=64):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=50,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * width,
        max_position_embeddings=128,
    )
    return BertForMaskedLM(config)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = dict(vocab_size=50, n_positions=128, n_embd=64, n_layer=2, n_head=4)
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


@pytest.mark.parametrize("make", [bert, gpt2])
def test_count_of_a_dense_model_is_the_formula(make):
    assert count_flops(make(), sequence=128).non_embedding == transformer_flops(2, 64, 128)


def test_count_of_a_sparse_model_is_the_formula_at_its_density():
    model = sparsify_(bert(), density=0.25, blocksize=4, filter=lambda m, n: ".layer." in n)
    count = count_flops(model, sequence=128)
    assert count.non_embedding == transformer_flops(2, 64, 128, density=0.25)
    assert count.sparse > 0
    assert count.dense == 0


def test_count_of_an_encoder_and_decoder_has_three_attentions_for_two_layers():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=4, vocab_size=50)
    count = count_flops(T5ForConditionalGeneration(config), sequence=16)
    assert count.attention == (2 + 2 * 2) * 3 * 4 * 16 * 16 * (4 * 16)


def test_head_is_what_an_embedding_shares_or_what_one_says():
    model = nn.ModuleDict({"table": nn.Embedding(20, 8), "up": nn.Linear(8, 8)})
    model["out"] = nn.Linear(8, 20)
    assert count_flops(model).head == 0
    assert count_flops(model, head=lambda module, name: name == "out").head == 3 * 2 * 8 * 20
    model["out"].weight = model["table"].weight
    assert count_flops(model) == FlopCount(dense=3 * 2 * 8 * 8, head=3 * 2 * 8 * 20)


@pytest.mark.parametrize("frozen", [False, True])
def test_count_is_what_torch_sees(frozen):
    model = nn.Sequential(nn.Linear(24, 16), nn.Linear(16, 40), nn.Linear(40, 8))
    model[1].weight.requires_grad_(not frozen)
    x = torch.randn(6, 24, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    assert count_flops(model, batch=6).total == counter.get_total_flops()


@pytest.mark.parametrize(
    ("layer", "weights"),
    [
        (nn.LSTM(8, 16, num_layers=2), 4 * (16 * 8 + 3 * 16 * 16)),
        (nn.GRU(8, 16, bidirectional=True), 2 * 3 * (16 * 8 + 16 * 16)),
    ],
    ids=["lstm", "gru"],
)
def test_recurrent_layers_multiply_each_token_by_all_their_weights(layer, weights):
    assert count_flops(layer, sequence=5, batch=2).dense == 10 * 3 * 2 * weights


def test_fused_attention_counts_as_that_of_torch():
    sparse = count_flops(SelfAttention(16, 4, density=1.0, blocksize=4), sequence=10, batch=3)
    dense = count_flops(nn.MultiheadAttention(16, 4), sequence=10, batch=3)
    assert (sparse.sparse, sparse.attention) == (dense.dense, dense.attention)


def test_sparse_recurrent_layer_counts_as_dense_at_its_density():
    sparse = LSTM(8, 16, num_layers=2, density=0.5, blocksize=4)
    dense = nn.LSTM(8, 16, num_layers=2)
    assert count_flops(sparse, batch=7).sparse == count_flops(dense, batch=7).dense / 2


def test_attention_of_torch_is_counted_with_its_products():
    attention = nn.MultiheadAttention(16, 4)
    count = count_flops(attention, sequence=10, batch=3)
    assert count.dense == 30 * 3 * 2 * 4 * 16 * 16
    assert count.attention == 3 * 3 * 4 * 10 * 10 * 16


def test_count_follows_a_pattern_that_shrinks():
    layer = Linear(32, 32, blocksize=4, density=0.5)
    before = count_flops(layer).sparse
    layer.set_pattern_(random_pattern(32, 32, blocksize=4, density=0.25, seed=0))
    assert count_flops(layer).sparse == before / 2


def test_what_blocks_hold_beyond_a_ragged_edge_is_not_counted():
    layer = Linear(21, 13, blocksize=8, density=1.0)
    assert count_flops(layer).sparse == count_flops(densify_(layer)).dense == 6 * 21 * 13


BAD = {
    "layers": (lambda: transformer_flops(0, 8, 8), "layers must be 1 or more, got 0"),
    "width": (lambda: transformer_flops(1, 8.0, 8), "width must be an int"),
    "sequence": (lambda: transformer_flops(1, 8, -1), "sequence must be 1 or more"),
    "ffn": (lambda: transformer_flops(1, 8, 8, ffn=0), "ffn must be 1 or more"),
    "density": (lambda: transformer_flops(1, 8, 8, density=1.5), "density must be between 0 and 1"),
    "density_nan": (
        lambda: transformer_flops(1, 8, 8, density=math.nan),
        "density must be between 0 and 1",
    ),
    "density_text": (lambda: transformer_flops(1, 8, 8, density="0.1"), "density must be a number"),
    "model": (lambda: count_flops([nn.Linear(2, 2)]), "model must be a torch.nn.Module, got list"),
    "batch": (lambda: count_flops(nn.Linear(2, 2), batch=0), "batch must be 1 or more"),
    "head": (lambda: count_flops(nn.Linear(2, 2), head="out"), "head must be a function"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_is_refused(case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((TypeError, ValueError), match=message):
        call()
