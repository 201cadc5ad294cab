import copy
import io

import jaxtyping
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

from sparsetile.matrix import random_pattern
from sparsetile.nn import Linear, sparsify_
from sparsetile.train import DynSparse, Static


def make(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 16))
    sparsify_(model, density=0.25, blocksize=4)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(32, 32, generator=generator)


def run(model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        x = batch(step)
        (model(x) - x[:, :16]).square().mean().backward()
        optimizer.step()


def roundtrip(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("stop", [1, 7, 12, 13, 29])
def test_a_resumed_run_is_bit_identical(stop):
    method = DynSparse(total_steps=30, every=6, seed=4)
    model, optimizer = make()
    method.attach(model, optimizer)
    run(model, optimizer, range(30))

    first, first_optimizer = make()
    trainer = method.attach(first, first_optimizer)
    run(first, first_optimizer, range(stop))
    saved = roundtrip(
        {"m": first.state_dict(), "o": first_optimizer.state_dict(), "t": trainer.state_dict()}
    )
    second, second_optimizer = make(seed=9)
    resumed = method.attach(second, second_optimizer)
    second.load_state_dict(saved["m"])
    second_optimizer.load_state_dict(saved["o"])
    resumed.load_state_dict(saved["t"])
    run(second, second_optimizer, range(stop, 30))

    ours, theirs = second.state_dict(), model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert resumed.step_count == 30
    assert len(resumed.history) == 4


def trained(seed):
    model, optimizer = make()
    DynSparse(total_steps=12, every=3, seed=seed).attach(model, optimizer)
    run(model, optimizer, range(12))
    return model


def test_equal_seeds_choose_alike_and_others_do_not():
    assert trained(1)[0].pattern == trained(1)[0].pattern
    assert trained(1)[0].pattern != trained(2)[0].pattern


def test_counts_stay_and_history_tells_the_moves():
    model, optimizer = make()
    counts = [model[0].nnzb, model[2].nnzb]
    trainer = DynSparse(total_steps=10, every=2).attach(model, optimizer)
    run(model, optimizer, range(10))
    assert [model[0].nnzb, model[2].nnzb] == counts
    assert [update.step for update in trainer.history] == [2, 4, 6, 8]
    assert trainer.history[0].moved == {"0": 15, "2": 8}
    assert trainer.history[0].total == 23


def test_coverage_starts_at_the_density_and_rises():
    model, optimizer = make()
    trainer = DynSparse(total_steps=10, every=2).attach(model, optimizer)
    start = trainer.coverage()
    assert start.layers == {"0": 0.25, "2": 0.25}
    run(model, optimizer, range(10))
    assert start.mean < trainer.coverage().mean <= 1


def test_static_changes_no_pattern():
    model, optimizer = make()
    pattern = model[0].pattern
    trainer = Static().attach(model, optimizer)
    run(model, optimizer, range(10))
    assert model[0].pattern == pattern
    assert trainer.history == []
    assert trainer.step_count == 10


def test_detached_it_stops():
    model, optimizer = make()
    trainer = DynSparse(total_steps=10, every=2).attach(model, optimizer)
    trainer.detach()
    run(model, optimizer, range(5))
    assert trainer.step_count == 0


def test_nothing_moves_after_the_last_step():
    model, optimizer = make()
    trainer = DynSparse(total_steps=4, every=2).attach(model, optimizer)
    run(model, optimizer, range(10))
    assert [update.step for update in trainer.history] == [2]


def test_frozen_layers_stay():
    model, _ = make()
    model[0].values.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    trainer = DynSparse(total_steps=4, every=2).attach(model, torch.optim.SGD(trained, lr=0.1))
    assert list(trainer.layers) == ["2"]


def test_gradients_move_with_their_blocks():
    model, optimizer = make()
    DynSparse(total_steps=10, every=1).attach(model, optimizer)
    run(model, optimizer, range(1))
    new = ~model[0].values.flatten(1).any(dim=1)
    assert new.any()
    assert not model[0].values.grad[new].any()
    assert model[0].values.grad[~new].any()


def test_wrapped_models_keep_their_names():
    model, optimizer = make()
    wrapped = torch.compile(model, backend="eager")
    assert list(Static().attach(wrapped, optimizer).layers) == ["0", "2"]


@pytest.fixture
def untyped():
    # The type checkers of the tests are no part of the code that users compile.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_a_compiled_model_is_compiled_once_and_trains_as_the_plain_one(untyped):
    torch._dynamo.reset()
    method, counter = DynSparse(total_steps=12, every=3), CompileCounter()
    plain, plain_optimizer = make()
    method.attach(plain, plain_optimizer)
    run(plain, plain_optimizer, range(12))
    model, optimizer = make()
    method.attach(model, optimizer)
    run(torch.compile(model, fullgraph=True, backend=counter), optimizer, range(12))
    assert counter.frame_count == 1
    assert torch.equal(model[0].values, plain[0].values)


def test_training_a_small_model_fits_its_data():
    torch.manual_seed(0)
    model = nn.Sequential(Linear(16, 128, blocksize=4, density=0.2), nn.ReLU(), nn.Linear(128, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    DynSparse(total_steps=200, updates=20).attach(model, optimizer)
    x = torch.randn(64, 16)
    y = x[:, :4] * x[:, 4:8]
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_a_copied_model_does_not_move_with_the_original():
    model, optimizer = make()
    DynSparse(total_steps=10, every=1).attach(model, optimizer)
    twin = copy.deepcopy(model)
    pattern = twin[0].pattern
    run(model, optimizer, range(3))
    assert twin[0].pattern == pattern
    assert model[0].pattern != pattern


def test_a_layer_frozen_after_attach_is_not_moved():
    model, optimizer = make()
    trainer = DynSparse(total_steps=10, every=2).attach(model, optimizer)
    model[0].values.requires_grad_(False)
    pattern = model[0].pattern
    run(model, optimizer, range(4))
    assert model[0].pattern == pattern
    assert trainer.history[0].moved.keys() == {"2"}


def test_another_number_of_blocks_is_refused_before_the_next_step():
    model, optimizer = make()
    DynSparse(total_steps=10, every=2).attach(model, optimizer)
    run(model, optimizer, range(3))
    model[0].set_pattern_(random_pattern(64, 32, blocksize=4, density=0.5, seed=0))
    with pytest.raises(ValueError, match=r"layer '0' has 64 blocks.*detach\(\).*attach again"):
        run(model, optimizer, range(1))


def test_a_detached_layer_can_be_attached_to_another_optimizer():
    model, optimizer = make()
    DynSparse(total_steps=10, every=2).attach(model, optimizer).detach()
    model[0].set_pattern_(random_pattern(64, 32, blocksize=4, density=0.5, seed=0))
    rebuilt = torch.optim.AdamW(model.parameters())
    trainer = DynSparse(total_steps=10, every=2).attach(model, rebuilt)
    run(model, rebuilt, range(3))
    assert len(trainer.history) == 1


def test_an_optimizer_that_is_gone_holds_no_layer():
    model, optimizer = make()
    old = DynSparse(total_steps=10, every=2).attach(model, optimizer)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    del optimizer, schedule
    DynSparse(total_steps=10, every=2).attach(model, torch.optim.AdamW(model.parameters()))
    assert old.step_count == 0


def test_coverage_counts_a_pattern_that_was_loaded():
    model, optimizer = make()
    trainer = DynSparse(total_steps=10, every=2).attach(model, optimizer)
    model[0].set_pattern_(random_pattern(64, 32, blocksize=4, density=0.75, seed=0))
    assert trainer.coverage().layers["0"] >= 0.75


class Sizes(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.nbytes)
        return out


def test_an_update_makes_no_tensor_of_the_dense_size():
    layer = Linear(2048, 1024, blocksize=1, density=0.001)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    trainer = DynSparse(total_steps=10, every=1).attach(layer, optimizer)
    layer.values.grad = torch.ones_like(layer.values)
    with Sizes() as sizes:
        optimizer.step()
        trainer.coverage()
    assert trainer.history[0].total > 0
    assert sizes.largest == 1024 * 2048 // 8  # the bits
