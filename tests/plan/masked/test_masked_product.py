"""Products with a mask of blocks, on tiles, against dense products."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.machine import OutOfTileMemory, preset
from sparsetile.matrix import BSR, Pattern, gather_blocks, pattern_of, random_pattern
from sparsetile.plan.masked import masked_program, plan_dds, plan_dsd, run_dds, run_dsd
from support import without_type_checks

METHODS = ["strip", "block", "block-naive"]
TOLERANCE = {"float16": 2e-3, "float32": 1e-5}  # relative to the largest


def machine(tiles, **changes):
    return dataclasses.replace(preset("bow-ipu"), name="some", tiles=tiles, **changes)


def near(result, wanted):
    limit = TOLERANCE[str(result.dtype).removeprefix("torch.")]
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    return bool(((result.double() - wanted).abs() <= limit * scale).all())


def numbers(dtype, *shape):
    return torch.randn(*shape).to(getattr(torch, dtype))


def mask_of(rows, columns, density, seed):
    """A pattern of blocks; some rows of blocks may be empty."""
    bits = np.random.default_rng(seed).random((rows, columns)) < density
    return torch.from_numpy(bits)


def patterns_of(groups, grid, blocksize, density, seed=0):
    (rows, columns), (r, c) = grid, blocksize
    masks = [mask_of(rows, columns, density, seed + group) for group in range(groups)]
    whole = [mask.repeat_interleave(r, 0).repeat_interleave(c, 1) for mask in masks]
    return [pattern_of(mask, blocksize=blocksize) for mask in whole]


def dsd(plan):
    """The result and what it must be."""
    left = numbers(plan.dtype, plan.groups * plan.m, plan.k)
    values = [numbers(plan.dtype, p.nnzb, *p.blocksize) for p in plan.patterns]
    result, profile = run_dsd(plan, left, torch.cat(values))
    dense = [BSR(v, p).to_dense() for v, p in zip(values, plan.patterns, strict=True)]
    right = [d.T if plan.transposed else d for d in dense]
    parts = zip(left.double().split(plan.m), right, strict=True)
    return result, torch.cat([a @ b.double() for a, b in parts]), profile


def dds(plan):
    left = numbers(plan.dtype, plan.groups * plan.m, plan.k)
    shape = (plan.n, plan.k) if plan.transposed else (plan.k, plan.n)
    right = numbers(plan.dtype, plan.groups * shape[0], shape[1])
    result, profile = run_dds(plan, left, right)
    wanted = []
    parts = (left.double().split(plan.m), right.double().split(shape[0]), plan.patterns)
    for a, b, pattern in zip(*parts, strict=True):
        wanted.append(gather_blocks(a @ (b.T if plan.transposed else b), pattern))
    return result, torch.cat(wanted), profile


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
@pytest.mark.parametrize("groups", [1, 3])
def test_product_is_that_of_dense_matrices(method, dtype, transposed, groups):
    side = 16 if dtype == "float16" else 8
    more = {"dtype": dtype, "transposed": transposed, "method": method}
    patterns = patterns_of(groups, (3, 5), (side, 2 * side), 0.5)
    result, wanted, _ = dsd(plan_dsd(machine(12), patterns, 4 * side, **more))
    assert result.dtype == getattr(torch, dtype)
    assert near(result, wanted)
    result, wanted, _ = dds(plan_dds(machine(12), patterns, 6 * side, **more))
    assert near(result, wanted)


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_random_product_on_a_random_machine(data):
    draw = data.draw
    tiles, method = 2 * draw(st.integers(2, 32)), draw(st.sampled_from(METHODS))
    groups, passes = draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (1, 3)]))
    rows, columns = draw(st.integers(3, 6)), draw(st.integers(1, 6))
    side = draw(st.sampled_from([8, 16]))
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    seed = draw(st.integers(0, 99))
    patterns = patterns_of(groups, (rows, columns), (side, 8), density, seed)
    more = {
        "dtype": "float32",
        "method": method,
        "passes": passes,
        "transposed": draw(st.booleans()),
        "memory_cycle_ratio": draw(st.sampled_from([0.0, 0.2, 1.0])),
    }
    small = machine(tiles, workers=draw(st.integers(1, 8)))
    result, wanted, profile = dsd(plan_dsd(small, patterns, 24, block=8, **more))
    assert near(result, wanted)
    assert profile.cycles > 0
    result, wanted, _ = dds(plan_dds(small, patterns, 24, block=8, **more))
    assert near(result, wanted)


@pytest.mark.parametrize("method", METHODS)
def test_mask_of_eight_by_eight_blocks_on_sixteen_tiles(method):
    pattern = random_pattern(128, 128, blocksize=16, density=0.2, seed=1)
    plan = plan_dsd(machine(16), pattern, 128, method=method)
    result, wanted, profile = dsd(plan)
    assert near(result, wanted)
    busy = {phase.name: phase for phase in profile.phases}["Multiply"].tile_cycles
    assert (busy > 0).all()
    result, wanted, _ = dds(plan_dds(machine(16), pattern, 128, method=method))
    assert near(result, wanted)


@pytest.mark.parametrize("sub_block", ["zero_upper", "zero_lower"])
@pytest.mark.parametrize("blocksize", [(8, 8), (8, 16)], ids=str)
def test_triangle_within_diagonal_blocks_is_zero(sub_block, blocksize):
    (pattern,) = patterns_of(1, (6, 48 // blocksize[1]), blocksize, 1.0)
    plan = plan_dds(machine(8), pattern, 16, dtype="float32", sub_block=sub_block)
    result, wanted, _ = dds(plan)
    keep = torch.ones(48, 48, dtype=torch.bool)
    keep = keep.tril() if sub_block == "zero_upper" else keep.triu()
    diagonal = gather_blocks(torch.eye(48, dtype=torch.bool), pattern).any(2).any(1)
    kept = gather_blocks(keep, pattern) | ~diagonal[:, None, None]
    assert near(result, wanted * kept)
    assert (result[~kept] == 0).all()


def test_sums_in_half_are_rounded_and_allowed_for_half_only():
    pattern = random_pattern(256, 64, blocksize=16, density=0.5, seed=0)
    exact, wanted, _ = dsd(plan_dsd(machine(16), pattern, 64))
    rough, _, profile = dsd(plan_dsd(machine(16), pattern, 64, partials="float16"))
    assert near(exact, wanted)
    assert torch.isfinite(rough).all()
    half = plan_dsd(machine(16), pattern, 64, partials="float16").cost.cycles
    assert half < plan_dsd(machine(16), pattern, 64).cost.cycles
    assert profile.cycles > 0
    with pytest.raises(ValueError, match="at least as precise"):
        plan_dsd(machine(16), pattern, 64, dtype="float32", partials="float16")


def test_more_passes_need_less_memory_and_more_cycles():
    pattern = random_pattern(256, 256, blocksize=16, density=0.3, seed=0)
    plans = [plan_dsd(machine(8), pattern, 512, passes=passes) for passes in (1, 4)]
    (_, _, once), (result, wanted, often) = (dsd(plan) for plan in plans)
    assert near(result, wanted)
    assert often.tile_memory.max() < once.tile_memory.max()
    assert often.cycles > once.cycles
    assert plans[1].cost.peak_bytes < plans[0].cost.peak_bytes
    needed = int(often.tile_memory.max())
    tight = machine(8, memory_per_tile=needed)
    assert near(*dsd(plan_dsd(tight, pattern, 512, passes=4))[:2])
    with pytest.raises(OutOfTileMemory):
        dsd(plan_dsd(tight, pattern, 512))


def test_each_method_is_good_at_what_it_is_for():
    pattern = random_pattern(512, 512, blocksize=16, density=0.2, seed=0)
    received, balance, cycles = {}, {}, {}
    for method in METHODS:
        plan = plan_dsd(machine(64), pattern, 256, method=method)
        _, _, profile = dsd(plan)
        received[method], cycles[method] = profile.bytes_moved, plan.cost.cycles
        multiply = {phase.name: phase for phase in profile.phases}["Multiply"]
        balance[method] = multiply.balance
    assert received["block"] < 0.8 * received["block-naive"]
    assert min(balance.values()) > 0.85
    assert cycles["block"] < 1.02 * cycles["strip"] < cycles["block-naive"]


def test_memory_ratio_trades_cycles_for_memory():
    pattern = random_pattern(512, 512, blocksize=16, density=0.2, seed=0)
    fast, small = (
        plan_dsd(machine(64), pattern, 512, memory_cycle_ratio=ratio).cost for ratio in (0.0, 1.0)
    )
    assert fast.cycles <= small.cycles
    assert small.peak_bytes <= fast.peak_bytes


@pytest.mark.parametrize("method", METHODS)
def test_expected_cycles_are_near_those_counted(method):
    pattern = random_pattern(512, 512, blocksize=16, density=0.2, seed=0)
    plan = plan_dsd(machine(64, tiles_per_bus=1), pattern, 256, method=method)
    _, _, profile = dsd(plan)
    assert plan.cost.cycles == pytest.approx(profile.cycles, rel=0.15)
    counted = {phase.name: phase.cycles for phase in profile.phases}
    expected = {term.name: term.cycles for term in plan.cost.terms}
    assert counted["Multiply"] == expected["Multiply"]
    assert counted["Reduction or cast"] == expected["Reduction or cast"]


def test_plans_are_kept_equal_and_hashable():
    first, second = (random_pattern(64, 64, blocksize=16, density=0.5, seed=0) for _ in range(2))
    plan = plan_dsd(machine(8), first, 64)
    assert plan_dsd(machine(8), second, 64) is plan
    assert masked_program(plan) is masked_program(plan)
    assert len({plan, dataclasses.replace(plan), plan_dsd(machine(8), first, 32)}) == 2


def test_blocks_may_be_larger_than_the_least():
    (pattern,) = patterns_of(1, (2, 3), (48, 32), 0.7)
    result, wanted, _ = dsd(plan_dsd(machine(6), pattern, 32, block=32))
    assert near(result, wanted)


ERRORS = [
    ({"method": "stripes"}, "strip, block, block-naive"),
    ({"dtype": "float64"}, "float16 or float32"),
    ({"block": 12}, "multiples of 16"),
    ({"m": 40}, "whole blocks"),
    ({"m": 0}, "m: "),
    ({"passes": 2}, "one group only"),
    ({"passes": 9}, "passes"),
    ({"memory_cycle_ratio": 2.0}, "memory_cycle_ratio"),
    ({"patterns": []}, "Pattern"),
]


@pytest.mark.parametrize(("change", "words"), ERRORS, ids=str)
def test_refuses_what_does_not_fit(change, words):
    patterns = patterns_of(2, (2, 2), (16, 16), 1.0)
    arguments = {"machine": machine(4), "patterns": patterns, "m": 32, **change}
    with pytest.raises((TypeError, ValueError), match=words):
        plan_dsd(**arguments)


def test_refuses_patterns_that_no_unit_takes():
    for pattern, words in [
        (Pattern((32, 32), 8, [0, 1, 2, 3, 4], [0, 1, 2, 3]), "multiples of 16"),
        (Pattern((32, 40), 16, [0, 1, 2], [0, 1]), "divide"),
    ]:
        with pytest.raises(ValueError, match=words):
            plan_dsd(machine(4), pattern, 32)
    unlike = [*patterns_of(1, (2, 2), (16, 16), 1.0), *patterns_of(1, (2, 4), (16, 16), 1.0)]
    with pytest.raises(ValueError, match="one shape"):
        plan_dsd(machine(4), unlike, 32)
    with pytest.raises(ValueError, match="sub_block"):
        plan_dds(machine(4), unlike[0], 32, sub_block="upper")


def test_refuses_operands_that_the_plan_is_not_for():
    (pattern,) = patterns_of(1, (2, 2), (16, 16), 1.0)
    plan, other = plan_dsd(machine(4), pattern, 32), plan_dds(machine(4), pattern, 32)
    left, values = numbers("float16", 32, 32), numbers("float16", 4, 16, 16)
    for wrong in [(left.float(), values), (left[:16], values), (left, values[:3])]:
        with pytest.raises(ValueError, match="allowed: float16"):
            run_dsd(plan, *wrong)
    with pytest.raises(ValueError, match="allowed: float16"):
        run_dds(other, left, left[:16])
    with pytest.raises(ValueError, match="call run_dds"):
        run_dsd(other, left, values)


def test_lazily_negated_operands_are_read_and_infinite_sums_are_kept():
    pattern = random_pattern(32, 32, blocksize=8, density=0.5, seed=0)
    plan = plan_dsd("bow-ipu", pattern, 16, dtype="float32")
    left, values = numbers("float32", 16, 32), numbers("float32", pattern.nnzb, 8, 8)
    y, _ = run_dsd(plan, torch._neg_view(-left), values)
    assert y.equal(run_dsd(plan, left, values)[0])
    left[0] = torch.inf
    assert run_dsd(plan, left, values)[0][0].isnan().any()


@without_type_checks()
def test_refuses_what_is_no_machine_plan_or_matrix():
    pattern = random_pattern(32, 32, blocksize=8, density=0.5, seed=0)
    left, values = numbers("float32", 16, 32), numbers("float32", pattern.nnzb, 8, 8)
    with pytest.raises(TypeError, match="machine is 5; it may be a MachineSpec"):
        plan_dsd(5, pattern, 16, dtype="float32")
    with pytest.raises(TypeError, match="patterns: got None"):
        plan_dsd("bow-ipu", None, 16, dtype="float32")
    with pytest.raises(ValueError, match="memory_cycle_ratio: got"):
        plan_dsd("bow-ipu", pattern, 16, dtype="float32", memory_cycle_ratio="much")
    with pytest.raises(TypeError, match="run_dsd was given None as a plan; it takes a MaskedPlan"):
        run_dsd(None, left, values)
    with pytest.raises(ValueError, match=r"left: got a sparse_coo .* allowed: float32 .*dense"):
        run_dsd(plan_dsd("bow-ipu", pattern, 16, dtype="float32"), left.to_sparse(), values)
