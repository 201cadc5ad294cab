import math

import pytest
import torch
from torch import nn

from sparsetile.bench import _race
from sparsetile.bench._progress import _Lines
from sparsetile.bench._race import FLOOR, Run, race, rate_at
from sparsetile.bench._tokens import Batches


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Embedding(16, 16)

    def forward(self, input_ids):
        return type("Output", (), {"logits": self.layer(input_ids)})()


def run_of(name):
    model = Words()
    batches = Batches(
        torch.arange(400) % 16, "clm", sequence=8, batch=4, mask_token=0, vocabulary=16, seed=0
    )
    return Run(name, model, torch.optim.SGD(model.parameters(), lr=0.5), batches)


def compete(runs, *, seconds=0.3, turns=3, stop=lambda: False, **more):
    held_out = [runs[0].batches[0]]
    return race(
        runs,
        seconds=seconds,
        turns=turns,
        held_out=held_out,
        progress=_Lines(),
        stop=stop,
        **more,
    )


def test_runs_get_the_same_seconds():
    runs = [run_of("a"), run_of("b")]
    assert compete(runs)
    for run in runs:
        assert run.seconds == pytest.approx(0.3, abs=0.1)
        assert [j.turn for j in run.judged] == [1, 2, 3]


def test_training_lowers_the_loss():
    run = run_of("a")
    compete([run])
    assert run.judged[-1].loss < run.judged[0].loss


def test_judging_is_not_training_time(monkeypatch):
    run = run_of("a")
    run.step(0.0)
    before = run.seconds
    run.judge(1, [run.batches[0]])
    assert run.seconds == before


def test_stop_ends_the_race_and_judges_what_is_there():
    runs = [run_of("a"), run_of("b")]
    went_on = compete(runs, seconds=60.0, stop=lambda: len(runs[0].trained) >= 5)
    assert not went_on
    assert len(runs[0].trained) == 5
    assert runs[0].judged[-1].step == 5
    assert not runs[1].trained


def test_prepare_learns_the_speed_of_the_run_before():
    runs = [run_of("a"), run_of("b")]
    told = []
    runs[1].prepare = told.append
    compete(runs)
    assert len(told) == 3
    first_turn = runs[0].judged[0].step
    assert first_turn < told[0] < 20 * first_turn


def test_prepare_learns_the_steps_of_the_whole_run_before_each_turn():
    run = run_of("a")
    told = []
    run.prepare = told.append
    compete([run], turns=4)
    done = [j.step for j in run.judged]
    assert all(steps > before for steps, before in zip(told[1:], done, strict=False))
    assert told[-1] == pytest.approx(done[-1], rel=0.5)


def test_after_turn_is_called_for_each_turn():
    seen = []
    compete([run_of("a"), run_of("b")], after_turn=lambda run: seen.append(run.name))
    assert seen == ["a", "b"] * 3


def test_warm_up_changes_no_weight():
    run = run_of("a")
    before = run.model.layer.weight.clone()
    run.warm_up()
    assert torch.equal(run.model.layer.weight, before)
    assert run.model.layer.weight.grad is None


def test_learning_rate_rises_then_falls_to_the_floor():
    rates = [rate_at(f / 100) for f in range(101)]
    peak = rates.index(max(rates))
    assert peak == round(_race.WARMUP * 100)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert math.isclose(rates[-1], FLOOR)
    assert rate_at(1.5) == FLOOR


def test_step_uses_the_rate_of_the_moment():
    run = run_of("a")
    run.step(1.0)
    assert run.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * FLOOR)
