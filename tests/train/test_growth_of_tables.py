"""Growth by gradient in a table sees what goes through its lookup and through its head."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sparsetile.nn import Embedding, TiedHead
from sparsetile.ops import watch
from sparsetile.train import RigL
from sparsetile.train._gradient import SampledGradient, WholeGradient, pooled


class Model(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embed = Embedding(24, 16, padding_idx=3, blocksize=4, density=0.25)
        self.head = TiedHead(self.embed) if tied else nn.Linear(16, 24)

    def forward(self, rows):
        return self.head(self.embed(rows).tanh())


def rows():
    return torch.randint(24, (5, 7))


def dense_gradient(model, ids, tied):
    table = model.embed.to_embedding().weight.detach().requires_grad_()
    hidden = F.embedding(ids, table, padding_idx=3).tanh()
    y = F.linear(hidden, table) if tied else model.head(hidden)
    return torch.autograd.grad(y.sin().sum(), table)[0]


@pytest.mark.parametrize("sampled", [False, True], ids=["whole", "sampled"])
@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied"])
def test_the_gradient_heard_is_that_of_the_dense_table(tied, sampled):
    model, ids = Model(tied), rows()
    layer = model.embed
    heard = SampledGradient(layer, torch.arange(24)) if sampled else WholeGradient(layer)
    end = watch(layer.crow_indices, heard.see)
    model(ids).sin().sum().backward()
    end()
    blocks = dense_gradient(model, ids, tied).view(6, 4, 4, 4).transpose(1, 2)
    got = torch.cat([scores for _, scores in heard.scores("l1")])
    torch.testing.assert_close(got, pooled(blocks, "l1"), rtol=1e-4, atol=1e-4)


def test_rigl_grows_rows_that_are_looked_up():
    model = nn.Sequential(Embedding(64, 16, blocksize=(1, 4), density=0.25), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = RigL(total_steps=9, every=3).attach(model, optimizer)
    stored = model[0].pattern.to_mask()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.arange(40, 64)).square().sum().backward()
        optimizer.step()
    grown = model[0].pattern.to_mask() & ~stored
    assert trainer.history[0].total > 0
    assert not grown[:40].any()
