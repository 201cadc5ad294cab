"""The words of buckets are those of the layout, and a vertex that reads them computes products."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile import BSR
from sparsetile.plan.dynamic import (
    decode_values,
    encode,
    scan,
    scan_grad_w_workers,
    scan_workers,
)
from support_dynamic_plan import PlainVertex, draw, make_plan


def dense(entries):
    """A matrix of 4×4 with these elements."""
    w = torch.zeros(4, 4)
    for (row, column), value in entries.items():
        w[row, column] = value
    return w


def test_words_of_elements():
    # Two rows of three and one non-zeros in part (0, 1) of 1×2; four columns of S: two grains.
    A = BSR.from_dense(dense({(1, 2): 5.0, (1, 3): 6.0, (3, 2): 7.0}), blocksize=1)
    plan = make_plan((4, 4), 4, (1, 1), 0.5, (1, 2, 1), workers=4, grad_w=True)
    encoded = encode(plan, A)
    assert encoded.meta_buckets[0, 0] == 0
    words = encoded.meta_buckets[1].tolist()
    # Grid of 2 rows × 2 grains, a piece for each of 4 workers.
    header = [2, 0, 1, 3, 9 + 20 + 1 + 12 + 4 + 3, 4, 1, 42, 4]
    workers = [0, 2, 0, 0, 20 + 13, 0, 2, 2, 0, 15 + 13, 2, 2, 0, 0, 10 + 17, 2, 2, 2, 0, 5 + 17]
    grad_w = [3, 0, 12, 0, 1, 1, 8, 1, 1, 2, 8, 0, 1]
    rows = [1, 2, 0, 16, 3, 1, 0]
    assert words[:50] == [*header, *workers, *grad_w, *rows, 0]
    assert encoded.value_buckets[1, :4].tolist() == [5.0, 6.0, 7.0, 0.0]


def test_words_of_the_gradient_of_the_input():
    A = BSR.from_dense(dense({(1, 2): 5.0, (1, 3): 6.0, (3, 2): 7.0}), blocksize=1)
    plan = make_plan((4, 4), 4, (1, 1), 0.5, (1, 2, 1), workers=1, shared_buckets=False)
    words = encode(plan, A).meta_buckets_grad_a[1].tolist()
    header = [2, 0, 1, 3, 9 + 5 + 4 + 6, 4, 1, 14, 1]
    # Column by column: the value to gather, then four bytes times four columns for each row.
    columns = [0, 2, 0, 1 * 16, 2, 3 * 16, 1, 1, 1, 1 * 16]
    assert words[:25] == [*header, 0, 4, 0, 1, 5, *columns, 0]


def test_words_of_blocks():
    w = torch.zeros(8, 8)
    w[2:4, 0:4], w[2:4, 4:8], w[6:8, 4:8] = 1.0, 2.0, 3.0
    A = BSR.from_dense(w, blocksize=(2, 4))
    plan = make_plan((8, 8), 3, (2, 4), 0.5, (2, 1, 1), workers=2, grad_w=True)
    encoded = encode(plan, A)
    header, grad_w = [1, 0, 0, 16, 7 + 8 + 4, 0, 2], [0, 8, 0, 1, 1, 4, 1, 1]
    assert encoded.meta_buckets[0, :20].tolist() == [*header, *grad_w, 2, 1, 0, 4, 0]
    header, grad_w = [2, 1, 0, 8, 7 + 4 + 3, 0, 1], [0, 4, 0, 1]
    assert encoded.meta_buckets[1, :15].tolist() == [*header, *grad_w, 2, 0, 4, 0]
    assert encoded.value_buckets[:, :9].tolist() == [[1.0] * 8 + [2.0], [3.0] * 8 + [0.0]]


def check_products(plan, A):
    encoded = encode(plan, A)
    rng = np.random.default_rng(0)
    grain = 4 if plan.dtype == "float16" else 2
    columns = -(-plan.z_size // grain) * grain
    S, Q = rng.standard_normal((plan.k, columns)), rng.standard_normal((plan.m, columns))
    W = A.to_dense().double().numpy()
    buckets = [PlainVertex(encoded, t) for t in range(plan.tiles)]
    got = sum(v.blocks(S) if v.block else v.elements(S) for v in buckets)
    np.testing.assert_allclose(got, W @ S, atol=1e-9)
    if plan.bucket_meta_grad_a:
        own = (PlainVertex(encoded, t, "grad_a") for t in range(plan.tiles))
        np.testing.assert_allclose(sum(v.elements(Q) for v in own), W.T @ Q, atol=1e-9)
    if plan.options.grad_w:
        found = np.stack([v.weight_gradient(S, Q) for v in buckets])
        got = BSR(decode_values(encoded, found), A.pattern).to_dense().numpy()
        np.testing.assert_allclose(got, (Q @ S.T) * A.pattern.to_mask().numpy(), atol=1e-9)
    return encoded


@pytest.mark.parametrize("options", [{}, {"grad_w": True}, {"shared_buckets": False}])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_vertex_multiplies_elements(dtype, options):
    plan = make_plan((40, 60), 8, (1, 1), 0.3, (2, 3, 2), dtype=dtype, oversize=0.5, **options)
    check_products(plan, draw(plan, 0.3))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("blocksize", "kernel"),
    [((4, 4), (4, 4)), ((8, 8), (4, 4)), ((4, 2), (4, 2)), ((2, 6), (1, 2))],
)
def test_a_vertex_multiplies_blocks(dtype, blocksize, kernel):
    plan = make_plan(
        (32, 48),
        8,
        blocksize,
        0.3,
        (2, 2, 2),
        kernel=kernel,
        dtype=dtype,
        grad_w=True,
        oversize=0.6,
    )
    check_products(plan, draw(plan, 0.3))


@given(
    m=st.integers(1, 40),
    k=st.integers(1, 30),
    n=st.integers(1, 9),
    cut=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    workers=st.integers(1, 7),
    dtype=st.sampled_from(["float16", "float32"]),
    density=st.floats(0.01, 1.0),
    force=st.booleans(),
    own=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_any_plan_of_elements(m, k, n, cut, workers, dtype, density, force, own):
    options = {"oversize": 8.0, "grad_w": not own, "shared_buckets": not own}
    plan = make_plan(
        (m, k),
        n,
        (1, 1),
        density,
        cut,
        dtype=dtype,
        workers=workers,
        changes={"bucket_meta": 2000, "bucket_meta_grad_a": 3000 * own},
        force_spills=force,
        **options,
    )
    encoded = check_products(plan, draw(plan, density))
    found = scan(encoded.meta_buckets, plan)
    # Each worker's rows and columns of the dense operand, all workers together: all of them once.
    of = scan_workers(encoded.meta_buckets, plan, entries=found)
    work = np.bincount(of.subgroup, of.count * of.z_size, minlength=len(found.count))
    grain = 4 if dtype == "float16" else 2
    np.testing.assert_array_equal(work, found.count * -(-plan.z_size // grain) * grain)
    if own:
        more = scan_workers(encoded.meta_buckets_grad_a, plan, "grad_a")
        np.testing.assert_array_equal(np.unique(more.subgroup), np.arange(len(found.count)))
    else:
        shares = scan_grad_w_workers(encoded.meta_buckets, plan, found)
        order = np.argsort(shares.block)
        assert (
            shares.block[order].tolist()
            == (np.cumsum(shares.count[order]) - shares.count[order]).tolist()
        )


def test_rows_are_shared_by_their_non_zeros():
    # 13 rows, more than two a worker: the full row is one worker's, the others share the rest.
    w = torch.eye(16)[:13]
    w[0] = 1.0
    A = BSR.from_dense(w, blocksize=1)
    plan = make_plan((13, 16), 4, (1, 1), 1.0, (1, 1, 1))
    encoded = encode(plan, A)
    found = scan_workers(encoded.meta_buckets, plan)
    # 28 non-zeros, 5 for each: row 0 has more than the goals of the first three workers.
    assert found.rows.tolist() == [5, 5, 3]
    assert found.count.tolist() == [20, 5, 3]
    assert found.z_size.tolist() == [4, 4, 4]


def test_scanning_other_buckets_in_another_order():
    plan = make_plan((20, 20), 4, (1, 1), 0.3, (2, 2, 1), oversize=0.5)
    encoded = encode(plan, draw(plan, 0.3))
    order = [3, 0, 2, 1, 0]
    found, moved = (scan(encoded.meta_buckets[rows], plan) for rows in ([0, 1, 2, 3], order))
    for bucket, source in enumerate(order):
        mine = found.w_row[found.bucket[found.subgroup] == source]
        assert moved.w_row[moved.bucket[moved.subgroup] == bucket].tolist() == mine.tolist()
