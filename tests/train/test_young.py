"""The first steps of new blocks."""

import pytest
import torch

from sparsetile.nn import Linear
from sparsetile.train import AsPublished, DynSparse, OwnStepCount, Ramp
from sparsetile.train._positions import positions
from support import without_type_checks
from support_train import make, run


def trained(young, optimizer=torch.optim.Adam, steps=13, lr=1e-3):
    torch.manual_seed(0)
    layer = Linear(24, 16, blocksize=4, density=0.5, bias=False)
    adam = optimizer(layer.parameters(), lr=lr)
    trainer = DynSparse(total_steps=40, every=10, young=young).attach(layer, adam)
    values = []
    for _ in range(steps):
        layer.values.grad = torch.ones_like(layer.values)  # a steady gradient
        adam.step()
        values.append(
            dict(zip(positions(layer).tolist(), layer.values.detach().clone(), strict=True))
        )
    new = set(values[-1]) - set(values[0])
    assert new
    assert trainer.history[0].step == 10
    return values, new


def steps_of(values, position):
    return [
        (values[i - 1][position] - values[i][position]).mean().item()
        for i in range(10, len(values))
    ]


def test_as_published_new_blocks_step_three_times_too_far():
    values, new = trained(AsPublished())
    # Bias corrections after 11 steps of a block that has taken one: by the formulas of Adam.
    first = (0.1 / (1 - 0.9**11)) / (0.001 / (1 - 0.999**11)) ** 0.5
    for position in new:
        assert steps_of(values, position)[0] == pytest.approx(1e-3 * first, rel=1e-3)


def test_with_their_own_step_count_they_step_by_the_learning_rate():
    values, new = trained(OwnStepCount())
    for position in new:
        assert steps_of(values, position) == pytest.approx([1e-3] * 3, rel=1e-3)


def test_a_ramp_lengthens_their_steps():
    plain, new = trained(AsPublished(), torch.optim.SGD)
    ramped, same = trained(Ramp(2), torch.optim.SGD)
    assert new == same
    for position in new:
        full = steps_of(plain, position)
        assert steps_of(ramped, position) == pytest.approx(
            [full[0] / 3, full[1] * 2 / 3, full[2]], rel=1e-3
        )


def test_old_blocks_step_as_ever():
    plain, new = trained(AsPublished())
    for young in (Ramp(5), OwnStepCount()):
        values, _ = trained(young)
        old = set(values[-1]) - new
        assert all(torch.equal(values[-1][position], plain[-1][position]) for position in old)


def test_births_are_resumed():
    model, optimizer = make()
    method = DynSparse(total_steps=24, every=4, young=Ramp(6))
    method.attach(model, optimizer)
    run(model, optimizer, range(12))
    first, first_optimizer = make()
    trainer = method.attach(first, first_optimizer)
    run(first, first_optimizer, range(6))
    second, second_optimizer = make(seed=4)
    resumed = method.attach(second, second_optimizer)
    second.load_state_dict(first.state_dict())
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    resumed.load_state_dict(trainer.state_dict())
    run(second, second_optimizer, range(6, 12))
    assert torch.equal(second[0].values, model[0].values)


def test_wasted_growth_is_what_goes_at_the_next_update():
    model, optimizer = make()
    trainer = DynSparse(total_steps=40, every=4).attach(model, optimizer)
    grown = {}

    class Count:
        def on_update(self, trainer, update):
            at = {name: set(positions(layer).tolist()) for name, layer in trainer.layers.items()}
            for name in at:
                if name in grown:
                    lost = grown[name] - at[name]
                    assert update.wasted[name] == len(lost)
                else:
                    assert update.wasted[name] == 0
                before = last[name]
                grown[name] = at[name] - before
                last[name] = at[name]

    last = {name: set(positions(layer).tolist()) for name, layer in trainer.layers.items()}
    trainer.add_callback(Count())
    run(model, optimizer, range(20))
    assert sum(update.wasted_share for update in trainer.history) > 0


BAD = {
    "ramp": (lambda: Ramp(0), "steps must be 1 or more"),
    "own": (lambda: OwnStepCount(steps=-1), "steps must be 1 or more"),
    "no_adam": (lambda: trained(OwnStepCount(), torch.optim.SGD), "keeps no betas and step count"),
    "young_text": (lambda: DynSparse(total_steps=90, young="ramp"), "young must be an object with"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_call_is_refused(case):
    call, message = BAD[case]
    with without_type_checks(), pytest.raises((ValueError, TypeError), match=message):
        call()
