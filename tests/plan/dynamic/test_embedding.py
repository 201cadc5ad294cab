"""Rows of a sparse table looked up and added to on tiles, whatever the plan and the spilling."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile import BSR
from sparsetile.machine import OutOfTileMemory
from sparsetile.plan.dynamic import _embedding_rows
from sparsetile.plan.dynamic._decode import decode_values
from sparsetile.plan.dynamic._embedding import embedding_slice, embedding_update_add
from sparsetile.plan.dynamic._embedding_rows import PADDING, read_table
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._encoded import steps
from support import without_type_checks
from support_dynamic_run import draw, hand_plan, moved, times

COUNTS = [1, 2, 4, 5, 16, 17]
CUTS = [(2, 2, 2), (1, 3, 1), (3, 1, 2)]


def draw_indices(m, count, seed=0):
    """Some rows, with repeated ones and padding among them if there are several."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(m, (count,), generator=generator)
    if count > 3:
        indices[1] = indices[0]
        indices[2] = PADDING
    return indices


def check_slice(plan, A, encoded, indices):
    rows, profile = embedding_slice(plan, encoded, indices)
    W = A.to_dense()
    exact = torch.zeros(len(indices), A.shape[1], dtype=A.dtype)
    real = indices != PADDING
    exact[real] = W[indices[real]]
    assert torch.equal(rows, exact)  # copied, so nothing is rounded
    return profile


def check_update(plan, A, encoded, indices, scale=-0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    slices = torch.randn(len(indices), A.shape[1], generator=generator).to(A.dtype)
    before = encoded.values.copy()
    values, profile = embedding_update_add(plan, encoded, slices, indices, scale)
    assert str(values.dtype) == f"torch.{plan.dtype}"
    assert (encoded.values == before).all()
    real = indices != PADDING
    added, most = (torch.zeros(A.shape, dtype=torch.float64) for _ in range(2))
    added.index_add_(0, indices[real], scale * slices[real].double())
    most.index_add_(0, indices[real], abs(scale) * slices[real].double().abs())
    W = A.to_dense().double()
    exact, size = (
        BSR.from_dense(whole, A.blocksize, pattern=A.pattern).values
        for whole in (W + added, W.abs() + most)
    )
    # Sums are in float32; half values are rounded once.
    bound = 1e-5 if plan.dtype == "float32" else 2**-11 + 1e-5
    got = decode_values(encoded, values.numpy()).double()
    assert ((got - exact).abs() <= bound * size + 1e-7).all()
    return profile


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("columns", [8, 65])
@pytest.mark.parametrize("rows", [4, 67, 126])
def test_elements(rows, columns, count):
    dtype = torch.float16 if count % 2 else torch.float32
    A = draw(rows, columns, (1, 1), 0.2, dtype, seed=count)
    plan = hand_plan(A, 4, CUTS[count % 3], oversize=0.5, slack=2)
    encoded, indices = encode(plan, A), draw_indices(rows, count)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("block", [(4, 2), (8, 4)])
@pytest.mark.parametrize("columns", [8, 24])
@pytest.mark.parametrize("rows", [24, 120])
def test_blocks_that_are_not_square(rows, columns, block, count):
    dtype = torch.float16 if count % 2 else torch.float32
    A = draw(rows, columns, block, 0.2, dtype, seed=count)
    plan = hand_plan(A, 4, CUTS[count % 3], oversize=0.6, slack=2)
    encoded, indices = encode(plan, A), draw_indices(rows, count)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("block", [(1, 1), (4, 4)])
@pytest.mark.parametrize("cut", [(1, 1, 1), (2, 3, 2), (3, 2, 1), (1, 4, 1)])
def test_whatever_spills_wherever(cut, block, dtype):
    A = draw(24, 20, block, 0.4, dtype)
    plan = hand_plan(A, 4, cut, slack=200)
    encoded, indices = moved(plan, A, 1), draw_indices(24, 9)
    profile = check_slice(plan, A, encoded, indices)
    _, rounds, _ = steps(encoded)
    x, _, z = cut
    assert times(profile, "Slice compute") == rounds * x * z
    profile = check_update(plan, A, encoded, indices)
    assert times(profile, "Update compute") == rounds * x * z


def test_buckets_go_once_round_if_nothing_spilled_out_of_its_columns():
    A = draw(24, 24, (1, 1), 0.3)
    plan = hand_plan(A, 4, (2, 3, 2), slack=100)
    encoded = encode(plan, A)
    assert steps(encoded)[:2] == (1, 1)
    profile = check_slice(plan, A, encoded, draw_indices(24, 30))
    assert times(profile, "Slice compute") == 4
    assert times(profile, "Propagation exchange", "exchange") == 0


def test_a_block_that_runs_as_smaller_ones():
    A = draw(32, 32, (16, 16), 0.5)
    plan = hand_plan(A, 4, (2, 2, 1), kernel=(8, 8), slack=4)
    encoded, indices = encode(plan, A), draw_indices(32, 12)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices)


def test_an_empty_table():
    A = draw(8, 8, (1, 1), 0.0)
    plan = hand_plan(A, 2, (2, 2, 1))
    encoded, indices = encode(plan, A), draw_indices(8, 5)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices)


def test_nothing_but_padding():
    A = draw(8, 8, (1, 1), 0.5)
    plan = hand_plan(A, 2, (2, 2, 1), slack=8)
    encoded, indices = encode(plan, A), torch.full((6,), PADDING)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices)


def test_repeated_indices_add_up():
    A = BSR.from_dense(torch.eye(4), 1)
    plan = hand_plan(A, 2, (2, 2, 1), slack=4)
    encoded = encode(plan, A)
    indices = torch.tensor([3, 3, 3, 1])
    values, _ = embedding_update_add(plan, encoded, torch.ones(4, 4), indices, 2.0)
    assert decode_values(encoded, values.numpy()).flatten().tolist() == [1.0, 3.0, 1.0, 7.0]


@settings(max_examples=25, deadline=None)
@given(
    block=st.sampled_from([(1, 1), (4, 4), (2, 4), (8, 1)]),
    grid=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    cut=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    spare=st.integers(0, 3),
    count=st.integers(1, 20),
    half=st.booleans(),
    elsewhere=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_plan_and_table(block, grid, cut, spare, count, half, elsewhere, seed):
    (r, c), (rows, columns) = block, grid
    dtype = torch.float16 if half else torch.float32
    A = draw(rows * r, columns * c, block, 0.4, dtype, seed)
    x, y, z = cut
    plan = hand_plan(A, 4, cut, tiles=x * y * z + spare, slack=100)
    encoded = moved(plan, A, seed) if elsewhere else encode(plan, A)
    indices = draw_indices(rows * r, count, seed)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices, seed=seed)


def test_more_indices_take_longer():
    A = draw(64, 64, (4, 4), 0.3)
    plan = hand_plan(A, 4, (2, 2, 2), slack=10)
    encoded = encode(plan, A)
    cycles = [
        embedding_slice(plan, encoded, torch.arange(count) % 64)[1].cycles for count in (8, 64, 512)
    ]
    assert cycles == sorted(cycles) and cycles[0] * 4 < cycles[2]


def test_a_table_that_does_not_fit_fails():
    A = draw(64, 64, (4, 4), 0.3)
    plan = hand_plan(A, 4, (2, 2, 2), slack=10)
    small = replace(plan, machine=replace(plan.machine, memory_per_tile=4096))
    with pytest.raises(OutOfTileMemory):
        embedding_slice(small, encode(small, A), torch.arange(64))


def test_bad_arguments_are_refused():
    A = draw(8, 6, (1, 1), 0.5)
    plan = hand_plan(A, 2, (2, 2, 1), slack=8)
    other = hand_plan(A, 2, (2, 1, 1), slack=20)
    encoded, indices, slices = encode(plan, A), torch.tensor([1, 2]), torch.ones(2, 6)
    with pytest.raises(ValueError, match="encode it for this plan"):
        embedding_slice(other, encoded, indices)
    with pytest.raises(TypeError, match=r"\.long\(\)"):
        embedding_slice(plan, encoded, torch.ones(2))
    with pytest.raises(ValueError, match="1 or more"):
        embedding_slice(plan, encoded, indices[:0])
    for wrong in (8, -1, 2**32):
        with pytest.raises(ValueError, match=f"{wrong} at place 1"):
            embedding_slice(plan, encoded, torch.tensor([PADDING, wrong]))
    with pytest.raises(TypeError, match="float32"):
        embedding_update_add(plan, encoded, slices.half(), indices)
    with pytest.raises(ValueError, match="as many rows as indices"):
        embedding_update_add(plan, encoded, torch.ones(3, 6), indices)
    with pytest.raises(ValueError, match="finite"):
        embedding_update_add(plan, encoded, slices, indices, float("nan"))
    forward = hand_plan(A, 2, (2, 2, 1), slack=8, grad_w=False)
    with pytest.raises(ValueError, match="grad_w=True"):
        embedding_update_add(forward, encode(forward, A), slices, indices)


@pytest.mark.parametrize("cut", [(2, 3, 2), (1, 1, 1), (1, 4, 1)])
def test_travelling_buckets_are_read_once(cut, monkeypatch):
    read = []

    def counting(meta, plan):
        read.append(meta)
        return read_table(meta, plan)

    monkeypatch.setattr(_embedding_rows, "read_table", counting)
    A = draw(24, 20, (1, 1), 0.4)
    plan = hand_plan(A, 6, cut, slack=200)
    encoded, indices = moved(plan, A, 3), draw_indices(24, 7)
    check_slice(plan, A, encoded, indices)
    check_update(plan, A, encoded, indices)
    assert len(read) == 2
    # Other buckets under the same program are noticed.
    check_slice(plan, A, moved(plan, A, 4), indices)
    assert len(read) == 3 or cut == (1, 1, 1)


def test_indices_and_scales_of_another_kind():
    A = draw(8, 6, (1, 1), 0.5)
    plan = hand_plan(A, 2, (2, 2, 1), slack=8)
    encoded, indices, slices = encode(plan, A), torch.tensor([1]), torch.ones(1, 6)
    with without_type_checks():
        with pytest.raises(ValueError, match="one dimension"):
            embedding_slice(plan, encoded, indices[None])
        with pytest.raises(TypeError, match=r"list.*as_tensor"):
            embedding_slice(plan, encoded, [1])
        with pytest.raises(TypeError, match=r"scale.*'x'.*a number"):
            embedding_update_add(plan, encoded, slices, indices, "x")
        with pytest.raises(TypeError, match=r"encoded.*None"):
            embedding_slice(plan, None, indices)
    for scale in (1e39, float("inf"), -(10**400)):
        with without_type_checks(), pytest.raises(ValueError, match=r"scale.*finite in float32"):
            embedding_update_add(plan, encoded, slices, indices, scale)
    encoded.meta[1] = 0
    with pytest.raises(ValueError, match="corrupt or invalid"):
        embedding_slice(plan, encoded, indices)
