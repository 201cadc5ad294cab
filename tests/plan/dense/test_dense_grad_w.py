"""The dense gradient of the weight: passes, values, pooling, the largest blocks."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.machine import MachineSpec
from sparsetile.plan.dense._grad_w import (
    dense_grad_w_serial_splits,
    run_dense_grad_w,
    run_top_blocks,
)
from sparsetile.plan.dynamic._plan import DynamicOptions, DynamicPlan


def make_plan(
    m=32, k=24, n=10, block=(4, 4), tiles=16, parts=(2, 3, 2), dtype="float32", memory=64 * 1024
):
    machine = MachineSpec(
        name="small",
        tiles=tiles,
        memory_per_tile=memory,
        clock_hz=1e9,
        exchange_bytes_per_cycle=4,
        memory_bytes_per_cycle=24,
        flops_float16=128,
        flops_mixed=64,
        flops_float32=32,
        workers=6,
        tiles_per_bus=2,
    )
    x, y, z = parts
    r, c = block
    return DynamicPlan(
        machine=machine,
        m=m,
        k=k,
        n=n,
        blocksize=block,
        kernel_block=block,
        max_blocks=4,
        dtype=dtype,
        options=DynamicOptions(),
        x=x,
        y=y,
        z=z,
        x_size=-(-m // r // x) * r,
        y_size=-(-k // c // y) * c,
        z_size=-(-n // z),
        methods=("ForwardAMPBlock", "TransposeAMPBlock", "GradWBlock"),
        exchange_buckets=True,
        bucket_values=4 * r * c,
        bucket_meta=300,
        bucket_meta_grad_a=0,
    )


def operands(plan, seed=0):
    rng = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, plan.dtype)
    dy = torch.randn(plan.m, plan.n, generator=rng).to(dtype)
    return dy, torch.randn(plan.k, plan.n, generator=rng).to(dtype)


def pooled(plan, gradient, pooling):
    (r, c), (m, k) = plan.blocksize, gradient.shape
    blocks = (
        gradient.abs().reshape(m // r, r, k // c, c).transpose(1, 2).reshape(m // r, k // c, -1)
    )
    return {"sum": blocks.sum(2), "avg": blocks.mean(2), "max": blocks.amax(2)}[pooling]


def smallest_share(plan, at_least):
    """The largest of some shares of memory at which so many passes are needed."""
    for step in range(60):
        share = 0.9**step * 0.5
        _, inputs, outputs = dense_grad_w_serial_splits(plan, memory=share)
        if inputs * outputs >= at_least:
            return share
    raise AssertionError


@pytest.mark.parametrize("passes", [1, 2, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradient(passes, dtype):
    plan = make_plan(dtype=dtype)
    dy, x = operands(plan)
    gradient, profile = run_dense_grad_w(plan, dy, x, memory=smallest_share(plan, passes))
    exact = dy.double() @ x.double().T
    # Sums are in float32; a half result is rounded once.
    bound = 1e-5 if dtype == "float32" else 2**-10
    assert gradient.dtype == dy.dtype
    assert ((gradient - exact).abs() <= bound * (dy.double().abs() @ x.double().T.abs())).all()
    (multiply,) = [phase for phase in profile.phases if phase.name == "Multiply"]
    assert multiply.times >= passes


@pytest.mark.parametrize("pooling", ["sum", "avg", "max"])
@pytest.mark.parametrize("block", [(4, 4), (1, 1), (8, 4)])
def test_pooled_scores(pooling, block):
    plan = make_plan(block=block)
    dy, x = operands(plan)
    for passes in (1, 4):
        share = smallest_share(plan, passes)
        scores, _ = run_dense_grad_w(plan, dy, x, pooling=pooling, memory=share)
        exact = pooled(plan, dy.double() @ x.double().T, pooling)
        torch.testing.assert_close(scores.double(), exact, rtol=1e-5, atol=1e-4)


def test_pooling_needs_less_memory_than_the_gradient():
    plan = make_plan(m=64, k=64, block=(8, 8), parts=(2, 2, 2), tiles=8)
    dy, x = operands(plan)
    share = smallest_share(plan, 4)
    _, whole = run_dense_grad_w(plan, dy, x, memory=share)
    _, scores = run_dense_grad_w(plan, dy, x, pooling="max", memory=share)
    assert scores.tile_memory.max() < whole.tile_memory.max()


@settings(max_examples=20, deadline=None)
@given(
    grid=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    n=st.integers(1, 9),
    block=st.sampled_from([(1, 1), (4, 4), (2, 4)]),
    parts=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2)),
    half=st.booleans(),
    step=st.integers(0, 25),
)
def test_any_plan_gives_the_gradient(grid, n, block, parts, half, step):
    (rows, columns), (r, c) = grid, block
    dtype = "float16" if half else "float32"
    plan = make_plan(rows * r, columns * c, n, block, 12, parts, dtype)
    dy, x = operands(plan)
    share = 0.8**step
    try:
        dense_grad_w_serial_splits(plan, memory=share)
    except ValueError:
        share = 1.0
    gradient, _ = run_dense_grad_w(plan, dy, x, memory=share)
    exact = dy.double() @ x.double().T
    bound = (2**-10 if half else 1e-5) * (dy.double().abs() @ x.double().T.abs())
    assert ((gradient - exact).abs() <= bound).all()


@pytest.mark.parametrize("count", [1, 5, 48])
@pytest.mark.parametrize("passes", [1, 6])
def test_top_blocks(count, passes):
    plan = make_plan()
    dy, x = operands(plan)
    share = smallest_share(plan, passes)
    blocks, profile = run_top_blocks(plan, dy, x, count, pooling="avg", memory=share)
    scores = pooled(plan, dy.double() @ x.double().T, "avg").flatten()
    assert blocks.tolist() == scores.argsort(descending=True)[:count].tolist()
    assert any(phase.name == "Merge" for phase in profile.phases)


def test_equal_blocks_come_in_order():
    plan = make_plan()
    blocks, _ = run_top_blocks(plan, torch.ones(plan.m, plan.n), torch.ones(plan.k, plan.n), 20)
    assert blocks.tolist() == list(range(20))


def test_passes_shrink_with_memory():
    plan = make_plan(m=64, k=48)
    products = [
        inputs * outputs
        for share in (1.0, 0.2, 0.05, 0.02)
        for _, inputs, outputs in [dense_grad_w_serial_splits(plan, memory=share)]
    ]
    assert products == sorted(products)
    assert products[0] == 1 < products[-1]


def test_no_pass_fits():
    with pytest.raises(ValueError, match="allow more memory"):
        dense_grad_w_serial_splits(make_plan(), memory=1e-4)


def test_bad_arguments_are_refused():
    plan = make_plan()
    dy, x = operands(plan)
    with pytest.raises(ValueError, match="choose one of these"):
        run_dense_grad_w(plan, dy, x, pooling="mean")
    with pytest.raises(ValueError, match="pass such operands"):
        run_dense_grad_w(plan, x, dy)
    with pytest.raises(ValueError, match="pass such operands"):
        run_dense_grad_w(plan, dy.half(), x.half())
    with pytest.raises(ValueError, match="pass pooling"):
        run_top_blocks(plan, dy, x, 3, pooling="none")
    with pytest.raises(ValueError, match="ask for 1 to 48"):
        run_top_blocks(plan, dy, x, 49)
    with pytest.raises(ValueError, match="must divide"):
        dense_grad_w_serial_splits(replace(plan, m=34))


def test_lazily_negated_operands_are_read():
    plan = make_plan()
    dy, x = operands(plan)
    lazy, _ = run_dense_grad_w(plan, torch._neg_view(-dy), x)
    assert torch.equal(lazy, run_dense_grad_w(plan, dy, x)[0])


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_gradients_without_an_order_are_refused(wrong):
    plan = make_plan()
    dy, x = operands(plan)
    dy[0, 0] = wrong
    with pytest.raises(ValueError, match="NaN or infinity"):
        run_top_blocks(plan, dy, x, 3)


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan")])
def test_shares_of_memory_that_are_none(memory):
    with pytest.raises(ValueError, match="the dense gradient got memory="):
        dense_grad_w_serial_splits(make_plan(), memory=memory)
