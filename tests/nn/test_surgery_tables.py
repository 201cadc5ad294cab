"""Surgery on what is no linear layer: recurrent layers, embeddings, and heads tied to them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsetile.nn import (
    ER,
    GRU,
    LSTM,
    BlockSparse,
    Embedding,
    Linear,
    TiedEmbedding,
    TiedHead,
    densify_,
    sparsify_,
    summary,
)
from support import without_type_checks


class Tagger(nn.Module):
    """A recurrent language model; `tie` says in which order table and head are."""

    def __init__(self, tie="embed first", kind=nn.LSTM):
        super().__init__()
        if tie == "head first":
            self.head = nn.Linear(16, 24)
        self.embed = nn.Embedding(24, 16, padding_idx=0)
        self.rnn = kind(16, 16, batch_first=True)
        if tie != "head first":
            self.head = nn.Linear(16, 24)
        if tie != "not":
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])


class Twice(nn.Module):
    """Two embeddings and a head with one weight, as an encoder and a decoder have."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Embedding(24, 16), nn.Embedding(24, 16, padding_idx=3)
        self.head = nn.Linear(16, 24, bias=False)
        self.decoder.weight = self.head.weight = self.encoder.weight

    def forward(self, tokens):
        return self.head(self.encoder(tokens) + self.decoder(tokens))


def everything(module, name):
    return True


def tokens():
    return torch.randint(24, (3, 7))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_filter_makes_recurrent_layers_sparse(kind):
    model = Tagger("not", kind)
    bias = model.rnn.bias_hh_l0
    sparsify_(model, density=0.5, blocksize=4, filter=everything)
    assert isinstance(model.rnn, LSTM if kind is nn.LSTM else GRU)
    assert model.rnn.hh_l0.bias is bias
    assert type(model.embed) is nn.Embedding
    assert [name for name, m in model.named_modules() if isinstance(m, BlockSparse)] == [
        "rnn.ih_l0",
        "rnn.hh_l0",
        "head",
    ]
    x, want = tokens(), None
    want = model(x)
    densify_(model)
    assert type(model.rnn) is kind
    assert model.rnn.bias_hh_l0 is bias
    torch.testing.assert_close(model(x), want)


def test_without_a_filter_recurrent_layers_stay_and_the_warning_says_why():
    model = nn.Sequential(nn.LSTM(8, 8))
    with pytest.warns(UserWarning, match="1 recurrent, for a filter to select"):
        sparsify_(model, density=0.5, blocksize=4)
    assert type(model[0]) is nn.LSTM


def test_budgets_see_each_weight_of_a_recurrent_layer():
    model = sparsify_(Tagger("not"), density=ER(0.25), blocksize=4, filter=everything)
    blocks = [m.nnzb for m in model.modules() if isinstance(m, BlockSparse)]
    assert sum(blocks) == round(0.25 * (64 + 64 + 24))
    per_layer = {"rnn.ih_l0": 0.5, "rnn.*": 0.25, "*": None}
    model = sparsify_(Tagger("not"), density=per_layer, blocksize=4, filter=everything)
    assert (model.rnn.ih_l0.nnzb, model.rnn.hh_l0.nnzb) == (32, 16)
    assert type(model.head) is nn.Linear


def test_a_recurrent_layer_becomes_sparse_as_a_whole_or_not_at_all():
    model = Tagger("not")
    with pytest.raises(ValueError, match=r"'rnn' must all become sparse.*None for rnn.hh_l0"):
        sparsify_(model, density={"rnn.hh_l0": None, "*": 0.5}, blocksize=4, filter=everything)
    assert type(model.rnn) is nn.LSTM
    sparsify_(model, density={"rnn.*": None, "*": 0.5}, blocksize=4, filter=everything)
    assert type(model.rnn) is nn.LSTM
    assert isinstance(model.head, Linear)


@pytest.mark.parametrize("tie", ["embed first", "head first"])
@pytest.mark.parametrize("filter", [None, everything], ids=["default", "filter"])
def test_a_tied_table_becomes_sparse_with_its_head(tie, filter):
    model = Tagger(tie)
    bias, table, seen = model.head.bias, model.embed.weight.detach().clone(), []
    model.head.register_forward_hook(lambda *_: seen.append("head"))
    sparsify_(model, density=0.25, blocksize=4, method="magnitude", filter=filter, embeddings=True)
    assert isinstance(model.embed, Embedding)
    assert isinstance(model.head, TiedHead)
    assert model.head.embedding is model.embed
    assert model.head.bias is bias
    assert model.embed.padding_idx == 0
    mask = model.embed.pattern.to_mask()
    assert torch.equal(model.embed.weight.to_dense(), torch.where(mask, table, 0))
    want = model(tokens := torch.randint(24, (3, 7)))
    assert seen == ["head"]
    densify_(model)
    assert model.head.weight is model.embed.weight
    assert model.head.bias is bias
    torch.testing.assert_close(model(tokens), want)


def test_all_sharers_of_a_table_go_with_it():
    model = sparsify_(Twice(), density=0.5, blocksize=4, embeddings=True)
    assert model.encoder is model.decoder.embedding is model.head.embedding
    assert isinstance(model.decoder, TiedEmbedding)
    assert list(model.state_dict()) == [
        "encoder.values",
        "encoder.crow_indices",
        "encoder.col_indices",
    ]
    x = tokens()
    want = model(x)
    want.sum().backward()
    densify_(model)
    assert model.encoder.weight is model.decoder.weight is model.head.weight
    assert (model.encoder.padding_idx, model.decoder.padding_idx) == (None, 3)
    torch.testing.assert_close(model(x), want)


def test_embeddings_alone_are_replaced_when_asked_for():
    model = nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 24))
    sparsify_(model, density=0.5, blocksize=4)
    assert type(model[0]) is nn.Embedding
    model = nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 24))
    sparsify_(
        model,
        density=0.5,
        blocksize=4,
        embeddings=True,
        filter=lambda module, name: isinstance(module, nn.Embedding),
    )
    assert isinstance(model[0], Embedding)
    assert type(model[1]) is nn.Linear


def test_a_table_by_itself_is_returned_in_the_other_kind():
    table = sparsify_(nn.Embedding(24, 16), density=0.5, blocksize=4, embeddings=True)
    assert isinstance(table, Embedding)
    assert type(densify_(table)) is nn.Embedding
    assert type(densify_(TiedHead(table))) is nn.Linear


class Odd(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight


def test_what_cannot_go_with_a_table_is_named():
    model = nn.ModuleDict({"embed": nn.Embedding(24, 16)})
    model["odd"] = Odd(model["embed"].weight)
    with pytest.raises(ValueError, match=r"'embed' shares its weight with 'odd', a Odd"):
        sparsify_(model, density=0.5, blocksize=4, embeddings=True)
    model = nn.Sequential(nn.Embedding(24, 16, max_norm=1.0))
    with pytest.raises(ValueError, match=r"'0' cannot be made sparse: it has max_norm=1.0"):
        sparsify_(model, density=0.5, blocksize=4, embeddings=True)
    wanted = "embeddings must be True or False, got 1"
    with without_type_checks(), pytest.raises(TypeError, match=wanted):
        sparsify_(model, density=0.5, blocksize=4, embeddings=1)


def test_a_summary_counts_a_shared_table_once():
    model = sparsify_(
        Tagger(), density=0.25, blocksize=4, embeddings=True, filter=lambda m, n: n != "head"
    )
    rows = {row.name: row for row in summary(model).rows}
    assert rows["embed"].shape == (24, 16)
    assert rows["embed"].parameters == model.embed.values.numel()
    assert rows["head"].note == "tied to embed"
    assert rows["head"].parameters == 24
    assert rows["head"].density == rows["embed"].density
    assert "rnn.ih_l0" in rows
    assert summary(model).parameters == sum(p.numel() for p in model.parameters())
    dense = densify_(model)
    assert sum(row.dense_bytes for row in rows.values()) == summary(dense).bytes


def test_a_full_table_is_the_same_model():
    dense = Twice()
    x = tokens()
    want = dense(x)
    loss = F.cross_entropy(want.flatten(0, 1), x.flatten())
    (grad,) = torch.autograd.grad(loss, dense.encoder.weight)
    model = sparsify_(dense, density=1.0, blocksize=4, embeddings=True)
    got = model(x)
    torch.testing.assert_close(got, want)
    F.cross_entropy(got.flatten(0, 1), x.flatten()).backward()
    model.encoder.values.data = model.encoder.values.grad
    torch.testing.assert_close(model.encoder.weight.to_dense(), grad)
