"""Models of transformers made sparse whole, tables and heads too: they train, save and generate."""

import copy

import pytest
import torch
from safetensors.torch import load_file, load_model, save_model
from torch import nn

from sparsetile.nn import BlockSparse, Embedding, TiedHead, densify_, sparsify_, summary
from sparsetile.train import DynSparse
from support_transformers import bert, gpt2, llama, t5

# Model, its sparse weights without the table, and whether its head is tied to the embedding.
MODELS = {
    "bert": (bert, 12, True),
    "gpt2": (gpt2, 8, True),
    "llama": (llama, 14, True),
    "llama, own head": (lambda: llama(tie_word_embeddings=False), 14, False),
    "t5": (t5, 16, True),
}
CASES = [pytest.param(*case, id=name) for name, case in MODELS.items()]
GENERATING = [pytest.param(case[0], id=name) for name, case in MODELS.items() if name != "bert"]


def in_blocks(module, name):
    """Linear layers of the blocks, and the table of tokens."""
    if isinstance(module, nn.Embedding):
        return name.split(".")[-1] in ("word_embeddings", "wte", "embed_tokens", "shared")
    return any(f"{part}." in f".{name}" for part in (".layer", ".layers", ".block", ".h"))


def sparse(make, seed=0, **options):
    torch.manual_seed(seed)
    options = {"density": 0.5, "blocksize": 8, "filter": in_blocks, "embeddings": True} | options
    return sparsify_(make(), **options)


def tokens(seed=1, rows=4):
    return torch.randint(1, 64, (rows, 12), generator=torch.Generator().manual_seed(seed))


def loss_of(model, ids):
    return model(input_ids=ids, labels=ids).loss


def layers_of(model):
    return {name: m for name, m in model.named_modules() if isinstance(m, BlockSparse)}


@pytest.mark.parametrize("make, count, tied", CASES)
def test_a_filter_reaches_all_blocks(make, count, tied):
    model = sparse(make, embeddings=False)
    assert len(layers_of(model)) == count
    assert not any(isinstance(m, nn.Linear) and in_blocks(m, n) for n, m in model.named_modules())
    assert type(model.get_input_embeddings()) is nn.Embedding
    model = sparse(make)
    assert len(layers_of(model)) == count + 1
    assert isinstance(model.get_input_embeddings(), Embedding)
    assert isinstance(model.get_output_embeddings(), TiedHead if tied else nn.Linear)
    assert summary(model).parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("make, count, tied", CASES)
def test_models_train_with_moving_patterns_and_go_on_from_a_checkpoint(make, count, tied):
    model, ids = sparse(make), tokens()
    before = {name: layer.pattern for name, layer in layers_of(model).items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    trainer = DynSparse(total_steps=8, every=3).attach(model, optimizer)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = loss_of(model, ids)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert set(trainer.layers) == set(before)
    moved = {name for name, layer in trainer.layers.items() if layer.pattern != before[name]}
    assert moved == set(before)
    table = model.get_input_embeddings()
    if tied:
        assert model.get_output_embeddings().embedding is table
    again = sparse(make, seed=5)
    again.load_state_dict(model.state_dict())
    for twin in (again, copy.deepcopy(model)):
        assert torch.equal(loss_of(twin.eval(), ids), loss_of(model.eval(), ids))


@pytest.mark.parametrize("make, count, tied", CASES)
def test_models_become_dense_again_and_dense_checkpoints_fit(make, count, tied):
    model, ids = sparse(make).eval(), tokens()
    want = loss_of(model, ids)
    patterns = {name: layer.pattern for name, layer in layers_of(model).items()}
    dense = densify_(copy.deepcopy(model))
    assert layers_of(dense) == {}
    torch.testing.assert_close(loss_of(dense, ids), want)
    same = dense.get_output_embeddings().weight is dense.get_input_embeddings().weight
    assert same is tied
    make().load_state_dict(dense.state_dict())
    again = sparse(make, seed=7).eval()
    for name, layer in layers_of(again).items():
        layer.set_pattern_(patterns[name])
    # Not strict: it names the weight of a tied head, which has none of its own here.
    again.load_state_dict(dense.state_dict(), strict=False)
    torch.testing.assert_close(loss_of(again, ids), want)


@pytest.mark.parametrize("make, count, tied", CASES)
def test_models_are_saved_by_safetensors_and_by_transformers(make, count, tied, tmp_path):
    model, ids = sparse(make).eval(), tokens()
    want = loss_of(model, ids)
    save_model(model, tmp_path / "ours.safetensors")
    again = sparse(make, seed=5).eval()
    load_model(again, tmp_path / "ours.safetensors")
    assert torch.equal(loss_of(again, ids), want)
    model.save_pretrained(tmp_path)
    again = sparse(make, seed=5).eval()
    again.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert torch.equal(loss_of(again, ids), want)


@pytest.mark.parametrize("make", GENERATING)
def test_models_generate_with_a_cache(make):
    model, start = sparse(make).eval(), tokens(rows=2)[:, :4]
    options = {
        "max_new_tokens": 8,
        "min_new_tokens": 8,
        "do_sample": False,
        "attention_mask": torch.ones_like(start),
        "pad_token_id": 0,
    }
    cached = model.generate(start, **options)
    assert torch.equal(cached, model.generate(start, use_cache=False, **options))
    assert torch.equal(cached, densify_(model).generate(start, **options))
