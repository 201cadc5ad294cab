from dataclasses import replace

import pytest
import torch

from sparsetile.machine import preset
from sparsetile.matrix import BSR, Pattern
from sparsetile.plan.static._planner import plan_static
from sparsetile.plan.static._run import run_static, run_static_dense_sparse
from support_static import assert_product

MACHINES = [replace(preset("bow-ipu"), name="16 tiles", tiles=16), preset("bow-ipu")]
CASES = [
    (16, 16, 1, 1.0, 0.6),
    (64, 64, 32, 1.0, 0.6),
    (512, 64, 8, 0.01, 0.6),
    (512, 64, 13, 0.1, 0.6),
    (512, 8, 7, 0.1, 0.45),
    (129, 52, 3, 0.3, 0.6),
]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("b", [1, 4, 8, 16])
def test_planned_products_are_right(b, dtype, machine):
    for m, k, n, density, memory in CASES:
        A = BSR.random(m, k, blocksize=b, density=density, seed=0).to(getattr(torch, dtype))
        x = torch.randn(k, n).to(A.dtype)
        plan = plan_static(A.pattern, n, dtype=dtype, machine=machine, memory=memory)
        y, _ = run_static(plan, A, x)
        assert_product(y, A, x)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_planned_products_of_nothing_are_zero(dtype):
    pattern = Pattern((512, 64), 4, [0] * 129, [])
    x = torch.randn(64, 8).to(getattr(torch, dtype))
    plan = plan_static(pattern, 8, dtype=dtype)
    y, _ = run_static(plan, torch.zeros(0, 4, 4, dtype=x.dtype), x)
    assert torch.equal(y, torch.zeros(512, 8, dtype=x.dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_planned_dense_times_sparse_on_one_tile(dtype):
    A = BSR.random(52, 129, blocksize=1, density=0.2, seed=0).to(getattr(torch, dtype))
    x = torch.randn(1, 52).to(A.dtype)
    plan = plan_static(
        A.pattern.T, 1, dtype=dtype, machine=replace(MACHINES[0], tiles_per_bus=1, tiles=1)
    )
    y, _ = run_static_dense_sparse(plan, x, A)
    assert_product(y.T, A.T, x.T)


def test_a_product_takes_about_the_planned_cycles_and_memory():
    A = BSR.random(1024, 1024, blocksize=16, density=0.125, seed=0).half()
    plan = plan_static(A.pattern, 256)
    _, profile = run_static(plan, A, torch.randn(1024, 256).half())
    took = {phase.name: phase.cycles for phase in profile.phases}
    planned = {term.name: term.cycles for term in plan.cost.terms}
    assert took["Multiply"] == pytest.approx(planned["Multiply"], rel=0.2)
    assert took["Reduction"] == pytest.approx(planned["Reduction"], rel=0.4)
    assert profile.tile_memory.max() == pytest.approx(plan.cost.peak_bytes, rel=0.3)
