"""Optimizers that are given a closure train as those whose gradients are there before the step."""

import pytest
import torch

from sparsetile.nn import Linear
from sparsetile.train import MEST, SNFS, DynSparse, Ramp, RigL, SRigL, TopKAST

METHODS = {
    "topkast": lambda: TopKAST(total_steps=20, every=3, penalty=0.1),
    "dynsparse_ramp": lambda: DynSparse(total_steps=20, every=2, young=Ramp(3)),
    "rigl": lambda: RigL(total_steps=20, every=2),
    "srigl": lambda: SRigL(total_steps=20, every=2),
    "mest": lambda: MEST(total_steps=20, every=2, ratios=(0.3,), gradient_weight=1),
    "snfs": lambda: SNFS(total_steps=20, every=2, redistribute=False),
}


def trained(method, step):
    torch.manual_seed(0)
    layer = Linear(16, 16, blocksize=4, density=0.5, dtype=torch.float64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    trainer = method().attach(layer, optimizer)
    for x in torch.randn(7, 4, 16, dtype=torch.float64):

        def closure(x=x):
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            loss.backward()
            return loss

        step(optimizer, closure)
    return layer.weight.to_dense(), trainer.history


def plain(optimizer, closure):
    closure()
    optimizer.step()


def cleared(optimizer, closure):
    optimizer.step(closure)
    optimizer.zero_grad()


WAYS = {
    "position": lambda optimizer, closure: optimizer.step(closure),
    "name": lambda optimizer, closure: optimizer.step(closure=closure),
    "cleared": cleared,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS)
def test_a_closure_changes_nothing(method, way):
    weight, history = trained(METHODS[method], plain)
    again, its_history = trained(METHODS[method], WAYS[way])
    assert len(history) > 1
    assert torch.equal(weight, again)
    assert history == its_history


def test_the_loss_of_the_closure_is_the_step_s():
    layer = Linear(16, 16, blocksize=4, density=0.5)
    optimizer = torch.optim.SGD(layer.parameters())
    TopKAST(total_steps=20, every=5).attach(layer, optimizer)
    assert optimizer.step(lambda: layer(torch.ones(1, 16)).mean() * 0 + 3) == 3
