"""Top-KAST: which blocks the product uses, what is exchanged, the penalty, resuming, compiling."""

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from sparsetile.matrix import Pattern
from sparsetile.nn import Embedding, Linear, sparsify_
from sparsetile.train import TopKAST, block_l1
from sparsetile.train._positions import positions
from support import without_type_checks
from support_ops import most_bytes

STEPS, EVERY = 12, 4


def make(seed=0, blocksize=4, density=0.5, dtype=torch.float32):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(36, 64), nn.Tanh(), nn.Linear(64, 18)).to(dtype)
    sparsify_(model, density=density, blocksize=blocksize)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def method(**changed):
    return TopKAST(**({"total_steps": STEPS, "every": EVERY, "exchange": 0.2, "seed": 3} | changed))


def batch(step):
    return torch.randn(32, 36, generator=torch.Generator().manual_seed(step))


def run(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        x = batch(step).to(model[0].values.dtype)
        (model(x) - x[:, :18]).square().mean().backward()
        optimizer.step()


def sparse_layers(model):
    return {"0": model[0], "2": model[2]}


class Around:
    """Holds what every update must do against what was there before it."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.updates = 0

    def parts(self, layer):
        moments = self.optimizer.state[layer.values]
        kept = (
            layer.values.detach().clone(),
            *(moments[k].clone() for k in ("exp_avg", "exp_avg_sq")),
        )
        return dict(zip(positions(layer).tolist(), zip(*kept, strict=True), strict=True))

    def on_step(self, trainer):
        self.before = {name: self.parts(layer) for name, layer in trainer.layers.items()}
        self.scores = {
            name: dict(zip(self.before[name], block_l1(layer).tolist(), strict=True))
            for name, layer in trainer.layers.items()
        }

    def on_update(self, trainer, update):
        self.updates += 1
        for name, layer in trainer.layers.items():
            old, new, scores = self.before[name], self.parts(layer), self.scores[name]
            grown, dropped = new.keys() - old.keys(), old.keys() - new.keys()
            assert len(grown) == len(dropped) == update.moved[name]
            assert not grown & old.keys()
            used = set(positions(layer)[layer.used].tolist())
            assert len(new) == len(old) and len(used) == trainer.method.amount.used(len(old))
            # The weakest left, none of them used, and the strongest survivors are used now.
            kept = sorted(old.keys() - dropped, key=scores.get)
            assert not dropped or max(scores[p] for p in dropped) <= scores[kept[0]]
            assert used == set(kept[len(kept) - len(used) :])
            for position in grown:
                values, *moments = new[position]
                assert values.any() and not any(moment.any() for moment in moments)
            for position in kept:
                assert all(map(torch.equal, new[position], old[position]))


@pytest.mark.parametrize("blocksize", [1, 4, (2, 3), 5], ids=str)
@pytest.mark.parametrize("forward", [0.2, 0.5, 1.0])
def test_updates_keep_what_they_must(forward, blocksize):
    model, optimizer = make(blocksize=blocksize)
    trainer = method(forward=forward).attach(model, optimizer)
    around = trainer.add_callback(Around(optimizer))
    stored = [layer.nnzb for layer in trainer.layers.values()]
    run(model, optimizer, range(STEPS))
    assert around.updates == len(trainer.history) == 2
    assert [layer.nnzb for layer in trainer.layers.values()] == stored
    assert (sum(update.total for update in trainer.history) > 0) == (forward < 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.floats(0.01, 1), st.floats(0, 1))
def test_exchange_never_reaches_what_is_used(nnzb, forward, exchange):
    amount = method(forward=forward, exchange=exchange).amount
    assert (amount.used(nnzb) > 0) == (nnzb > 0)
    assert 0 <= amount.count(1, nnzb) <= nnzb - amount.used(nnzb)


def test_first_set_is_the_strongest_part():
    model, optimizer = make()
    method(forward=0.25).attach(model, optimizer)
    for layer in sparse_layers(model).values():
        scores = block_l1(layer)
        assert scores[layer.used].min() >= scores[~layer.used].max()


def test_blocks_outside_are_trained_but_not_used():
    model, optimizer = make()
    method().attach(model, optimizer)
    x, outside = batch(0), ~model[2].used
    y = model(x)
    with torch.no_grad():
        model[2].values[outside] *= 100
    assert torch.equal(model(x), y)
    y.square().sum().backward()
    assert (model[2].values.grad[outside] != 0).flatten(1).any(1).all()


def two_blocks():
    """One input block row of two 1×1 blocks, 2 and -1; the first is used. D is 1/2."""
    layer = Linear(2, 1, bias=False, pattern=Pattern((1, 2), 1, [0, 2], [0, 1]))
    with torch.no_grad():
        layer.values.copy_(torch.tensor([2.0, -1.0]).view(2, 1, 1))
    return layer


# Strength, gradient of the loss for x = (3, 5), and gradient that the optimizer sees.
PENALTIES = {
    "none": (0.0, [3.0, 5.0]),
    "weak": (0.01, [3.0 + 0.01 * 2, 5.0 - 0.01 / 0.5]),
    "strong": (1.0, [3.0 + 2.0, 5.0 - 2.0]),
}


@pytest.mark.parametrize("penalty, want", PENALTIES.values(), ids=PENALTIES.keys())
def test_penalty_is_stronger_outside_by_the_density_of_what_is_used(penalty, want):
    layer = two_blocks()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    method(penalty=penalty).attach(layer, optimizer)
    assert layer.used.tolist() == [True, False]
    y = layer(torch.tensor([3.0, 5.0]))
    assert y.item() == 6.0
    y.backward()
    optimizer.step()
    torch.testing.assert_close(
        layer.values.flatten(), torch.tensor([2.0, -1.0]) - torch.tensor(want)
    )


def test_penalty_leaves_layers_without_gradient_alone():
    model, optimizer = make()
    method(penalty=1.0).attach(model, optimizer)
    before = model[0].values.detach().clone()
    model[2](torch.randn(3, 64)).sum().backward()
    optimizer.step()
    assert torch.equal(model[0].values, before)


def test_penalty_is_of_one_strength_under_a_scaler():
    steps = []
    for scale in (1.0, 1024.0):
        layer = two_blocks()
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0, fused=True)
        method(penalty=1.0).attach(layer, optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaler.scale(layer(torch.tensor([3.0, 5.0])).sum()).backward()
        scaler.step(optimizer)
        steps.append(layer.values.detach().flatten().tolist())
    assert steps[0] == steps[1] == [-3.0, -4.0]


def test_a_block_that_is_needed_comes_in():
    # Only input 1 matters; at first the product uses input 0.
    layer = two_blocks()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    method(total_steps=100, every=5).attach(layer, optimizer)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        x = torch.randn(16, 2, generator=generator)
        optimizer.zero_grad()
        (layer(x) - 3 * x[:, 1:]).square().mean().backward()
        optimizer.step()
    assert layer.used.tolist() == [False, True]
    torch.testing.assert_close(layer.values[1].item(), 3.0, rtol=1e-2, atol=0)


def saved(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("attach_first", [True, False])
@pytest.mark.parametrize("stop", [3, 4, 5, 7, 8, 9])
def test_a_resumed_run_is_bit_identical(stop, attach_first):
    model, optimizer = make()
    whole = method().attach(model, optimizer)
    run(model, optimizer, range(STEPS))

    first, first_optimizer = make()
    trainer = method().attach(first, first_optimizer)
    run(first, first_optimizer, range(stop))
    state = saved(
        {"m": first.state_dict(), "o": first_optimizer.state_dict(), "t": trainer.state_dict()}
    )
    second, second_optimizer = make(seed=9)
    if attach_first:
        resumed = method().attach(second, second_optimizer)
        second.load_state_dict(state["m"])
    else:
        second.load_state_dict(state["m"])
        resumed = method().attach(second, second_optimizer)
    second_optimizer.load_state_dict(state["o"])
    resumed.load_state_dict(state["t"])
    run(second, second_optimizer, range(stop, STEPS))

    theirs, ours = model.state_dict(), second.state_dict()
    assert theirs.keys() == ours.keys() and "0.forward_blocks" in ours
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert resumed.history == whole.history


def test_equal_seeds_agree_and_others_do_not():
    ends = []
    for seed in (3, 3, 4):
        model, optimizer = make()
        method(seed=seed).attach(model, optimizer)
        torch.manual_seed(len(ends))  # the global generator does not matter
        run(model, optimizer, range(STEPS))
        ends.append(model[0].values.detach())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


def test_compiled_model_follows_without_compiling_again():
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    model, optimizer = make(density=0.25)
    trainer = method().attach(model, optimizer)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with without_type_checks():
        for step in range(STEPS):
            optimizer.zero_grad()
            y, x = compiled(batch(step)), batch(step)
            torch.testing.assert_close(y, model(x))
            (y - x[:, :18]).square().mean().backward()
            optimizer.step()
    assert sum(update.total for update in trainer.history) > 0
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_nothing_dense_is_made_in_any_step():
    torch.manual_seed(0)
    layer = Linear(512, 512, density=1 / 32, blocksize=8, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    trainer = method(total_steps=10, every=2).attach(layer, optimizer)
    x = torch.randn(4, 512)

    def steps():
        for _ in range(4):
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()

    assert most_bytes(steps) < 512 * 512 * 4 / 8
    assert len(trainer.history) == 2


def test_sets_stay_after_the_stop_and_the_used_part_can_be_kept_alone():
    model, optimizer = make()
    trainer = method(total_steps=24, stop=0.4).attach(model, optimizer)
    run(model, optimizer, range(10))
    used = model[0].used
    run(model, optimizer, range(10, 20))
    assert [update.step for update in trainer.history] == [4, 8]
    assert torch.equal(model[0].used, used)
    trainer.detach()
    x = batch(0)
    want = model(x)
    for layer in sparse_layers(model).values():
        layer.set_pattern_(layer.weight.pattern)
    torch.testing.assert_close(model(x), want)
    assert model[0].nnzb == int(used.sum())


def test_frozen_layers_stay():
    model, optimizer = make()
    model[2].requires_grad_(False)
    before = {name: value.clone() for name, value in model[2].state_dict().items()}
    method().attach(model, optimizer)
    run(model, optimizer, range(6))
    after = model[2].state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], before[name]) for name in after)


def test_methods_are_compared_by_all_they_hold():
    assert method() == method() and method() != method(penalty=0.5) != method(forward=0.25)


BAD = {
    "forward zero": ({"forward": 0}, ValueError, "forward must be more than 0"),
    "forward above one": ({"forward": 1.5}, ValueError, "forward must be between 0 and 1"),
    "forward text": ({"forward": "half"}, TypeError, "forward must be a number"),
    "exchange": ({"exchange": -0.1}, ValueError, "exchange must be between 0 and 1"),
    "every": ({"every": 0}, ValueError, "every must be 1 or more"),
    "stop": ({"stop": 2}, ValueError, "stop must be between 0 and 1"),
    "steps": ({"total_steps": 0}, ValueError, "total_steps must be 1 or more"),
    "penalty negative": ({"penalty": -1.0}, ValueError, "penalty must be 0 or more"),
    "penalty nan": ({"penalty": float("nan")}, ValueError, "penalty must be 0 or more"),
    "penalty infinite": ({"penalty": float("inf")}, ValueError, "penalty must be 0 or more"),
    "penalty text": ({"penalty": "weak"}, TypeError, "penalty must be a number, got str"),
    "penalty bool": ({"penalty": True}, TypeError, "penalty must be a number, got bool"),
    "seed": ({"seed": -1}, ValueError, "seed must be 0"),
}


@pytest.mark.parametrize("changed, error, words", BAD.values(), ids=BAD.keys())
def test_bad_arguments_are_refused_by_name(changed, error, words):
    with without_type_checks(), pytest.raises(error, match=words):
        method(**changed)


def test_layers_that_cannot_use_a_part_are_refused_and_nothing_is_changed():
    model = nn.Sequential(Embedding(32, 16, density=0.5, blocksize=4), Linear(16, 8, density=0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"'0' is a sparse Embedding.*leave this one dense"):
        method().attach(model, optimizer)
    assert model[1].forward_blocks is None
    model[0].requires_grad_(False)
    method().attach(model, optimizer)
    assert model[1].forward_blocks is not None
