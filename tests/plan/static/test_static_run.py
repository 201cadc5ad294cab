import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sparsetile
from sparsetile.machine import OutOfTileMemory
from sparsetile.matrix import BSR, COO, CSC, CSR, Pattern
from sparsetile.plan._cost import Cost
from sparsetile.plan.static._partition import tile_of_block
from sparsetile.plan.static._partitioner import StaticPartitioner
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._run import run_static, run_static_dense_sparse
from support import without_type_checks
from support_static import assert_product, machine, make_plan

DTYPES = ["float16", "float32"]
BLOCKS = [1, 4, 8, 16]


def operands(m, k, n, b, density, dtype, seed=0):
    rng = np.random.default_rng(seed)
    dense = torch.from_numpy(rng.standard_normal((m, k)))
    keep = torch.from_numpy(rng.random((-(-m // b), -(-k // b))) < density)
    keep = keep.repeat_interleave(b, 0)[:m].repeat_interleave(b, 1)[:, :k]
    A = BSR.from_dense((dense * keep).to(getattr(torch, dtype)), b)
    return A, torch.from_numpy(rng.standard_normal((k, n))).to(getattr(torch, dtype))


def check(A, x, **plan):
    dtype = str(x.dtype).removeprefix("torch.")
    y, profile = run_static(make_plan(A.pattern, x.shape[1], dtype, **plan), A, x)
    assert y.dtype == x.dtype
    assert_product(y, A, x)
    return y, profile


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", BLOCKS)
def test_one_dense_block_column_of_x(b, dtype):
    A, x = operands(b, b, 1, b, 1, dtype)
    check(A, x, tiles=4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", BLOCKS)
@pytest.mark.parametrize(
    ("m", "k", "n", "density"),
    [(64, 64, 32, 1), (512, 64, 8, 0.01), (512, 64, 13, 0.1), (512, 8, 7, 0.1)],
)
def test_cases_of_the_original(m, k, n, density, b, dtype):
    A, x = operands(m, k, n, b, density, dtype)
    for seed in range(3):
        check(A, x, tiles=16, seed=seed)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", BLOCKS)
def test_nothing_stored_gives_zeros(b, dtype):
    A, x = operands(512, 64, 8, b, 0, dtype)
    y, profile = run_static(make_plan(A.pattern, 8, dtype), A, x)
    assert A.nnzb == 0
    assert torch.equal(y, torch.zeros(512, 8, dtype=x.dtype))
    assert [phase.name for phase in profile.phases if phase.kind == "compute"] == ["Empty rows"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_times_sparse_on_one_tile(dtype):
    A, x = operands(129, 52, 1, 1, 0.3, dtype)
    plan = make_plan(A.pattern, 1, dtype, tiles=1)
    y, _ = run_static_dense_sparse(plan, x.T, A.T)
    assert y.shape == (1, 129)
    assert_product(y.T, A, x)


@pytest.mark.parametrize("b", [1, 4])
def test_dense_times_sparse_of_blocks_alone(b):
    A, x = operands(24, 32, 6, b, 0.5, "float32")
    weight = A.T
    plan = make_plan(A.pattern, 6, "float32")
    y, _ = run_static_dense_sparse(plan, x.T, weight.values)
    torch.testing.assert_close(y, x.T @ weight.to_dense(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("b", BLOCKS)
def test_equals_the_reference_back_end(b):
    A, x = operands(128, 112, 20, b, 0.3, "float32")
    with sparsetile.backend("reference"):
        expected = A @ x
    y, _ = check(A, x, tiles=32)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("b", BLOCKS)
def test_whole_numbers_give_exact_products(b):
    A, x = operands(96, 96, 9, b, 0.5, "float16")
    A, x = BSR(A.values.sign(), A.pattern), x.sign()
    y, _ = check(A, x, tiles=24, seed=4)
    assert torch.equal(y.double(), A.to_dense().double() @ x.double())


@pytest.mark.parametrize("form", [CSR, CSC, COO])
def test_takes_every_host_format(form):
    A, x = operands(16, 24, 4, 4, 0.5, "float32")
    plan = make_plan(A.pattern, 4, "float32")
    assert torch.equal(run_static(plan, form.from_bsr(A), x)[0], run_static(plan, A, x)[0])


@pytest.mark.parametrize("b", [4, 8, 16])
def test_what_lies_beyond_the_edge_is_not_read(b):
    A, x = operands(b + 1, 2 * b + 3, 5, b, 1, "float32")
    values = A.values.clone()
    values[A.pattern.row_indices == 1, 1:] = torch.nan
    values[A.pattern.col_indices == 2, :, 3:] = torch.nan
    y, _ = run_static(make_plan(A.pattern, 5, "float32"), BSR(values, A.pattern), x)
    assert_product(y, A, x)


def test_rows_without_blocks_are_zero_where_others_are_not_finite():
    pattern = Pattern((12, 8), 4, [0, 1, 1, 2], [0, 1])
    x = torch.full((8, 3), torch.inf)
    y, _ = run_static(make_plan(pattern, 3, "float32"), torch.ones(2, 4, 4), x)
    assert torch.equal(y[4:8], torch.zeros(4, 3))
    assert bool(y[:4].isinf().all() and y[8:].isinf().all())


def test_what_overflows_half_precision_is_infinite():
    pattern = Pattern((2, 64), 1, [0, 64, 64], list(range(64)))
    values, x = torch.full((64, 1, 1), 250.0).half(), torch.full((64, 4), 250.0).half()
    for bands in (1, 4):
        y, _ = run_static(make_plan(pattern, 4, "float16", bands=bands, intervals=1), values, x)
        assert bool(y[0].isinf().all()) and not y[1].any()


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0, 0), (8, 8)])
@pytest.mark.parametrize("n", [0, 3])
def test_sizes_of_zero(shape, n):
    A, x = operands(*shape, n, 4, 1, "float32")
    plan = StaticPlan(
        machine=machine(4),
        pattern=A.pattern,
        n=n,
        dtype="float32",
        preprocess=True,
        column_starts=(0, n + n % 2),
        split_tiles=(0, 4),
        band_starts=(0, A.pattern.grid[1]),
        band_tiles=((0, 4),),
        cost=Cost(()),
    )
    y, _ = run_static(plan, A, x)
    assert y.shape == (shape[0], n)
    assert_product(y, A, x)


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(1, 70),
    k=st.integers(1, 70),
    n=st.integers(1, 40),
    b=st.sampled_from(BLOCKS),
    density=st.floats(0, 1),
    dtype=st.sampled_from(DTYPES),
    tiles=st.integers(4, 64),
    preprocess=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_any_plan_computes_the_product(m, k, n, b, density, dtype, tiles, preprocess, seed):
    A, x = operands(m, k, n, b, density, dtype, seed)
    y, _ = check(A, x, tiles=tiles, seed=seed, preprocess=preprocess)
    with sparsetile.backend("reference"):
        expected = A.float() @ x.float()
    near = 1e-5 if dtype == "float32" else 2e-2
    torch.testing.assert_close(y.float(), expected, rtol=near, atol=near * 10)


def test_operands_that_do_not_fit_are_refused():
    A, x = operands(16, 24, 4, 4, 0.5, "float32")
    plan = make_plan(A.pattern, 4, "float32")
    with pytest.raises(ValueError, match=r"x: got .*\[24, 5\].*\[k, n\] = \[24, 4\].*make a plan"):
        run_static(plan, A, torch.zeros(24, 5))
    with pytest.raises(TypeError, match=r"x: got .*float64.*float32"):
        run_static(plan, A, x.double())
    with pytest.raises(ValueError, match=r"x: got .*\[24, 4\].*\[n, m\] = \[4, 24\]"):
        run_static_dense_sparse(plan, x, A.T)


def test_a_plan_too_big_for_the_tiles_says_where():
    A, x = operands(64, 64, 32, 16, 1, "float32")
    plan = make_plan(A.pattern, 32, "float32", tiles=4)
    small = StaticPlan(**{**vars(plan), "machine": machine(4, memory=9_000)})
    with pytest.raises(OutOfTileMemory, match="rows of x"):
        run_static(small, A, x)


def test_lazily_negated_operands_are_read_as_they_are():
    A, x = operands(16, 16, 4, 8, 1, "float32")
    plan = make_plan(A.pattern, 4, "float32", tiles=4)
    negated = BSR(torch._neg_view(-A.values), A.pattern)
    y, _ = run_static(plan, negated, torch._neg_view(-x))
    assert_product(y, A, x)


@without_type_checks()
def test_what_is_no_static_plan_is_refused():
    A, x = operands(16, 16, 4, 8, 1, "float32")
    for call in (
        lambda: run_static(None, A, x),
        lambda: run_static_dense_sparse(None, x.T, A),
        lambda: StaticPartitioner("plan"),
        lambda: tile_of_block(3, 0),
    ):
        with pytest.raises(TypeError, match=r"plan: got .* allowed: a StaticPlan"):
            call()


def test_there_is_no_tile_in_an_interval_that_is_not_there():
    plan = make_plan(operands(16, 16, 4, 8, 1, "float32")[0].pattern, 4, "float32", tiles=4)
    for interval in (-1, plan.splits):
        with pytest.raises(ValueError, match=f"interval: got {interval}; allowed"):
            tile_of_block(plan, interval)


@without_type_checks()
def test_only_an_array_of_the_planned_size_is_restored():
    plan = make_plan(operands(16, 16, 4, 8, 1, "float32")[0].pattern, 4, "float32", tiles=4)
    for values in (torch.zeros(256), np.zeros(3, np.float32)):
        with pytest.raises(ValueError, match=r"values: got .* a numpy array of \[256\]"):
            StaticPartitioner(plan).restore(values)
