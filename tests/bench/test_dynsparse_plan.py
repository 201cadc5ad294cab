"""Which runs are wanted when, and what is kept of them."""

from dataclasses import replace
from functools import cache

import pytest

import support_dynsparse as support
from sparsetile.bench.dynsparse import TIERS
from sparsetile.bench.dynsparse._curve import cost_at, loss_at, within
from sparsetile.bench.dynsparse._plan import best_rate, jobs
from sparsetile.bench.dynsparse._setting import cells, setting_of
from sparsetile.bench.dynsparse._store import Store

NIGHTLY = TIERS["nightly"]


def wanted(losses, tier=NIGHTLY):
    return list(jobs(tier, "made up", losses))


@cache
def done(tier=NIGHTLY):
    """Losses of all runs, as soon as they are wanted."""
    losses = {}
    while left := [job.setting for job in wanted(losses, tier) if job.setting not in losses]:
        losses |= {setting: support.loss_of(setting) for setting in left}
    return losses


def test_at_first_only_learning_rates_are_looked_for():
    first = wanted({})
    assert {job.stage for job in first} == {"sweep"}
    lines = {(s.method, s.blocksize, s.width) for s in (job.setting for job in first)}
    assert len(lines) == 11
    assert len(first) == 11 * len(NIGHTLY.rates)
    assert {job.setting.steps for job in first} == {NIGHTLY.short_steps}
    assert {job.setting.every for job in first} == {0, NIGHTLY.short_every}


def test_every_line_has_its_own_sweep_and_is_compared_at_its_best_rate():
    losses = done()
    main = [job.setting for job in wanted(losses) if job.stage == "main"]
    assert {setting.lr for setting in main} == {0.0046}  # 0.008 for a third of the steps
    seeds = {}
    for setting in main:
        seeds.setdefault((setting.method, setting.blocksize, setting.width), []).append(setting)
    assert len(seeds) == 3 + 4 + 4 + 2
    assert all([s.seed for s in of] == [0, 1, 2] for of in seeds.values())
    assert {s.steps for s in main} == {NIGHTLY.steps}
    assert {s.every for s in main} == {0, NIGHTLY.every}


def test_seed_0_of_all_lines_comes_before_other_seeds():
    seeds = [job.setting.seed for job in wanted(done()) if job.stage == "main"]
    assert seeds[:13] == [0] * 13


def test_a_sweep_goes_on_where_its_best_is_at_an_end():
    (family, *_) = [job.setting for job in wanted({})]
    losses = {}
    for _ in range(9):
        mine = [j.setting for j in wanted(losses) if replace(j.setting, lr=family.lr) == family]
        left = [setting for setting in mine if setting not in losses]
        if not left:
            break
        losses[left[0]] = -left[0].lr  # more is better
    assert sorted(s.lr for s in losses) == [0.002, 0.004, 0.008, 0.016, 0.032]
    assert best_rate(NIGHTLY, family, losses) == 0.032
    assert best_rate(NIGHTLY, replace(family, steps=4 * family.steps), losses) == 0.016


def test_no_rate_is_best_before_the_sweep_is_done():
    family = wanted({})[0].setting
    assert best_rate(NIGHTLY, family, {family: 3.0}) is None


def test_rigl_differs_from_dynsparse_in_growth_alone():
    settings = [job.setting for job in wanted(done()) if job.stage == "main"]
    rigl = {s for s in settings if s.method == "rigl"}
    assert len(rigl) == 6
    assert {replace(s, method="dynsparse") for s in rigl} <= set(settings)


def test_ablations_change_one_choice_each():
    by_stage = {}
    for job in wanted(done()):
        by_stage.setdefault(job.stage, []).append(job.setting)
    for stage, column, values in (
        ("updates", "every", (0, *NIGHTLY.intervals)),
        ("ratio", "prune_ratio", NIGHTLY.prune_ratios),
        ("norm", "drop", NIGHTLY.drops),
    ):
        for b in (1, 16):
            runs = [s for s in by_stage[stage] if s.blocksize == b and s.method == "dynsparse"]
            static = [s for s in by_stage[stage] if s.blocksize == b and s.method == "static"]
            seen = [getattr(s, column) for s in static + runs]
            assert seen == list(values) or (stage, b, seen) == ("norm", 1, [])
            assert len({replace(s, **{column: getattr(runs[0], column)}) for s in runs}) < 2
    assert {s.seed for stage in ("updates", "ratio", "norm") for s in by_stage[stage]} == {0}


def test_without_a_sweep_the_middle_rate_is_taken():
    stages = {job.stage for job in wanted({}, support.SMALL)}
    assert stages == {"main"}
    assert {job.setting.lr for job in wanted({}, support.SMALL)} == {0.008}


@pytest.mark.parametrize("name", TIERS)
def test_all_tiers_can_be_planned_and_names_tell_runs_apart(name):
    runs = list(done(TIERS[name]))
    assert len({run.name for run in runs}) == len(runs)
    assert {run.objective for run in runs} == set(TIERS[name].objectives)
    dense = {run.width for run in runs if run.method == "dense"}
    assert dense == set(TIERS[name].dense_widths)


def test_a_setting_is_read_back_from_its_row():
    for run in (support.setting(), support.setting("dense", 0, prune_ratio=1.0, lr=1e-3)):
        text = {key: value if value != "" else None for key, value in cells(run).items()}
        assert setting_of(text) == run


def test_a_store_keeps_runs_and_their_curves(tmp_path):
    store = support.fill(tmp_path, support.SMALL)
    again = Store(tmp_path)
    assert again.losses.keys() == store.losses.keys()
    assert len(again.runs) == 4
    assert len(again.curves) == 16
    assert again.runs[0]["run"] == "dense-L1-H16-lr0.008-n12-s0"


def test_a_line_is_straight_in_log_log():
    points = [(2.617e9, 2.614), (10.07e9, 2.310)]  # Dietrich et al. (2021): Mini and Small
    assert loss_at(points, 8.33e9) == pytest.approx(2.350, abs=1e-3)
    assert 8.33e9 / cost_at(points, 2.311) == pytest.approx(0.83, abs=0.005)
    assert loss_at(points, 10.07e9) == pytest.approx(2.310)
    assert cost_at(points, loss_at(points, 40e9)) == pytest.approx(40e9)
    assert within(points, 2.311)
    assert not within(points, 2.160)


def test_a_line_that_rises_has_no_cost():
    assert cost_at([(1.0, 3.0), (2.0, 2.5), (3.0, 2.7)], 2.6) == float("inf")
