"""Buckets travel as often as their meta-information asks for, and programs know no pattern."""

import numpy as np
import pytest
import torch

from sparsetile import BSR
from sparsetile.machine import run
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._propagate import propagation_steps
from sparsetile.plan.dynamic._run import dynamic_program, run_dynamic
from sparsetile.plan.dynamic._scan import scan
from sparsetile.plan.dynamic._spread import Spread
from support_dynamic_run import check_passes, dense_operands, draw, hand_plan, moved, times


def counted(plan, encoded):
    """Steps and shifts by x, from where the subgroups are and where they belong."""
    found = scan(encoded.meta_buckets, plan)
    x = {int(d) for d in (found.ix - found.bucket % plan.x) % plan.x}
    y = {int(d) for d in (found.iy - found.bucket // (plan.x * plan.z)) % plan.y}
    if not x or x == {0}:
        return max(y, default=0) * plan.z, 0
    steps = (plan.y - 1) * plan.z if 0 in x else 0
    return steps + plan.y * plan.z * len(x - {0}), max(x)


@pytest.mark.parametrize("seed", range(0, 6, 2))
def test_steps_are_those_that_the_buckets_need(seed):
    A = draw(40, 40, (1, 1), 0.02 * (1 + seed), seed=seed)
    plan = hand_plan(A, 4, (5, 4, 2), slack=A.nnzb)
    encoded = moved(plan, A, seed)
    steps, shifts = counted(plan, encoded)
    profile = check_passes(plan, A, encoded, ("fwd", "grad_w"))["fwd"]
    assert times(profile, "Propagation compute") == propagation_steps(encoded) == steps > 0
    # Every step ends with a shift by z; every fourth of 2 begins with one by y.
    assert times(profile, "Propagation exchange", "exchange") == steps + steps // plan.z + shifts
    assert times(profile, "Propagation control") == 1 + shifts


def test_one_subgroup_a_row_partition_away():
    W = torch.zeros(8, 4)
    W[6, 1] = 2.0  # in part (3, 0) of 4 × 1, and of bucket 3
    A = BSR.from_dense(W, 1)
    plan = hand_plan(A, 2, (4, 1, 1), slack=1)
    for home, steps in ((3, 0), (2, 1), (1, 1), (0, 1)):
        encoded = next(
            e for e in (moved(plan, A, seed) for seed in range(99)) if e.value_buckets[home].any()
        )
        profile = check_passes(plan, A, encoded, ("fwd",))["fwd"]
        assert times(profile, "Propagation compute") == steps
        # Distances between are skipped, but shifted over.
        assert times(profile, "Propagation exchange", "exchange") == (3 - home if steps else 0)


def test_what_spills_within_a_part_needs_no_step():
    A = draw(30, 30, (1, 1), 0.3)
    plan = hand_plan(A, 6, (1, 1, 3), slack=A.nnzb)
    encoded = moved(plan, A, 1)
    assert propagation_steps(encoded) == 0
    check_passes(plan, A, encoded)


@pytest.mark.parametrize("pass_", ["fwd", "grad_a", "grad_w"])
@pytest.mark.parametrize("side", [1, 4])
def test_one_program_runs_every_pattern(pass_, side):
    shape, cut = (48, 64), (3, 2, 2)
    fullest = draw(*shape, (side, side), 0.4)
    plan = hand_plan(fullest, 8, cut, slack=fullest.nnzb)
    made = dynamic_program(plan, pass_)
    steps = set()
    for seed in range(1, 4):
        A = draw(*shape, (side, side), 0.1 * seed, seed=seed)
        encoded = encode(plan, A) if seed < 2 else moved(plan, A, seed)
        profile = check_passes(plan, A, encoded, (pass_,))[pass_]
        steps.add(times(profile, "Propagation compute"))
        assert dynamic_program(plan, pass_) is made
    assert len(steps) > 1


def test_a_program_is_given_nothing_but_what_lies_on_tiles():
    A = draw(20, 24, (1, 1), 0.3)
    plan = hand_plan(A, 4, (2, 2, 2), slack=A.nnzb)
    encoded = moved(plan, A, 3)
    x, _ = dense_operands(plan)
    made = dynamic_program(plan)
    assert set(made.inputs) == {"meta", "values", "overflow", "x"}
    data = {
        made.inputs["meta"]: encoded.meta_buckets.reshape(-1),
        made.inputs["values"]: encoded.values,
        made.inputs["overflow"]: encoded.meta[:4],
        made.inputs["x"]: Spread(plan, "y").arrange(x.numpy()),
    }
    flat = run(made.program, data).values[made.output]
    y = Spread(plan, "x").collect(flat, plan.m)
    assert np.array_equal(y, run_dynamic(plan, encoded, x)[0].numpy())
    # Values are changed where they lie, and so are words: what is not told does not travel.
    data[made.inputs["values"]] = 2 * encoded.values
    flat = run(made.program, data).values[made.output]
    assert np.array_equal(Spread(plan, "x").collect(flat, plan.m), 2 * y)
    still = encoded.meta[:4].copy()
    still[:] = (1, 1, 2, 1)
    data[made.inputs["overflow"]] = still
    result = run(made.program, data)
    assert times(result.profile, "Propagation compute") == 0
    assert not np.array_equal(Spread(plan, "x").collect(result.values[made.output], plan.m), 2 * y)


def test_the_control_tile_is_the_last():
    A = draw(20, 24, (1, 1), 0.3)
    plan = hand_plan(A, 4, (2, 2, 2), tiles=9)
    made = dynamic_program(plan)
    assert made.inputs["overflow"].counts.tolist() == [0] * 8 + [4]
    assert made.inputs["values"].counts[-1] == 0
