"""Mistakes in resuming a run, and in averaging one, are told when they are made."""

import warnings

import pytest
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from sparsetile.train import SET, DynSparse, Every, Method, RigL, Static, block_l1, uniform
from support_train import STEPS, make, roundtrip, run


def moving(**more):
    return DynSparse(**{"total_steps": STEPS, "every": 4, **more})


def checkpoint(method=None):
    model, optimizer = make()
    (method or moving()).attach(model, optimizer)
    run(model, optimizer, range(6))
    return roundtrip([model.state_dict(), optimizer.state_dict()])


def test_loading_before_attaching_warns_and_can_be_mended():
    saved = checkpoint()
    model, optimizer = make()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    with pytest.warns(UserWarning, match="a run of 6 steps before its trainer was attached"):
        trainer = moving().attach(model, optimizer)
    assert trainer.step_count == 0
    trainer.load_state_dict(saved[1]["sparsetile"][0])
    assert trainer.step_count == 6 and trainer.history


def test_attaching_before_loading_leaves_no_note_in_the_groups():
    saved = checkpoint()
    model, optimizer = make()
    trainer = moving().attach(model, optimizer)
    names = optimizer.param_groups[0].keys()
    optimizer.load_state_dict(saved[1])
    assert trainer.step_count == 6
    assert optimizer.param_groups[0].keys() == names
    trainer.detach()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moving().attach(model, optimizer)


OTHERS = {
    "method": (
        lambda: RigL(total_steps=STEPS, every=4),
        r"from DynSparse\(clock=Every\(steps=4, total_steps=20\).*this trainer is RigL\(clock=",
    ),
    "length": (lambda: moving(total_steps=50), r"total_steps=20\).*total_steps=50\)"),
    "interval": (lambda: moving(every=5), r"steps=4,.*steps=5,"),
    "share": (lambda: moving(prune_ratio=0.2), r"ratio=0.5,.*ratio=0.2,"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_state_of_another_method_or_schedule_is_refused_by_both_names(case):
    method, message = OTHERS[case]
    saved = checkpoint()
    model, optimizer = make()
    trainer = method().attach(model, optimizer)
    with pytest.raises(ValueError, match=message + r".*del optimizer_state\['sparsetile'\]"):
        optimizer.load_state_dict(saved[1])
    assert trainer.step_count == 0
    del saved[1]["sparsetile"]
    optimizer.load_state_dict(saved[1])
    assert trainer.step_count == 0


class Halved:
    """A share of the user's own, whose words say nothing."""

    def count(self, step, nnzb):
        return nnzb // 2


def test_parts_of_the_users_own_are_not_compared():
    def method():
        return Method(
            drop=block_l1, grow=uniform, clock=Every(4, total_steps=STEPS), amount=Halved()
        )

    saved = checkpoint(method())
    model, optimizer = make()
    trainer = method().attach(model, optimizer)
    optimizer.load_state_dict(saved[1])
    assert trainer.step_count == 6


def averaged(follow, first):
    """A run whose weights are averaged from a step on."""
    model, optimizer = make()
    trainer = SET(total_steps=STEPS, every=4).attach(model, optimizer)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    if follow:
        trainer.follow(average)
    for step in range(STEPS):
        run(model, optimizer, [step])
        if step >= first:
            average.update_parameters(model)
    return trainer


def test_an_average_that_does_not_follow_warns_at_the_next_update():
    with pytest.warns(
        UserWarning, match=r"a copy of layer '0' is averaged.*trainer\.follow\(copy\)"
    ):
        trainer = averaged(follow=False, first=0)
    assert len(trainer.history) == 4


@pytest.mark.parametrize(
    ("follow", "first"), [(True, 0), (False, 16)], ids=["follows", "begins after the last update"]
)
def test_averages_that_are_right_do_not_warn(follow, first):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        averaged(follow, first)


def test_an_average_of_a_model_that_stays_needs_nothing():
    model, optimizer = make()
    Static().attach(model, optimizer)
    average = AveragedModel(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(4):
            run(model, optimizer, [step])
            average.update_parameters(model)
