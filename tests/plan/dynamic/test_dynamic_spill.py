"""What does not fit in a bucket spills, near first, whole rows first, or is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sparsetile import BSR, Pattern
from sparsetile.plan.dynamic import decode, encode, scan, steps
from support_dynamic_plan import draw, make_plan, same


def plan_of(shape, cut, values, meta=400, **options):
    """A plan of single elements whose buckets hold so many values and words."""
    changes = {"bucket_values": values, "bucket_meta": meta, "max_blocks": 10_000}
    return make_plan(shape, 4, (1, 1), 0.1, cut, workers=1, changes=changes, **options)


def stored(encoded):
    """What each bucket holds, subgroup by subgroup: row and columns of each row."""
    found = scan(encoded.meta_buckets, encoded.plan)
    buckets = {}
    for s, bucket in enumerate(found.bucket):
        blocks = range(found.first[s], found.first[s] + found.count[s])
        places = [(int(found.w_row[i]), int(found.w_column[i])) for i in blocks]
        buckets.setdefault(int(bucket), []).append(places)
    return buckets


def matrix(rows, shape):
    """Ones: so many at the start of each row."""
    w = torch.zeros(shape)
    for row, count in enumerate(rows):
        w[row, :count] = 1.0
    return BSR.from_dense(w, blocksize=1)


def row(i, begin, end):
    return [(i, j) for j in range(begin, end)]


def test_non_zeros_of_a_part_are_dealt_evenly_to_its_tiles():
    encoded = encode(plan_of((2, 8), (1, 1, 3), 8), matrix([4, 4], (2, 8)))
    first, second, third = row(0, 0, 2), [*row(0, 2, 4), *row(1, 0, 1)], row(1, 1, 4)
    assert stored(encoded) == {0: [first], 1: [second], 2: [third]}


def test_whole_rows_move_from_the_end():
    # All in part (0, 0); three buckets beside it, of which the last in order is the nearest.
    A = matrix([3, 3, 2, 1], (8, 16))
    encoded = encode(plan_of((8, 16), (1, 4, 1), 6), A)
    assert stored(encoded) == {0: [row(0, 0, 3) + row(1, 0, 3)], 3: [row(2, 0, 2) + row(3, 0, 1)]}
    assert steps(encoded) == (1, 2, 1)
    assert same(decode(encoded), A)


def test_rows_are_split_where_whole_rows_do_not_fit():
    A = matrix([4, 4, 4], (8, 16))
    encoded = encode(plan_of((8, 16), (1, 2, 1), 6), A)
    # Rows 1 and 2 leave. The bucket they came from is the nearest that takes a part of a row.
    assert stored(encoded) == {
        0: [row(0, 0, 4), row(2, 2, 4)],
        1: [row(1, 0, 4) + row(2, 0, 2)],
    }
    assert same(decode(encoded), A)


def test_a_row_longer_than_a_bucket_is_split():
    A = matrix([14], (4, 16))
    encoded = encode(plan_of((4, 16), (1, 1, 1), 16), A)
    assert stored(encoded) == {0: [row(0, 0, 14)]}
    encoded = encode(plan_of((4, 32), (2, 2, 1), 5), A := matrix([14], (4, 32)))
    assert sorted(len(places) for part in stored(encoded).values() for places in part) == [4, 5, 5]
    assert same(decode(encoded), A)


def test_the_part_itself_is_filled_before_its_rows_and_those_before_all():
    # Part (1, 1) of 2×2 shared by two tiles is too full; which bucket takes it depends on room.
    w = torch.zeros(8, 8)
    w[4:8, 4:8] = 1.0
    A, (z, y, x) = BSR.from_dense(w, blocksize=1), (2, 2, 2)
    for values, home_only, ends in ((8, True, (1, 1, 2)), (6, False, (1, 2, 2)), (3, False, None)):
        encoded = encode(plan_of((8, 8), (x, y, z), values), A)
        found = scan(encoded.meta_buckets, encoded.plan)
        assert (set(found.bucket // (x * z)) == {1}) == home_only
        assert steps(encoded) == ends or ends is None
        assert (found.bucket % x == 1).all() == (values > 3)
    assert steps(encoded) == (2, 2, 2)
    assert encoded.distances.tolist() == [True, True]


def test_meta_information_alone_makes_a_bucket_spill():
    A = matrix([1] * 8, (8, 16))
    fixed = 9 + 5
    encoded = encode(plan_of((8, 16), (1, 2, 1), 100, meta=fixed + 3 * 5 + 1), A)
    assert [len(places) for part in stored(encoded).values() for places in part] == [5, 3]
    # One word less, and the end mark would have no room.
    encoded = encode(plan_of((8, 16), (1, 2, 1), 100, meta=fixed + 3 * 5), A)
    assert [len(places) for part in stored(encoded).values() for places in part] == [4, 4]


def test_nearest_or_emptiest_bucket_first():
    # Rows 0 to 3 are in part 0, rows 4 to 7 in part 1 and so on; buckets of part 3 are emptiest.
    w = torch.zeros(16, 4)
    w[0:4], w[4:6], w[8:9, :2], w[12, 0] = 1.0, 1.0, 1.0, 1.0
    A = BSR.from_dense(w, blocksize=1)
    near = encode(plan_of((16, 4), (4, 1, 1), 12), A)
    assert steps(near) == (2, 1, 1)
    assert near.distances.tolist() == [True, True, False, False]
    w[12:15] = 1.0
    A = BSR.from_dense(w, blocksize=1)
    far = encode(plan_of((16, 4), (4, 1, 1), 14, optimise_for_speed=False), A)
    # Bucket 2 holds least; from there to part 0 it is two steps around.
    assert steps(far) == (3, 1, 1)
    assert far.distances.tolist() == [True, False, True, False]
    assert same(decode(far), A)


@pytest.mark.parametrize(
    ("cut", "ends"),
    [
        ((3, 4, 2), (3, 4, 2)),
        ((1, 4, 2), (1, 4, 2)),
        ((3, 1, 1), (3, 1, 1)),
        ((1, 1, 3), (1, 1, 3)),
        ((1, 1, 1), (1, 1, 1)),
    ],
)
def test_forced_spills_go_as_far_as_possible(cut, ends):
    plan = make_plan((60, 60), 12, (1, 1), 0.2, cut, oversize=1.0, force_spills=True)
    A = draw(plan, 0.2)
    encoded = encode(plan, A)
    assert steps(encoded) == ends
    assert np.flatnonzero(encoded.distances).tolist() == [cut[0] - 1]
    assert same(decode(encoded), A)


def test_a_balanced_pattern_needs_no_propagation():
    plan = make_plan((60, 60), 12, (1, 1), 0.25, (3, 2, 2))
    w = torch.zeros(60, 60)
    w[::2, ::2] = 1.0
    encoded = encode(plan, BSR.from_dense(w, blocksize=1))
    assert steps(encoded) == (1, 1, 2)
    assert encoded.distances.tolist() == [True, False, False]
    assert encoded.overflow_set.tolist() == [1, 0]


@pytest.mark.parametrize("fast", [True, False])
def test_an_imbalanced_pattern_spills_and_comes_back(fast):
    # A stripe of rows and columns eight times as dense as the rest.
    generator = torch.Generator().manual_seed(0)
    weight = torch.full((256, 256), 0.05)
    weight[96:100, 32:196] = 0.4
    w = (torch.rand(256, 256, generator=generator) < weight) * torch.randn(256, 256)
    A = BSR.from_dense(w, blocksize=1)
    density = A.nnzb / 256**2
    options = {"oversize": 0.1, "optimise_for_speed": fast}
    plan = make_plan((256, 256), 8, (1, 1), density, (8, 4, 1), **options)
    encoded = encode(plan, A)
    x, y, z = steps(encoded)
    assert x * y * z > z
    assert same(decode(encoded), A)
    # The least that the option allows, and all dimensions spill.
    tight = make_plan((256, 256), 8, (1, 1), density, (8, 4, 1), oversize=0.005)
    tight = replace(tight, bucket_meta=2 * tight.bucket_meta)
    encoded = encode(tight, A)
    assert steps(encoded)[0] > 1
    assert same(decode(encoded), A)


def test_blocks_spill_too():
    plan = make_plan((64, 64), 8, (4, 4), 0.25, (4, 2, 2), oversize=0.001)
    plan = replace(plan, bucket_meta=100)
    crow = [min(8 * i, 64) for i in range(17)]
    A = BSR(torch.randn(64, 4, 4), Pattern((64, 64), 4, crow, list(range(8)) * 8))
    encoded = encode(plan, A)
    assert steps(encoded) == (4, 2, 2)
    assert same(decode(encoded), A)


def test_overflow_says_by_how_much_and_what_to_raise():
    plan = plan_of((8, 16), (1, 2, 1), 10, oversize=0.25)
    with pytest.raises(ValueError, match="Overflow in buckets") as error:
        encode(plan, matrix([4] * 6, (8, 16)))
    assert "4 of 24 blocks" in str(error.value)
    assert "10 blocks and 399 words in each of 2 buckets" in str(error.value)
    assert "oversize than 0.25, as 0.51" in str(error.value)
    full = plan_of((8, 16), (1, 2, 1), 100, meta=30, oversize=0.25)
    with pytest.raises(ValueError, match="Overflow in buckets"):
        encode(full, matrix([4] * 6, (8, 16)))


@pytest.mark.parametrize(("room", "sizes"), [(20, [7]), (19, [6, 1]), (17, [3, 4])])
def test_words_of_the_gradient_alone_make_a_bucket_spill(room, sizes):
    # Two words for each column and for each non-zero, behind the 14 of a subgroup, and an end mark.
    A = matrix([3, 3, 1], (8, 16))
    plan = replace(plan_of((8, 16), (1, 2, 1), 100), bucket_meta_grad_a=14 + room + 1)
    encoded = encode(plan, A)
    found = stored(encoded)
    assert [sum(map(len, found[bucket])) for bucket in sorted(found)] == sizes
    assert same(decode(encoded), A)
    transposed = scan(encoded.meta_buckets_grad_a, plan, "grad_a")
    assert len(transposed.w_row) == A.nnzb


def test_a_corner_spills_by_the_words_of_the_gradient():
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        w = torch.zeros(83, 16)
        w[:20, :8] = (torch.rand(20, 8, generator=generator) < 0.8).float()
        A = BSR.from_dense(w, blocksize=1)
        plan = plan_of((84, 16), (4, 2, 1), 60, meta=14 + 2 * 60)
        plan = replace(plan, m=83, bucket_meta_grad_a=14 * 3 + 110)
        assert same(decode(encode(plan, A)), A)
