"""Block-sparse tables and heads that share them: as torch's dense ones, and tied for good."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsetile.matrix import random_pattern
from sparsetile.nn import Embedding, TiedEmbedding, TiedHead
from support import without_type_checks

PATTERN = random_pattern(16, 32, blocksize=4, density=0.5, seed=0)


class Tied(nn.Module):
    def __init__(self, bias=True, **kwargs):
        super().__init__()
        self.embed = Embedding(24, 16, blocksize=4, density=0.5, **kwargs)
        self.body = nn.Linear(16, 16, dtype=kwargs.get("dtype"))
        self.head = TiedHead(self.embed, bias)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)).tanh())


def tokens(*shape):
    return torch.randint(24, shape)


@pytest.mark.parametrize("padding", [None, 2, -1])
def test_a_table_is_its_dense_twin(padding):
    table = Embedding(24, 16, padding, blocksize=(4, 8), density=0.5, dtype=torch.float64)
    dense = table.to_embedding()
    assert dense.padding_idx == table.padding_idx
    rows = tokens(3, 9)
    rows[0, :3] = 2
    got, want = table(rows), dense(rows)
    assert torch.equal(got, want)
    dy = torch.randn_like(got)
    got.backward(dy)
    want.backward(dy)
    kept = Embedding.from_embedding(dense, pattern=table.pattern)
    dense.weight.data = dense.weight.grad
    grad = Embedding.from_embedding(dense, pattern=table.pattern).values
    torch.testing.assert_close(table.values.grad, grad.detach())
    assert torch.equal(kept.values, table.values)


def test_a_padding_row_starts_at_zero_and_stays():
    table = Embedding(24, 16, padding_idx=-1, blocksize=4, density=1.0)
    assert (table(torch.tensor([23])) == 0).all()
    assert (table(torch.tensor([22])) != 0).all()
    optimizer = torch.optim.Adam(table.parameters(), lr=0.1)
    table(torch.tensor([22, 23])).square().sum().backward()
    optimizer.step()
    assert (table(torch.tensor([23])) == 0).all()


def test_gradients_of_several_batches_add_up():
    table, both = (Embedding(16, 32, pattern=PATTERN) for _ in range(2))
    both.load_state_dict(table.state_dict())
    first, second = torch.randint(16, (5,)), torch.randint(16, (7,))
    table(first).sin().sum().backward()
    table(second).sin().sum().backward()
    both(torch.cat((first, second))).sin().sum().backward()
    torch.testing.assert_close(table.values.grad, both.values.grad)


@pytest.mark.parametrize("method", ["magnitude", "random"])
def test_from_embedding_keeps_values(method):
    dense = nn.Embedding(24, 16, dtype=torch.bfloat16).eval()
    dense.weight.requires_grad_(False)
    table = Embedding.from_embedding(dense, blocksize=4, density=0.25, method=method)
    assert table.nnzb == 6
    assert not table.values.requires_grad
    assert not table.training
    rows = torch.arange(24)
    mask = table.pattern.to_mask()
    assert torch.equal(table(rows), torch.where(mask, dense(rows), 0))


def test_both_uses_of_a_tied_table_add_to_one_gradient():
    model = Tied(dtype=torch.float64)
    rows = tokens(2, 7)
    model(rows).sin().sum().backward()
    full = model.embed.to_embedding().weight.detach().requires_grad_()
    hidden = model.body(F.embedding(rows, full)).tanh()
    F.linear(hidden, full, model.head.bias).sin().sum().backward()
    dense = nn.Embedding(24, 16, _weight=full.grad)
    want = Embedding.from_embedding(dense, pattern=model.embed.pattern).values
    torch.testing.assert_close(model.embed.values.grad, want.detach())


def test_a_second_embedding_has_a_padding_row_of_its_own():
    table = Embedding(24, 16, blocksize=4, density=0.5)
    second = TiedEmbedding(table, padding_idx=-24)
    rows = torch.tensor([0, 1])
    assert torch.equal(second(rows), table(rows))
    (first,) = torch.autograd.grad(table(rows).sum(), table.values)
    (other,) = torch.autograd.grad(second(rows).sum(), table.values)
    assert bool((first[:, 0] != other[:, 0]).any())
    assert torch.equal(first[:, 1:], other[:, 1:])


def test_a_tied_table_is_one_parameter_and_one_entry():
    model = Tied()
    names = [name for name, _ in model.named_parameters()]
    assert names == ["embed.values", "body.weight", "body.bias", "head.bias"]
    assert {name for name in model.state_dict() if "values" in name} == {"embed.values"}


@pytest.mark.parametrize(
    "change",
    [
        lambda model: copy.deepcopy(model),
        lambda model: model.to(torch.float64),
        lambda model: model.half().float(),
        lambda model: model.to("meta").to_empty(device="cpu"),
    ],
    ids=["deepcopy", "double", "half_and_back", "to_empty"],
)
def test_a_tie_holds(change):
    model = change(Tied())
    source = Tied()
    model.load_state_dict(source.state_dict())
    assert model.head.embedding is model.embed
    rows = tokens(2, 7)
    torch.testing.assert_close(model(rows).float(), source(rows))
    model.embed.set_pattern_(random_pattern(24, 16, blocksize=4, density=0.25, seed=3))
    assert model.head.weight.nnzb == model.embed.nnzb == 6
    hidden = torch.randn(3, 16, dtype=model.embed.values.dtype)
    want = F.linear(hidden, model.embed.to_embedding().weight, model.head.bias)
    torch.testing.assert_close(model.head(hidden), want)


def test_a_dense_checkpoint_loads_into_a_tied_model():
    dense, model = nn.Embedding(24, 16), Tied(bias=False)
    state = {
        "embed.weight": dense.weight,
        **{f"body.{k}": v for k, v in model.body.state_dict().items()},
    }
    with pytest.warns(UserWarning, match="embed.weight is dense"):
        model.load_state_dict(state)
    mask = model.embed.pattern.to_mask()
    assert torch.equal(model.head.weight.to_dense(), torch.where(mask, dense.weight, 0))


def test_tied_models_compile_and_follow_their_pattern():
    model, rows = Tied(), tokens(2, 7)
    torch._dynamo.reset()
    with without_type_checks():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        compiled(rows).sum().backward()
        got, model.embed.values.grad = model.embed.values.grad, None
        model(rows).sum().backward()
        assert torch.equal(got, model.embed.values.grad)
        with torch.no_grad():
            other = random_pattern(24, 16, blocksize=4, density=0.5, seed=9)
            model.embed.set_pattern_(other)
        assert torch.equal(compiled(rows), model(rows))
    torch._dynamo.reset()


def test_autocast_casts_the_head_and_not_the_lookup():
    model = Tied()
    with torch.autocast("cpu", torch.bfloat16):
        assert model.embed(tokens(3)).dtype == torch.float32
        out = model(tokens(2, 7))
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert model.embed.values.grad.dtype == torch.float32


def scaled():
    return nn.Embedding(8, 8, scale_grad_by_freq=True)


BAD = {
    "rows": (lambda: Embedding(-1, 8, density=0.5), "num_embeddings must be 0 or more"),
    "width": (lambda: Embedding(8, 8.0, density=0.5), "embedding_dim must be an int"),
    "neither": (lambda: Embedding(8, 8), "exactly one of density and pattern, got neither"),
    "shape": (lambda: Embedding(8, 8, pattern=PATTERN), r"shape \(8, 8\), got \(16, 32\)"),
    "padding": (lambda: Embedding(8, 8, 8, density=0.5), "padding_idx must be a row, -8 to 7"),
    "padding_text": (lambda: Embedding(8, 8, "0", density=0.5), "padding_idx must be an int"),
    "row": (lambda: Embedding(8, 8, density=0.5)(torch.tensor([8])), "row 8.*rows 0 to 7"),
    "floats": (lambda: Embedding(8, 8, density=0.5)(torch.ones(3)), "indices is torch.float32"),
    "from_linear": (
        lambda: Embedding.from_embedding(nn.Linear(8, 8), density=0.5),
        "embedding must be a torch.nn.Embedding, got Linear",
    ),
    "from_scaled": (
        lambda: Embedding.from_embedding(scaled(), density=0.5),
        "scale_grad_by_freq=True.*build it with scale_grad_by_freq=False",
    ),
    "head_of_dense": (lambda: TiedHead(nn.Embedding(8, 8)), "must be a sparsetile.nn.Embedding"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_in_words(case):
    call, message = BAD[case]
    errors = (ValueError, TypeError, IndexError)
    with without_type_checks(), pytest.raises(errors, match=message):
        call()
