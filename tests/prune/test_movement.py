import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sparsetile.nn import sparsify_
from sparsetile.prune import Movement, distillation_loss, movement
from support_prune import correlated, dense_net

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-2),
    "momentum": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-2),
}
X = correlated(64, 36, dtype=torch.float32)


def start(optimizer="adamw", blocksize=4, **options):
    model = sparsify_(dense_net(), density=1.0, blocksize=blocksize)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    settings = {"density": 0.25, "total_steps": 20, "every": 4} | options
    return model, optimizer, Movement(**settings).attach(model, optimizer)


def step(model, optimizer, x=X):
    optimizer.zero_grad()
    (model(x) - x[:, :18]).square().mean().backward()
    moved = {
        n: -(p.detach() * p.grad).sum((1, 2)) for n, p in model.named_parameters() if p.ndim > 2
    }
    optimizer.step()
    return moved


@pytest.mark.parametrize("blocksize", [1, 4, (4, 2)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_scores_are_the_sum_of_movements_and_decide(optimizer, blocksize):
    model, optimizer, trainer = start(optimizer, blocksize)
    names = {"0.values": model[0], "2.values": model[2]}
    total = {name: torch.zeros(layer.nnzb) for name, layer in names.items()}
    for _ in range(20):
        stored = {name: layer.pattern.block_mask() for name, layer in names.items()}
        moved = step(model, optimizer)
        for name, layer in names.items():
            total[name] += moved[name]
            survived = layer.pattern.block_mask()[stored[name]]
            # Whoever left had the lowest sums so far.
            assert survived.all() or total[name][survived].min() >= total[name][~survived].max()
            total[name] = total[name][survived]
            if len(optimizer.state[layer.values]):
                torch.testing.assert_close(movement(layer), total[name])
    for layer in names.values():
        assert layer.nnzb == math.ceil(0.25 * layer.pattern.block_mask().numel())
    assert [u.step for u in trainer.history][-1] == 14


def test_state_of_the_optimizer_holds_and_restores_the_scores():
    model, optimizer, trainer = start()
    for _ in range(9):
        step(model, optimizer)
    twin, other, copied = start()
    weights, state = (copy.deepcopy(m.state_dict()) for m in (model, optimizer))
    twin.load_state_dict(weights)
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    for _ in range(8):
        step(model, optimizer)
        step(twin, other)
    assert [u.blocks for u in copied.history] == [u.blocks for u in trainer.history]
    for layer, same in ((model[0], twin[0]), (model[2], twin[2])):
        assert layer.pattern == same.pattern
        assert torch.equal(layer.values, same.values)


def test_steps_that_overflowed_do_not_count():
    model, optimizer, _ = start("sgd")
    step(model, optimizer)
    step(model, optimizer)
    before = movement(model[0]).clone()
    model[0].values.grad = torch.full_like(model[0].values, float("inf"))
    values = model[0].values.detach().clone()
    optimizer.step()
    model[0].values.data.copy_(values)
    assert torch.equal(movement(model[0]), before)


def test_global_scope_shares_one_density():
    model, optimizer, _ = start(scope="global")
    for _ in range(20):
        step(model, optimizer)
    stored = model[0].nnzb + model[2].nnzb
    assert stored == round(0.25 * (16 * 9 + 5 * 16))
    assert model[0].nnzb != round(0.25 * 16 * 9)


def test_distillation_is_the_weighted_sum_of_its_parts():
    student, teacher = torch.randn(6, 5, requires_grad=True), torch.randn(6, 5, requires_grad=True)
    labels_loss = F.cross_entropy(student, torch.arange(6) % 5)
    p, q = (F.softmax(logits / 3, dim=-1) for logits in (teacher, student))
    soft = 9 * (p * (p / q).log()).sum(-1).mean()
    got = distillation_loss(student, teacher, labels_loss, temperature=3.0, alpha=0.7)
    torch.testing.assert_close(got, 0.7 * soft + 0.3 * labels_loss)
    got.backward()
    assert teacher.grad is None and student.grad is not None
    alone = distillation_loss(student.view(2, 3, 5), teacher.view(2, 3, 5), temperature=3.0)
    torch.testing.assert_close(alone, soft)


def test_distillation_recovers_what_pruning_lost():
    dense = dense_net()
    model, optimizer, _ = start("adamw")

    def away():
        with torch.no_grad():
            return float(distillation_loss(model(X), dense(X)))

    for _ in range(15):
        step_towards(model, dense, optimizer)
    pruned = away()
    for _ in range(60):
        step_towards(model, dense, optimizer)
    assert away() < 0.7 * pruned


def step_towards(model, dense, optimizer):
    optimizer.zero_grad()
    distillation_loss(model(X), dense(X)).backward()
    optimizer.step()


def test_frozen_layers_stay():
    model = sparsify_(nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), density=1.0, blocksize=4)
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
    Movement(density=0.5, total_steps=10, every=2).attach(model, optimizer)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
    assert [layer.nnzb for layer in model] == [16, 8]
