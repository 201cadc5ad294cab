"""What is encoded comes back exactly: pattern, values, and gradients laid out like values."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile import BSR, Pattern
from sparsetile.plan.dynamic import (
    decode,
    decode_values,
    encode,
    scan,
    steps,
    to_coo,
    to_csc,
    to_csr,
)
from support_dynamic_plan import draw, make_plan, same


@pytest.mark.parametrize("oversize", [0.1, 0.001])
@pytest.mark.parametrize("density", [0.1, 0.05])
@pytest.mark.parametrize("side", [1, 4])
@pytest.mark.parametrize(("size", "n"), [(100, 8), (1000, 16)])
def test_round_trip_through_every_cut(size, n, side, density, oversize):
    for cut in itertools.product((2, 7), (2, 7), (2, 4)):
        plan = make_plan((size, size), n, (side, side), density, cut, oversize=oversize)
        if oversize < 0.01:
            # What spills makes subgroups of its own: more than the two that are planned for.
            plan = replace(plan, bucket_meta=2 * plan.bucket_meta)
        A = draw(plan, density, seed=sum(cut))
        encoded = encode(plan, A)
        assert same(decode(encoded), A)
        grads = decode_values(encoded, 3 * encoded.value_buckets)
        assert torch.equal(grads, 3 * A.values)
        assert (np.count_nonzero(encoded.values)) == np.count_nonzero(A.values.numpy())


@pytest.mark.parametrize("options", [{"shared_buckets": False}, {"force_spills": True}])
def test_round_trip_with_options(options):
    plan = make_plan((100, 100), 8, (1, 1), 0.1, (2, 7, 2), dtype="float16", **options)
    A = draw(plan, 0.1)
    encoded = encode(plan, A)
    assert same(decode(encoded), A)
    for got in (to_coo(encoded), to_csr(encoded), to_csc(encoded)):
        assert same(got.to_bsr(), A)
        again = encode(plan, got)
        assert np.array_equal(again.meta, encoded.meta)
        assert np.array_equal(again.values, encoded.values)


@pytest.mark.parametrize(
    ("blocksize", "kernel"),
    [((16, 16), (8, 8)), ((32, 32), (16, 16)), ((8, 4), (8, 4)), ((4, 12), (2, 3))],
)
def test_blocks_are_shrunk_to_the_kernel_and_grown_again(blocksize, kernel):
    plan = make_plan((96, 192), 4, blocksize, 0.3, (3, 2, 2), kernel=kernel, oversize=0.5)
    A = draw(plan, 0.3)
    encoded = encode(plan, A)
    assert same(decode(encoded), A)
    found = scan(encoded.meta_buckets, plan)
    area = blocksize[0] * blocksize[1] // (kernel[0] * kernel[1])
    assert len(found.value) == A.nnzb * area
    dense, (r, c) = A.to_dense(), kernel
    for i in range(0, len(found.value), 7):
        bucket, at = found.bucket[found.subgroup[i]], found.value[i]
        row, column = found.w_row[i] * r, found.w_column[i] * c
        block = torch.from_numpy(encoded.value_buckets[bucket, at : at + r * c]).view(r, c)
        assert torch.equal(block, dense[row : row + r, column : column + c])


@pytest.mark.parametrize("cut", [(1, 1, 1), (2, 3, 2)])
@pytest.mark.parametrize("side", [1, 4])
def test_empty_and_full(side, cut):
    plan = make_plan((24, 24), 4, (side, side), 1.0, cut)
    blocks = 24 // side
    full = draw(plan, 1.0)
    empty = BSR(torch.zeros(0, side, side), Pattern((24, 24), side, [0] * (blocks + 1), []))
    for A in (full, empty):
        encoded = encode(plan, A)
        assert same(decode(encoded), A)
        assert steps(encoded) == (1, 1, cut[2])
        assert decode_values(encoded, encoded.values).shape == A.values.shape
        assert to_csr(encoded).nnzb == A.nnzb
    assert not encoded.meta_buckets.any()
    assert not encoded.values.any()


def test_more_partitions_than_blocks():
    plan = make_plan((3, 5), 2, (1, 1), 0.8, (4, 7, 1), oversize=3.0)
    A = draw(plan, 0.8)
    assert same(decode(encode(plan, A)), A)


def test_values_are_rounded_once_to_the_plans_dtype():
    plan = make_plan((20, 20), 4, (1, 1), 0.3, (2, 2, 1), dtype="float16", oversize=0.5)
    A = BSR.random(20, 20, blocksize=1, density=0.3, seed=0, dtype=torch.float64)
    A.requires_grad_()
    encoded = encode(plan, A)
    assert encoded.values.dtype == np.float16
    assert same(decode(encoded), A.detach().half())
    assert same(decode(encode(plan, A.bfloat16())), A.detach().bfloat16().half())


def test_decoding_copies():
    plan = make_plan((20, 20), 4, (1, 1), 0.3, (2, 2, 1), oversize=0.5)
    A = draw(plan, 0.3)
    encoded = encode(plan, A)
    decode(encoded).values.zero_()
    assert same(decode(encoded), A)


@given(
    grid=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    blocksize=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
    n=st.integers(1, 9),
    cut=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)),
    density=st.floats(0.01, 1.0),
    fast=st.booleans(),
    force=st.booleans(),
    seed=st.integers(0, 9),
)
@settings(max_examples=40, deadline=None)
def test_any_plan_comes_back(grid, blocksize, n, cut, density, fast, force, seed):
    shape = grid[0] * blocksize[0], grid[1] * blocksize[1]
    options = {"optimise_for_speed": fast, "force_spills": force, "oversize": 0.2}
    plan = make_plan(
        shape, n, blocksize, density, cut, changes={"bucket_meta": 3000}, grad_w=fast, **options
    )
    A = draw(plan, density, seed)
    encoded = encode(plan, A)
    assert same(decode(encoded), A)
    found = scan(encoded.meta_buckets, plan)
    tile = found.bucket
    at = tile % plan.x, tile // (plan.x * plan.z)
    x, y = (found.ix - at[0]) % plan.x, (found.iy - at[1]) % plan.y
    ends = steps(encoded)
    assert (ends[0], ends[2]) == (1 + x.max(initial=0), plan.z)
    assert ends[1] == (plan.y if ends[0] > 1 else 1 + y.max(initial=0))
    assert np.flatnonzero(encoded.distances).tolist() == np.unique(x).tolist()
