"""Where blocks grow by gradient: as the dense gradient says, without one."""

import copy

import pytest
import torch

from sparsetile.nn import Linear
from sparsetile.train import SNFS, RigL
from sparsetile.train._positions import positions
from support_train import METHODS, STEPS, make, run

MOVING = [name for name in METHODS if name != "static"]


class Lines:
    wanted = 0

    def on_step(self, trainer):
        # At the step of an update, before it: the dense gradient that would have been.
        self.taken = {name: positions(layer) for name, layer in trainer.layers.items()}

    def on_update(self, trainer, update):
        self.update = update
        self.after = {name: positions(layer) for name, layer in trainer.layers.items()}


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("blocksize", [1, 4, (2, 3)], ids=str)
def test_growth_by_gradient_is_that_of_the_dense_gradient(blocksize, norm, passes):
    model, optimizer = make(blocksize=blocksize, dtype=torch.float64)
    method = RigL(total_steps=20, every=2, norm=norm)
    lines = method.attach(model, optimizer).add_callback(Lines())
    run(model, optimizer, range(1))
    dense = [layer.to_linear() for layer in (model[0], model[2])]
    optimizer.zero_grad()
    for _ in range(passes):  # gradient accumulation
        x = torch.randn(7, 36, dtype=torch.float64)
        (model(x) - x[:, :18]).square().mean().backward()
        y = dense[1](torch.tanh(dense[0](x)))
        (y - x[:, :18]).square().mean().backward()
    optimizer.step()
    for name, layer, twin in (("0", model[0], dense[0]), ("2", model[2], dense[1])):
        (r, c), (mb, kb) = layer.blocksize, layer.pattern.grid
        full = torch.zeros(mb * r, kb * c, dtype=torch.float64)
        full[: layer.shape[0], : layer.shape[1]] = twin.weight.grad
        blocks = full.view(mb, r, kb, c).transpose(1, 2).flatten(2)
        order = {"l1": 1, "l2": 2, "max": torch.inf}[norm]
        scores = torch.linalg.vector_norm(blocks, order, dim=2).flatten()
        scores[lines.taken[name]] = -1
        grown = set(lines.after[name].tolist()) - set(lines.taken[name].tolist())
        assert len(grown) == lines.update.moved[name] > 0
        assert grown == set(scores.topk(len(grown)).indices.tolist())


def test_candidates_are_random_and_the_best_of_them_grow():
    model, optimizer = make(blocksize=1)
    trainer = RigL(total_steps=20, every=2, candidates=0.5).attach(model, optimizer)
    run(model, optimizer, range(2))
    assert trainer.history[0].total > 0


@pytest.mark.parametrize("name", ["rigl", "snfs_apart", "srigl"])
def test_compiled_models_grow_by_gradient_as_plain_ones(name, untyped):
    torch._dynamo.reset()
    plain, plain_optimizer = make()
    METHODS[name]().attach(plain, plain_optimizer)
    run(plain, plain_optimizer, range(9))
    model, optimizer = make()
    METHODS[name]().attach(model, optimizer)
    run(torch.compile(model, fullgraph=True, backend="aot_eager"), optimizer, range(9))
    assert torch.equal(model[0].col_indices, plain[0].col_indices)
    torch.testing.assert_close(model[0].values, plain[0].values)


@pytest.fixture
def untyped():
    import jaxtyping

    # The type checkers of the tests are no part of the code that users compile.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_a_step_that_a_scaler_skips_leaves_no_trace():
    outcomes = []
    for overflow in (False, True):
        model, optimizer = make()
        RigL(total_steps=20, every=2).attach(model, optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1000)
        for step in (0, *([99] if overflow else []), 1, 2):
            optimizer.zero_grad()
            x = torch.randn(8, 36, generator=torch.Generator().manual_seed(step))
            loss = (model(x) - x[:, :18]).square().mean() * (torch.inf if step == 99 else 1)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update(2.0)
        outcomes.append(model.state_dict())
    assert all(torch.equal(outcomes[0][key], outcomes[1][key]) for key in outcomes[0])


def test_a_layer_without_a_gradient_grows_at_random():
    model, _ = make()
    both = torch.nn.ModuleList([model, copy.deepcopy(model)])
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    trainer = RigL(total_steps=STEPS, every=1).attach(both, optimizer)
    before = positions(both[1][0])
    run(model, optimizer, range(1))
    grown = set(positions(both[1][0]).tolist()) - set(before.tolist())
    assert len(grown) == trainer.history[0].moved["1.0"] > 5
    free = sorted(set(range(16 * 9)) - set(before.tolist()))
    assert grown != set(free[: len(grown)])


@pytest.mark.parametrize("blocksize", [1, 4])
def test_momentum_is_that_of_the_dense_gradient(blocksize):
    torch.manual_seed(0)
    layer = Linear(24, 16, blocksize=blocksize, density=0.25, dtype=torch.float64)
    dense = layer.to_linear()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0, momentum=0.9)
    method = SNFS(total_steps=20, every=4, smoothing=0.7, candidates=None)
    lines = method.attach(layer, optimizer).add_callback(Lines())
    momentum = torch.zeros_like(dense.weight)
    for _ in range(4):
        x = torch.randn(8, 24, dtype=torch.float64)
        for module in (layer, dense):
            module.zero_grad()
            module(x).square().mean().backward()
        momentum = torch.lerp(momentum, dense.weight.grad, 1 - 0.7)
        optimizer.step()
    blocks = momentum.view(*_split(layer)).transpose(1, 2).abs().sum((2, 3)).flatten()
    blocks[lines.taken[""]] = -1
    grown = set(lines.after[""].tolist()) - set(lines.taken[""].tolist())
    assert len(grown) == lines.update.moved[""] >= 3
    assert grown == set(blocks.topk(len(grown)).indices.tolist())


def _split(layer):
    (mb, kb), (r, c) = layer.pattern.grid, layer.blocksize
    return mb, r, kb, c
