"""Dense products on tiles: partitions are valid, values are right, cycles are counted."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.machine import MachineSpec, OutOfTileMemory, preset
from sparsetile.plan._cost import Cost
from sparsetile.plan.dense._partition import DensePartition, multiply_cycles, partition_dense
from sparsetile.plan.dense._program import run_dense
from support import without_type_checks


def machine(tiles=16, memory=64 * 1024):
    return MachineSpec(
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
        tiles_per_bus=2 if tiles % 2 == 0 else 1,
    )


def operands(m, k, n, dtype, seed=0):
    rng = torch.Generator().manual_seed(seed)
    a = torch.randn(m, k, generator=rng).to(dtype)
    return a, torch.randn(k, n, generator=rng).to(dtype)


def assert_close(result, a, b, partials_half=False):
    exact = a.double() @ b.double()
    # A half result is rounded once; half partial sums once each, and at most 16 are added here.
    bound = {torch.float32: 1e-5, torch.float16: 2**-10}[a.dtype] * (17 if partials_half else 1)
    size = (a.double().abs() @ b.double().abs()).clamp(min=1e-30)
    assert result.dtype == a.dtype
    assert ((result.double() - exact).abs() / size).max() <= bound


@pytest.mark.parametrize(
    ("dtype", "partials"),
    [
        (torch.float32, "float32"),
        (torch.float16, "float32"),
        (torch.float16, "float16"),
    ],
)
@pytest.mark.parametrize("shape", [(1, 1, 1), (32, 23, 5), (47, 128, 16), (96, 7, 33), (5, 200, 1)])
def test_values(shape, dtype, partials):
    a, b = operands(*shape, dtype)
    result, profile = run_dense(machine(), a, b, partials=partials)
    assert_close(result, a, b, partials == "float16")
    assert profile.cycles > 0


def test_the_gradient_of_the_input_is_a_product_with_the_transpose():
    weight, dy = operands(24, 12, 12, torch.float32)[0], torch.randn(24, 5)
    result, _ = run_dense(machine(), weight.T, dy)
    assert_close(result, weight.T, dy)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("columns", [1, 7, 16, 50])
def test_columns_may_be_computed_some_at_a_time(columns, dtype):
    a, b = operands(20, 30, 50, dtype)
    name = str(dtype).removeprefix("torch.")
    cut = partition_dense(machine(), 20, 30, columns, name, partials="float32")
    result, profile = run_dense(machine(), a, b, cut=cut)
    assert_close(result, a, b)
    (multiply,) = [phase for phase in profile.phases if phase.name == "Multiply"]
    assert multiply.times == -(-50 // columns)


def test_a_product_too_large_for_memory_is_computed_in_passes():
    target = machine(8, memory=5000)
    a, b = operands(24, 24, 120, torch.float32)
    with pytest.raises(ValueError, match="cut the product into several"):
        partition_dense(target, 24, 24, 120, "float32")
    result, profile = run_dense(target, a, b, memory=0.99)
    assert_close(result, a, b)
    assert profile.tile_memory.max() <= 5000
    with pytest.raises(ValueError, match="allow more memory"):
        run_dense(target, *operands(240, 240, 4, torch.float32))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 40)] * 3),
    tiles=st.integers(4, 64),
    parts=st.tuples(*[st.integers(1, 4)] * 3),
    half=st.booleans(),
    inner=st.sampled_from("xz"),
)
def test_any_partition_gives_the_product(sizes, tiles, parts, half, inner):
    target = machine(tiles)
    dtype = torch.float16 if half else torch.float32
    name = "float16" if half else "float32"
    part = [-(-size // p) for size, p in zip(sizes, parts, strict=True)]
    cut = DensePartition(target, *sizes, name, "float32", (1, 1), *part, inner, Cost(()))
    if cut.tiles > tiles:
        return
    a, b = operands(*sizes, dtype)
    result, _ = run_dense(target, a, b, cut=cut)
    assert_close(result, a, b)


def test_every_part_has_a_tile_of_its_own():
    cut = partition_dense(preset("bow-ipu"), 300, 200, 100, "float16")
    assert sorted(cut.index.reshape(-1).tolist()) == list(range(cut.tiles))
    assert cut.tiles <= 1472
    assert (cut.x - 1) * cut.x_size < 300 <= cut.x * cut.x_size


def test_the_search_finds_no_cheaper_cut_among_random_ones():
    target = machine(24)
    best = partition_dense(target, 60, 50, 40, "float32")
    # All cuts into equal parts on so few tiles, by running them.
    a, b = operands(60, 50, 40, torch.float32)
    _, chosen = run_dense(target, a, b, cut=best)
    for parts in [(24, 1, 1), (1, 24, 1), (1, 1, 24), (2, 2, 6), (6, 2, 2), (3, 8, 1), (1, 1, 1)]:
        sizes = (-(-60 // parts[0]), -(-50 // parts[1]), -(-40 // parts[2]))
        cut = DensePartition(
            target, 60, 50, 40, "float32", "float32", (1, 1), *sizes, "z", Cost(())
        )
        _, other = run_dense(target, a, b, cut=cut)
        assert chosen.cycles <= other.cycles * 1.1


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [256, 1024])
def test_prediction_is_near_what_a_run_takes(size, dtype):
    target = preset("bow-ipu")
    cut = partition_dense(target, size, size, 64, dtype)
    a, b = operands(size, size, 64, getattr(torch, dtype))
    _, profile = run_dense(target, a, b, cut=cut)
    assert profile.cycles == pytest.approx(cut.cost.cycles, rel=0.1)


def test_memory_is_predicted_as_it_is_used():
    target = preset("bow-ipu")
    cut = partition_dense(target, 512, 512, 128, "float16")
    a, b = operands(512, 512, 128, torch.float16)
    _, profile = run_dense(target, a, b, cut=cut)
    assert int(profile.tile_memory.max()) <= cut.cost.peak_bytes * 1.1


def test_less_memory_is_used_if_less_is_allowed():
    target = preset("bow-ipu")
    cut = partition_dense(target, 1024, 1024, 1024, "float16")
    tight = partition_dense(target, 1024, 1024, 1024, "float16", memory=0.085)
    assert tight.cost.peak_bytes <= 0.085 * target.memory_per_tile < cut.cost.peak_bytes
    assert tight.cost.cycles >= cut.cost.cycles


def test_a_full_matrix_unit_multiplies_at_peak():
    target = preset("bow-ipu")
    cycles = float(multiply_cycles(16, 16, 10**6, "float16", "float16", target))
    assert cycles == pytest.approx(10**6 * 16 * 16 / 64, rel=1e-3)
    mixed = multiply_cycles(np.array([16]), 16, 10**6, "float16", "float32", target)
    assert float(mixed[0]) == pytest.approx(10**6 * 16 * 16 / 32, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"m": 0}, "sizes are 1 or more"),
        ({"dtype": "float64"}, "float16 goes with"),
        ({"partials": "float16"}, "float16 goes with"),
        ({"block": (3, 1)}, "must divide"),
        ({"memory": 1e-4}, "allow more memory"),
    ],
)
def test_impossible_partitions_are_refused(change, says):
    asked = {"m": 16, "k": 16, "n": 16, "dtype": "float32"} | change
    with pytest.raises(ValueError, match=says):
        partition_dense(machine(), **asked)


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (torch.ones(2, 3), torch.ones(4, 2), "columns of the first"),
        (torch.ones(2, 3), torch.ones(3, 2).half(), "both operands alike"),
        (torch.ones(2, 3).double(), torch.ones(3, 2).double(), "float16 or float32"),
    ],
)
def test_operands_that_do_not_fit_are_refused(a, b, says):
    with pytest.raises(ValueError, match=says):
        run_dense(machine(), a, b)


def test_a_partition_for_other_operands_is_refused():
    cut = partition_dense(machine(), 4, 4, 4, "float32")
    with pytest.raises(ValueError, match="all must agree"):
        run_dense(machine(), torch.ones(5, 4), torch.ones(4, 4), cut=cut)


def test_a_product_that_does_not_fit_fails():
    target = machine(4, memory=2048)
    cut = DensePartition(
        target, 64, 64, 64, "float32", "float32", (1, 1), 64, 64, 16, "z", Cost(())
    )
    with pytest.raises(OutOfTileMemory):
        run_dense(target, *operands(64, 64, 64, torch.float32), cut=cut)


def test_too_little_memory_is_said_of_what_was_asked():
    a, b = operands(93, 90, 200, torch.float32)
    with pytest.raises(ValueError, match=r"n=200 .*not even a column") as error:
        run_dense(machine(4, memory=4096), a, b, memory=0.3)
    assert " -" not in str(error.value)
    for memory in (-1.0, float("nan"), 0.0, 5.0):
        with pytest.raises(ValueError, match="got memory="):
            run_dense(machine(), a, b, memory=memory)
    with pytest.raises(ValueError, match="float16 goes with") as error:
        run_dense(machine(), a, b, partials="float64")
    assert "column at a time" not in str(error.value)


def test_machines_may_be_named_and_nothing_else_passes():
    a, b = operands(4, 6, 5, torch.float32)
    named, _ = run_dense("bow-ipu", a, b)
    assert torch.equal(named, run_dense(preset("bow-ipu"), a, b)[0])
    with without_type_checks():
        with pytest.raises(TypeError, match="machine is None"):
            run_dense(None, a, b)
        with pytest.raises(TypeError, match=r"b.*None.*a torch tensor"):
            run_dense(machine(), a, None)
        with pytest.raises(ValueError, match=r"a.*sparse_coo.*strided"):
            run_dense(machine(), a.to_sparse(), b)


def test_lazily_negated_operands_are_read():
    a, b = operands(4, 6, 5, torch.float32)
    lazy, _ = run_dense(machine(), torch._neg_view(-a), torch._neg_view(-b))
    assert torch.equal(lazy, run_dense(machine(), a, b)[0])
