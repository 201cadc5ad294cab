"""What every published method must do, whatever it drops and wherever it grows."""

import pathlib
import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sparsetile.nn import Linear
from sparsetile.train import DynSparse, RigL, TopKAST
from sparsetile.train._moments import per_block_state
from sparsetile.train._positions import positions
from support_train import CONSERVING, KEEPING, METHODS, STEPS, make, roundtrip, run

MOVING = [name for name in METHODS if name != "static"]


def snapshot(model, optimizer):
    """By layer and position: values and optimizer state of every block."""
    return {
        name: dict(
            zip(
                positions(layer).tolist(),
                zip(
                    layer.values.detach().clone(),
                    *(t.clone() for _, t in per_block_state(optimizer, layer.values, name)),
                    strict=True,
                ),
                strict=True,
            )
        )
        for name, layer in (("0", model[0]), ("2", model[2]))
    }


class Around:
    """Takes a snapshot before each update and compares after it."""

    def __init__(self):
        self.updates = 0

    def on_step(self, trainer):
        self.before = snapshot(trainer.model, trainer.optimizer)

    def on_update(self, trainer, update):
        self.updates += 1
        after = snapshot(trainer.model, trainer.optimizer)
        for name, blocks in after.items():
            old = self.before[name]
            grown = blocks.keys() - old.keys()
            dropped = old.keys() - blocks.keys()
            assert len(grown) == update.moved[name]
            assert len(dropped) == update.dropped[name]
            assert len(blocks) == update.blocks[name]
            for position, parts in blocks.items():
                if position in old:
                    assert all(map(torch.equal, parts, old[position]))
                else:
                    assert not any(part.any() for part in parts)


@pytest.mark.parametrize("blocksize", [1, (2, 3)], ids=str)
@pytest.mark.parametrize("name", MOVING)
def test_updates_move_blocks_and_nothing_else(name, blocksize):
    model, optimizer = make(blocksize=blocksize)
    trainer = METHODS[name]().attach(model, optimizer)
    trainer.model = model
    around = trainer.add_callback(Around())
    start = model[0].nnzb, model[2].nnzb
    run(model, optimizer, range(STEPS))
    assert around.updates == len(trainer.history) >= 3
    assert sum(update.total + sum(update.dropped.values()) for update in trainer.history) > 0
    if name in KEEPING:
        assert all(tuple(u.blocks.values()) == start for u in trainer.history)
    if name in CONSERVING:
        assert all(sum(u.blocks.values()) == sum(start) for u in trainer.history)
    for layer in (model[0], model[2]):
        torch.testing.assert_close(
            layer(torch.ones(layer.shape[1])),
            layer.to_linear()(torch.ones(layer.shape[1])),
            rtol=1e-5,
            atol=1e-6,
        )


@pytest.mark.parametrize(
    ("stop", "order"), [(7, "model_first"), (7, "trainer_first"), (8, "trainer_first")]
)
@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_is_bit_identical(name, stop, order):  # right before and after an update
    model, optimizer = make()
    whole = METHODS[name]().attach(model, optimizer)
    run(model, optimizer, range(STEPS))

    first, first_optimizer = make()
    trainer = METHODS[name]().attach(first, first_optimizer)
    run(first, first_optimizer, range(stop))
    saved = roundtrip(
        {"m": first.state_dict(), "o": first_optimizer.state_dict(), "t": trainer.state_dict()}
    )
    second, second_optimizer = make(seed=9)
    resumed = METHODS[name]().attach(second, second_optimizer)
    loads = [
        lambda: second.load_state_dict(saved["m"]),
        lambda: second_optimizer.load_state_dict(saved["o"]),
        lambda: resumed.load_state_dict(saved["t"]),
    ]
    for load in loads if order == "model_first" else reversed(loads):
        load()
    run(second, second_optimizer, range(stop, STEPS))

    theirs, ours = model.state_dict(), second.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert resumed.history == whole.history


class Sizes(TorchDispatchMode):
    """Notes the bytes of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return out


@pytest.mark.parametrize("name", [n for n in METHODS if not n.startswith("gmp")])
def test_no_step_makes_a_tensor_of_the_dense_size(name, untyped):
    torch.manual_seed(0)
    layer = Linear(4096, 2048, blocksize=1, density=0.002)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    trainer = METHODS[name]().attach(layer, optimizer)
    with Sizes() as sizes:
        for _ in range(9):
            optimizer.zero_grad()
            layer(torch.randn(4, 4096)).square().mean().backward()
            optimizer.step()
    assert name == "static" or trainer.history[-1].total > 0
    assert 0 < sizes.largest <= 4096 * 2048 * 4 // 4


def test_gradual_pruning_ends_at_its_density():
    for name in ("gmp", "gmp_global"):
        model, optimizer = make(density=1.0, blocksize=2)
        trainer = METHODS[name]().attach(model, optimizer)
        run(model, optimizer, range(STEPS))
        sizes = [layer.pattern.grid[0] * layer.pattern.grid[1] for layer in (model[0], model[2])]
        counts = [model[0].nnzb, model[2].nnzb]
        if name == "gmp":
            assert counts == [-(-size // 10) for size in sizes]
        else:
            assert sum(counts) == -(-sum(sizes) // 10)
        falling = [sum(update.blocks.values()) for update in trainer.history]
        assert falling == sorted(falling, reverse=True)
        assert optimizer.state[model[0].values]["exp_avg"].shape == model[0].values.shape


def test_a_soft_bound_is_kept_in_the_end():
    model, optimizer = make()
    start = model[0].nnzb
    trainer = METHODS["mest_soft"]().attach(model, optimizer)
    run(model, optimizer, range(STEPS))
    counts = [update.blocks["0"] for update in trainer.history]
    assert counts[0] > start
    assert counts[-1] == start == model[0].nnzb


def test_equal_rows_hold_after_every_update():
    model, optimizer = make()
    METHODS["srigl"]().attach(model, optimizer)
    run(model, optimizer, range(5))
    for layer in (model[0], model[2]):
        counts = torch.bincount(layer.pattern.row_indices, minlength=layer.pattern.grid[0])
        alive = counts[counts > 0]
        assert alive.max() - alive.min() <= 1


@pytest.fixture
def untyped():
    import jaxtyping

    # The type checkers of the tests are no part of the code that users compile.
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_averaged_copies_move_along():
    model, optimizer = make()
    trainer = DynSparse(total_steps=STEPS, every=4).attach(model, optimizer)
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5)
    )
    trainer.follow(average)
    # The same average of dense weights, in which a dropped block is forgotten and a new one is 0.
    dense = model[0].to_linear().weight.detach().clone()
    for step in range(12):
        run(model, optimizer, [step])
        mask = model[0].pattern.to_mask()
        dense = dense * mask
        average.update_parameters(model)
        now = model[0].to_linear().weight.detach()
        dense = now if step == 0 else torch.lerp(dense, now, 0.5)
    assert len(trainer.history) == 3
    torch.testing.assert_close(average.module[0].to_linear().weight, dense)


def test_averaged_copies_compute_with_the_same_part_of_their_blocks():
    model, optimizer = make(density=0.5)
    average = torch.optim.swa_utils.AveragedModel(model)
    trainer = TopKAST(total_steps=STEPS, every=4).attach(model, optimizer)
    trainer.follow(average)
    for steps in ([0, 1], range(2, 6)):
        run(model, optimizer, steps)
        for name in ("0", "2"):
            ours, theirs = trainer.layers[name], average.module.get_submodule(name)
            assert torch.equal(theirs.used, ours.used)
            x = torch.ones(theirs.shape[1])
            torch.testing.assert_close(theirs(x), theirs.to_linear()(x))
    assert len(trainer.history) == 1


def test_a_method_that_would_leave_a_forward_set_stale_is_refused():
    model, optimizer = make()
    model[0].set_forward_(torch.arange(model[0].nnzb) < 5)
    with pytest.raises(ValueError, match=r"layer '0' computes with a part.*DynSparse moves them"):
        DynSparse(total_steps=STEPS, every=4).attach(model, optimizer)
    trainer = METHODS["static"]().attach(model, optimizer)
    run(model, optimizer, range(2))
    assert trainer.step_count == 2


def test_a_copy_with_other_blocks_is_refused():
    model, optimizer = make()
    trainer = DynSparse(total_steps=STEPS, every=4).attach(model, optimizer)
    with pytest.raises(ValueError, match="layer '0' of the copy has other blocks"):
        trainer.follow(make(seed=5)[0])
    with pytest.raises(ValueError, match="copy has no sparse layer '0'"):
        trainer.follow(torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="is the model's own"):
        trainer.follow(model)


PROCESS = """
import sys, torch
sys.path.insert(0, {tests!r})
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from support_train import METHODS, make, batch
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
for name in ("dynsparse", "rigl", "snfs_apart", "srigl"):
    model, optimizer = make()
    METHODS[name]().attach(model, optimizer)
    wrapped = DistributedDataParallel(model)
    for step in range(5):
        optimizer.zero_grad()
        x = batch(2 * step + rank)
        (wrapped(x) - x[:, :18]).square().mean().backward()
        optimizer.step()
    for tensor in model.state_dict().values():
        other = [torch.empty_like(tensor) for _ in range(2)]
        dist.all_gather(other, tensor)
        assert torch.equal(*other), name
print("agree")
"""


def test_processes_that_share_gradients_choose_alike(tmp_path):
    code = PROCESS.format(tests=str(pathlib.Path(__file__).parent.parent))
    command = [sys.executable, "-c", code]
    running = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meet")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in running:
        out, err = process.communicate(timeout=120)
        assert out.strip() == "agree", err


def test_copies_of_a_method_share_nothing():
    method = RigL(total_steps=STEPS, every=4)
    one, two = make(), make()
    method.attach(*one)
    method.attach(*two)
    run(*one, range(8))
    run(*two, range(8))
    assert torch.equal(one[0][0].values, two[0][0].values)
