import pytest
import torch

from sparsetile import nn
from sparsetile.bench._memory import memory_of
from sparsetile.bench._model import ModelSize, build, config_of, groups_of, loss_of, make_sparse

SIZE = ModelSize(layers=2, width=32, heads=2, sequence=16, vocabulary=300)
LAYERS = {"clm": 4, "mlm": 6}  # fully connected layers of one transformer block


def sparse_model(objective):
    model = build(config_of(objective, SIZE), seed=0)
    return make_sparse(model, density=0.25, blocksize=4, seed=0)


def sparse_layers(model):
    return [m for m in model.modules() if isinstance(m, nn.Linear)]


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_every_layer_of_the_blocks_is_sparse_and_nothing_else(objective):
    model = sparse_model(objective)
    assert len(sparse_layers(model)) == LAYERS[objective] * SIZE.layers
    assert isinstance(model.get_input_embeddings(), torch.nn.Embedding)
    assert type(model.get_output_embeddings()) is torch.nn.Linear


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_one_seed_gives_one_model(objective):
    first, second = sparse_model(objective).state_dict(), sparse_model(objective).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_fresh_model_knows_nothing(objective):
    tokens = torch.randint(300, (8, 16))
    loss = loss_of(build(config_of(objective, SIZE), seed=0), tokens, tokens)
    assert abs(loss.item() - torch.tensor(300.0).log().item()) < 0.5


def test_dense_and_sparse_models_begin_with_the_same_embedding():
    dense = build(config_of("clm", SIZE), seed=0)
    sparse = sparse_model("clm")
    assert torch.equal(dense.get_input_embeddings().weight, sparse.get_input_embeddings().weight)


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_groups_hold_every_parameter_once_and_blocks_have_their_rate(objective):
    model = sparse_model(objective)
    groups = groups_of(model, 1e-3, 5e-3)
    grouped = [p for group in groups for p in group["params"]]
    assert sorted(map(id, grouped)) == sorted(map(id, model.parameters()))
    (blocks,) = [group["params"] for group in groups if group["lr"] == 1e-3]
    assert {id(p) for p in blocks} == {id(layer.values) for layer in sparse_layers(model)}


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_groups_of_dense_and_sparse_models_match(objective):
    dense = groups_of(build(config_of(objective, SIZE), seed=0), 1e-3, 5e-3)
    sparse = groups_of(sparse_model(objective), 1e-3, 5e-3)
    assert [len(g["params"]) for g in dense] == [len(g["params"]) for g in sparse]


def test_memory_counts_every_tensor_of_training():
    model = sparse_model("clm")
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(300, (2, 16))
    loss_of(model, tokens, tokens).backward()
    optimizer.step()
    rows = memory_of(model, optimizer)
    found = {k: sum(r["bytes"] for r in rows if r["kind"] == k) for k in {r["kind"] for r in rows}}
    weights = sum(p.nbytes for p in model.parameters())
    indices = sum(m.crow_indices.nbytes + m.col_indices.nbytes for m in sparse_layers(model))
    assert found["weights"] == found["gradients"] == weights
    assert found["indices"] == indices
    assert 2 * weights <= found["optimizer"] < 2 * weights + 1000  # two moments and step counts


def test_memory_of_the_blocks_is_that_of_the_sparse_layers():
    model = sparse_model("clm")
    rows = memory_of(model, torch.optim.AdamW(model.parameters()))
    (row,) = [r for r in rows if (r["part"], r["kind"]) == ("blocks", "weights")]
    assert row["bytes"] == sum(m.values.nbytes + m.bias.nbytes for m in sparse_layers(model))
