"""Dynamic products on tiles give what dense float64 and the reference back end give."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparsetile import BSR
from sparsetile.plan.dynamic._decode import decode_values
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._propagate import propagation_steps
from sparsetile.plan.dynamic._run import run_dynamic
from support_dynamic_run import check_passes, dense_operands, draw, hand_plan, moved, times

F16, F32 = torch.float16, torch.float32
CUT = (3, 2, 4)  # 24 tiles


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize(
    ("side", "dtype", "partials"),
    [
        (4, F16, "float32"),
        (8, F16, "float16"),
        (8, F32, "float32"),
        (16, F16, "float32"),
    ],
)
def test_blocks(side, dtype, partials, amp, forced):
    A = draw(192, 96, (side, side), 0.1, dtype)
    plan = hand_plan(
        A,
        64,
        CUT,
        amp=amp,
        exchange_buckets=side == 8,
        slack=0 if forced else A.nnzb,
        partials=partials,
        force_spills=forced,
    )
    encoded = encode(plan, A)
    profiles = check_passes(plan, A, encoded)
    assert (propagation_steps(encoded) > 0) == forced
    for profile in profiles.values():
        assert times(profile, "Propagation compute") == propagation_steps(encoded)
    assert times(profiles["grad_a"], "Transpose buckets") == 1
    assert times(profiles["grad_w"], "Q-grad/S transpose") == amp


@pytest.mark.parametrize("exchange_buckets", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [F16, F32])
def test_elements(dtype, shared, exchange_buckets):
    A = draw(96, 120, (1, 1), 0.2, dtype)
    for forced in (False, True):
        plan = hand_plan(
            A,
            8,
            CUT,
            shared_buckets=shared,
            exchange_buckets=exchange_buckets,
            slack=0 if forced else A.nnzb,
            force_spills=forced,
        )
        profiles = check_passes(plan, A, encode(plan, A))
        assert (times(profiles["fwd"], "Propagation compute") > 0) == forced


def test_a_layer_of_784_to_300():
    A = draw(300, 784, (1, 1), 0.1)
    plan = hand_plan(A, 16, (6, 2, 2), oversize=0.5)
    profiles = check_passes(plan, A, encode(plan, A))
    assert times(profiles["fwd"], "Propagation compute") == 0


@pytest.mark.parametrize("speed", [False, True])
def test_imbalance_spills(speed):
    heavy = (slice(48, 64), slice(16, 98), 8.0)
    A = draw(128, 128, (1, 1), 0.1, heavy=heavy)
    plan = hand_plan(A, 8, CUT, optimise_for_speed=speed)
    profiles = check_passes(plan, A, encode(plan, A))
    assert times(profiles["fwd"], "Propagation compute") > 0


def test_hardly_any_oversize_spills_everywhere():
    A = draw(270, 256, (1, 1), 0.1)
    plan = hand_plan(A, 4, (4, 3, 2), oversize=0.005, tiles=32)
    encoded = encode(plan, A)
    assert encoded.overflow_ends.min() > 1
    check_passes(plan, A, encoded)


def test_blocks_with_little_oversize():
    A = draw(272, 256, (16, 16), 0.2, F16)
    plan = hand_plan(A, 32, (4, 3, 2), oversize=0.2)
    check_passes(plan, A, encode(plan, A))


def test_six_by_four_on_24_tiles():
    A = draw(120, 100, (1, 1), 0.3)
    plan = hand_plan(A, 6, (6, 4, 1), tiles=24)
    check_passes(plan, A, encode(plan, A))


def test_kernel_blocks_smaller_than_the_matrix_blocks():
    A = draw(96, 64, (16, 16), 0.3)
    plan = hand_plan(A, 12, (2, 2, 3), kernel=(8, 8))
    check_passes(plan, A, encode(plan, A))


def test_blocks_that_are_not_square():
    A = draw(96, 64, (4, 8), 0.3)
    plan = hand_plan(A, 12, (2, 2, 3))
    check_passes(plan, A, encode(plan, A))


@pytest.mark.parametrize("side", [1, 4])
@pytest.mark.parametrize("n", [1, 7])
def test_odd_n_and_short_parts(side, n):
    A = draw(28, 44, (side, side), 0.4)
    plan = hand_plan(A, n, (3, 4, 2), tiles=25)
    check_passes(plan, A, encode(plan, A))


@pytest.mark.parametrize("side", [1, 4])
def test_one_tile(side):
    A = draw(24, 16, (side, side), 0.5)
    plan = hand_plan(A, 6, (1, 1, 1))
    profiles = check_passes(plan, A, encode(plan, A))
    names = {phase.name for profile in profiles.values() for phase in profile.phases}
    assert not any(name.startswith(("Propagation", "Exchange")) for name in names)


@pytest.mark.parametrize("side", [1, 8])
def test_no_non_zeros(side):
    A = draw(48, 32, (side, side), 0.0)
    assert A.nnzb == 0
    plan = hand_plan(A, 8, (2, 2, 2))
    check_passes(plan, A, encode(plan, A))


def test_empty_rows_and_columns_give_zeros():
    W = torch.zeros(32, 40)
    W[3, 5:30] = torch.arange(1.0, 26.0)
    W[20, ::7] = 1.0
    A = BSR.from_dense(W, 1)
    plan = hand_plan(A, 4, (4, 2, 2), tiles=18)
    check_passes(plan, A, encode(plan, A))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_plan_with_subgroups_anywhere(data):
    side = data.draw(st.sampled_from([1, 1, 4, 8]), "side")
    x, y, z = (data.draw(st.integers(1, most)) for most in (5, 4, 3))
    rows, columns = data.draw(st.integers(1, 12), "rows"), data.draw(st.integers(1, 12), "columns")
    scale = 3 if side == 1 else 1
    dtype = data.draw(st.sampled_from([F16, F32]), "dtype")
    density = data.draw(st.sampled_from([0.05, 0.3, 1.0]), "density")
    seed = data.draw(st.integers(0, 99), "seed")
    A = draw(rows * scale * side, columns * scale * side, (side, side), density, dtype, seed)
    plan = hand_plan(
        A,
        data.draw(st.integers(1, 17), "n"),
        (x, y, z),
        tiles=data.draw(st.integers(max(4, x * y * z), 64), "tiles"),
        amp=data.draw(st.booleans(), "amp"),
        exchange_buckets=data.draw(st.booleans(), "exchange_buckets"),
        shared_buckets=data.draw(st.booleans(), "shared"),
        slack=A.nnzb,
        partials="float32" if side == 1 or dtype is F32 else "float16",
    )
    encoded = moved(plan, A, seed)
    for profile in check_passes(plan, A, encoded).values():
        assert times(profile, "Propagation compute") == propagation_steps(encoded)


@pytest.mark.parametrize(("side", "partials"), [(1, "float32"), (4, "float16"), (16, "float16")])
def test_signs_are_summed_exactly(side, partials):
    A = draw(96, 64, (side, side), 0.3, F16)
    A = BSR(A.values.sign(), A.pattern)
    plan = hand_plan(A, 32, (3, 2, 2), slack=A.nnzb, partials=partials, amp=side == 16)
    encoded = moved(plan, A, 5)
    x, dy = (operand.sign() for operand in dense_operands(plan))
    W = A.to_dense().double()
    y, _ = run_dynamic(plan, encoded, x)
    assert torch.equal(y.double(), W @ x.double())
    dx, _ = run_dynamic(plan, encoded, dy, pass_="grad_a")
    assert torch.equal(dx.double(), W.T @ dy.double())
    values, _ = run_dynamic(plan, encoded, dy, x, pass_="grad_w")
    exact = BSR.from_dense(dy.double() @ x.double().T, A.blocksize, pattern=A.pattern).values
    assert torch.equal(decode_values(encoded, values.numpy()).double(), exact)
