"""A trainer's state travels inside its optimizer's."""

import io

import pytest
import torch
from torch import nn

from sparsetile.nn import Linear
from sparsetile.train import GMP, MEST, SNFS, DynSparse, RigL, Static

TOTAL = 8


def start(method, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(
        Linear(16, 24, blocksize=4, density=0.5),
        nn.ReLU(),
        Linear(24, 16, blocksize=4, density=0.5),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, method.attach(model, optimizer)


def train(model, optimizer, first, last):
    for step in range(first, last):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


METHODS = {
    "Static": Static(),
    "DynSparse": DynSparse(total_steps=TOTAL, every=2),
    "RigL": RigL(total_steps=TOTAL, every=2),
    "SNFS": SNFS(total_steps=TOTAL, every=2),
    "MEST": MEST(total_steps=TOTAL, every=2),
    "GMP": GMP(total_steps=TOTAL, every=2, density=0.25),
}


# Before an update, and right after one.
@pytest.mark.parametrize("at", [3, 4])
@pytest.mark.parametrize("name", METHODS)
def test_model_and_optimizer_are_all_that_a_resumed_run_needs(name, at):
    model, optimizer, trainer = start(METHODS[name])
    train(model, optimizer, 0, at)
    saved = through_a_file([model.state_dict(), optimizer.state_dict()])
    train(model, optimizer, at, TOTAL)

    again, its_optimizer, its_trainer = start(METHODS[name], seed=1)
    again.load_state_dict(saved[0])
    its_optimizer.load_state_dict(saved[1])
    assert its_trainer.step_count == at
    train(again, its_optimizer, at, TOTAL)
    assert its_trainer.history == trainer.history
    assert its_trainer.coverage() == trainer.coverage()
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor), key


def test_several_trainers_ride_in_one_optimizer():
    def pair():
        model = nn.ModuleDict(
            {
                "a": Linear(16, 16, blocksize=4, density=0.5),
                "b": Linear(16, 16, blocksize=4, density=0.5),
            }
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        parts = [nn.ModuleDict({name: model[name]}) for name in ("a", "b")]
        methods = [DynSparse(total_steps=TOTAL, every=2), Static()]
        return optimizer, [
            m.attach(part, optimizer) for m, part in zip(methods, parts, strict=True)
        ]

    optimizer, trainers = pair()
    for _ in range(3):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    fresh, (first, second) = pair()
    fresh.load_state_dict(optimizer.state_dict())
    assert first.history == trainers[0].history and len(first.history) == 1
    assert second.step_count == 3 and second.history == []


def test_a_state_without_a_rider_leaves_the_trainer_alone():
    model, optimizer, trainer = start(METHODS["DynSparse"])
    state = torch.optim.AdamW(model.parameters(), lr=1e-2).state_dict()
    train(model, optimizer, 0, 3)
    optimizer.load_state_dict(state)
    assert trainer.step_count == 3


def test_a_rider_of_another_model_is_refused_before_anything_changes():
    model, optimizer, trainer = start(METHODS["DynSparse"])
    train(model, optimizer, 0, 3)
    layer = Linear(16, 16, blocksize=4, density=0.5)
    other = torch.optim.AdamW(layer.parameters())
    DynSparse(total_steps=TOTAL, every=2).attach(layer, other)
    with pytest.raises(ValueError, match="other sparse layers"):
        optimizer.load_state_dict(other.state_dict())
    assert trainer.step_count == 3
    assert all("exp_avg" in optimizer.state[p] for p in model.parameters())


def test_a_detached_trainer_rides_no_longer():
    _, optimizer, trainer = start(METHODS["DynSparse"])
    assert "sparsetile" in optimizer.state_dict()
    trainer.detach()
    assert optimizer.state_dict().keys() == {"state", "param_groups"}


@pytest.mark.parametrize("at", [3, 4, 5])
def test_trainers_of_parts_that_look_alike_get_each_its_own_state(at):
    def begin():
        torch.manual_seed(0)
        parts = [nn.Sequential(Linear(16, 16, blocksize=2, density=0.25)) for _ in range(2)]
        model = nn.Sequential(*parts)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        methods = [DynSparse(total_steps=TOTAL, every=2, seed=seed) for seed in range(2)]
        pairs = zip(methods, parts, strict=True)
        return model, optimizer, [method.attach(part, optimizer) for method, part in pairs]

    model, optimizer, trainers = begin()
    train(model, optimizer, 0, at)
    saved = through_a_file([model.state_dict(), optimizer.state_dict()])
    train(model, optimizer, at, TOTAL)
    again, its_optimizer, its_trainers = begin()
    again.load_state_dict(saved[0])
    its_optimizer.load_state_dict(saved[1])
    train(again, its_optimizer, at, TOTAL)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name
    for one, other in zip(trainers, its_trainers, strict=True):
        assert one.history == other.history
        assert one.coverage() == other.coverage()
