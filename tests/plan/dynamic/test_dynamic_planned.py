"""Plans that the planner makes run, and take about what it expects."""

import pytest
import torch

from sparsetile.plan.dynamic import DynamicOptions, encode, plan_dynamic, propagation_steps
from support_dynamic_run import check_passes, draw, tiles_machine, times


@pytest.mark.parametrize(
    ("side", "dtype", "n", "options"),
    [
        (1, "float32", 8, {}),
        (1, "float16", 12, {"shared_buckets": False}),
        (4, "float16", 16, {"partials": "float16", "exchange_buckets": False}),
        (8, "float32", 10, {"exchange_buckets": True}),
        (16, "float32", 16, {"oversize": 1.0}),
        (16, "float16", 32, {"x": 3, "y": 2, "z": 2}),
    ],
)
def test_planned(side, dtype, n, options):
    A = draw(192, 144, (side, side), 0.15, getattr(torch, dtype))
    chosen = DynamicOptions(grad_w=True, **options)
    plan = plan_dynamic(
        192,
        144,
        n,
        max_blocks=A.nnzb,
        blocksize=side,
        dtype=dtype,
        machine=tiles_machine(24),
        options=chosen,
    )
    encoded = encode(plan, A)
    profiles = check_passes(plan, A, encoded)
    for pass_, cost in plan.costs:
        profile = profiles[pass_]
        assert times(profile, "Propagation compute") == propagation_steps(encoded)
        # The planner knows neither where non-zeros are nor that any travel.
        travel = sum(p.cycles for p in profile.phases if p.name.startswith("Propagation"))
        assert 0.5 < (profile.cycles - travel) / cost.cycles < 2.5
