"""Malformed input and corrupt words are refused, with what to do."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile import BSR
from sparsetile.plan.dynamic import (
    Encoded,
    decode,
    decode_values,
    encode,
    scan,
    scan_grad_w_workers,
    scan_workers,
    steps,
)
from sparsetile.plan.dynamic._overflow import overflow_info
from support_dynamic_plan import draw, make_plan


def small(**options):
    plan = make_plan((24, 24), 4, (1, 1), 0.3, (2, 2, 1), oversize=0.5, **options)
    return plan, draw(plan, 0.3)


@pytest.mark.parametrize(
    ("shape", "blocksize", "allowed"),
    [
        ((24, 20), 4, "24×24 in whole blocks of 4×4"),
        ((20, 24), 4, "24×24 in whole blocks of 4×4"),
        ((24, 24), 2, "24×24 in whole blocks of 4×4"),
        ((24, 24), 8, "24×24 in whole blocks of 4×4"),
        ((24, 24), (4, 2), "24×24 in whole blocks of 4×4"),
    ],
)
def test_another_shape_or_blocksize(shape, blocksize, allowed):
    plan = make_plan((24, 24), 4, (4, 4), 0.5, (2, 2, 1))
    A = BSR.random(*shape, blocksize=blocksize, density=0.2, seed=0)
    with pytest.raises(ValueError, match=allowed):
        encode(plan, A)


def test_ragged_blocks():
    plan = make_plan((24, 24), 4, (4, 4), 0.5, (2, 2, 1))
    A = BSR.random(22, 24, blocksize=4, density=0.2, seed=0)
    with pytest.raises(ValueError, match="24×24 in whole blocks"):
        encode(plan, A)


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({"kernel_block": (3, 4)}, "blocks of 3×4 cut from blocks of 4×4"),
        ({"m": 22}, "blocks of 4×4 in 22×24"),
        ({"x_size": 14}, "partitions of 14×12"),
        ({"x_size": 8}, "2 partitions of 8 rows"),
        ({"y_size": 8}, "2 partitions of 8 columns"),
        ({"z_size": 3}, "1 partitions of 3 of the batch"),
        ({"bucket_values": 17}, "buckets of 17 values"),
        ({"bucket_meta": 0}, "buckets of 0 words"),
        ({"bucket_meta_grad_a": 40}, "words of blocks for the gradient of the input"),
    ],
)
def test_a_plan_that_contradicts_itself(changes, given):
    plan = make_plan((24, 24), 4, (4, 4), 0.5, (2, 2, 1))
    A = draw(plan, 0.2)
    with pytest.raises(ValueError, match=f"plan: got {given}; .*let the planner"):
        encode(replace(plan, **changes), A)


def test_loops_that_the_plan_cannot_have():
    plan, A = small()
    encoded = encode(plan, A)
    for ends in ((0, 1, 1), (3, 1, 1), (1, 3, 1), (1, 1, 2)):
        meta = encoded.meta.copy()
        meta[:3] = ends
        changed = replace(encoded, meta=meta)
        assert f"steps {ends[0]}×{ends[1]}×{ends[2]}" in repr(changed)
        with pytest.raises(ValueError, match="corrupt or invalid meta-information"):
            steps(changed)
        with pytest.raises(ValueError, match="corrupt or invalid meta-information"):
            decode(changed)


def test_another_type():
    plan, A = small()
    with pytest.raises(TypeError, match="BSR"):
        encode(plan, A.to_dense())


def test_more_blocks_than_planned():
    plan, _ = small()
    with pytest.raises(ValueError, match=r"174 blocks of 1×1 .* at most 173, .* higher density"):
        encode(plan, draw(plan, 0.302))


def test_an_element_beyond_16_bits():
    # (y_size - 1)·n·4 bytes is the largest offset.
    A = BSR.from_dense(torch.ones(1, 65), blocksize=1)
    plan = make_plan((1, 65), 256, (1, 1), 1.0, (1, 1, 1))
    with pytest.raises(ValueError, match=r"65536 as an element .* 16 bits; .* more partitions"):
        encode(plan, A)
    fits = make_plan((1, 64), 256, (1, 1), 1.0, (1, 1, 1))
    assert decode(encode(fits, BSR.from_dense(torch.ones(1, 64), blocksize=1))).nnzb == 64
    # Values of a subgroup are counted too: 256 blocks of 16×16 are one too many.
    blocks = make_plan((16, 4096), 4, (16, 16), 1.0, (1, 1, 1))
    with pytest.raises(ValueError, match="65536 as an element"):
        encode(blocks, BSR.from_dense(torch.ones(16, 4096), blocksize=16))


def test_too_small_for_the_gradient_of_the_input():
    plan, A = small(shared_buckets=False)
    with pytest.raises(ValueError, match=r"gradient of the input .* oversize above 0.5, or"):
        encode(replace(plan, bucket_meta_grad_a=90), A)


def test_arrays_of_another_plan():
    plan, A = small()
    encoded = encode(plan, A)
    with pytest.raises(ValueError, match="meta: got an array of shape"):
        Encoded(plan, encoded.meta[1:].copy(), encoded.values)
    with pytest.raises(ValueError, match="values: got an array of shape"):
        Encoded(plan, encoded.meta, encoded.values[1:].copy())
    with pytest.raises(ValueError, match=f"values: got 3 values; allowed: {encoded.values.size}"):
        decode_values(encoded, np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="words in a bucket"):
        scan(encoded.meta_buckets[:, 1:], plan)
    with pytest.raises(ValueError, match="shared buckets have no words for grad_a"):
        scan(encoded.meta_buckets_grad_a, plan, "grad_a")


FAULTS = {
    "no such partition": {0: 99},
    "no such partition as": {1: 0},
    "counts do not fill": {3: -1},
    "no next subgroup": {4: 3},
    "no next subgroup where": {4: 60_000},
    "another dense operand": {5: 8},
    "counts do not fill their": {6: -1},
    "rows do not follow": {7: -1},
    "too many workers": {8: 7},
    "a row outside": {"row": 24},
    "rows of a subgroup that do not ascend": {"row": 11},
    "rows reach over the end": {"size": 1000},
    "a row without": {"size": 0},
    "a column outside": {"column": 12 * 16},
    "a column outside its": {"column": 3},
    "columns of a row that do not ascend": {"column": 11 * 16},
}


@pytest.mark.parametrize("which", ["fwd", "grad_a"])
@pytest.mark.parametrize("wrong", FAULTS)
def test_each_fault_is_named(which, wrong):
    plan = make_plan(
        (24, 24), 4, (1, 1), 1.0, (2, 2, 1), oversize=0.5, shared_buckets=False, workers=6
    )
    encoded = encode(plan, draw(plan, 1.0))
    buckets = encoded.meta_buckets if which == "fwd" else encoded.meta_buckets_grad_a
    words = buckets[1].copy().astype(np.int64)
    row = words[7]
    places = {"row": row, "size": row + 1, "column": row + 2 + (which == "grad_a")}
    for place, value in FAULTS[wrong].items():
        at = places.get(place, place)
        words[at] = value if value >= 0 else words[at] + value
    meta = buckets.copy()
    meta[1] = words
    with pytest.raises(ValueError, match="corrupt or invalid meta-information") as error:
        scan(meta, plan, which)
    # A wrong size is noticed where the next row is looked for: as whatever stands there.
    assert "size" in FAULTS[wrong] or wrong in str(error.value)


def test_a_bucket_without_an_end():
    plan, A = small()
    meta = np.ones_like(encode(plan, A).meta_buckets)
    with pytest.raises(ValueError, match="corrupt or invalid"):
        scan(meta, plan)
    plan = replace(plan, bucket_meta=9)
    with pytest.raises(ValueError, match="over the end of its bucket"):
        scan(np.ones((4, 9), np.uint16), plan)


def test_contradictions_between_buckets():
    plan, A = small()
    encoded = encode(plan, A)
    meta = encoded.meta.copy()
    meta[0] = 2
    with pytest.raises(ValueError, match="distances of what has spilled"):
        decode(replace(encoded, meta=meta))
    meta = encoded.meta.copy()
    words = meta[4:].reshape(4, -1)
    # Tile 1 has x = 1; give it what tile 0 has.
    words[1] = words[0]
    meta[:4] = 2, 2, 1, 3
    with pytest.raises(ValueError, match="stored twice"):
        decode(replace(encoded, meta=meta))


def test_a_block_of_which_a_part_is_missing():
    # The second of two tiles begins inside a row of blocks, and is emptied.
    plan = make_plan((24, 24), 4, (4, 4), 1.0, (1, 1, 2), kernel=(2, 1), oversize=0.5)
    encoded = encode(plan, draw(plan, 0.9))
    meta = encoded.meta.copy()
    meta[4 + plan.bucket_meta] = 0
    with pytest.raises(ValueError, match="stored in part"):
        decode(replace(encoded, meta=meta))


@cache
def encoded_once(side):
    plan = make_plan((24, 24), 4, (side, side), 0.3, (2, 2, 1), oversize=0.5, grad_w=True)
    A = draw(plan, 0.3)
    return A, encode(plan, A)


@given(
    place=st.integers(0, 10**6),
    value=st.integers(0, 2**16 - 1),
    side=st.sampled_from([1, 2]),
    small_step=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_any_changed_word_gives_an_error_or_a_matrix(place, value, side, small_step):
    A, encoded = encoded_once(side)
    plan, meta = encoded.plan, encoded.meta.copy()
    place %= len(meta)
    meta[place] = (int(meta[place]) + value % 3) % 2**16 if small_step else value
    changed = replace(encoded, meta=meta)
    try:
        B = decode(changed)
        found = scan(changed.meta_buckets, plan)
        scan_workers(changed.meta_buckets, plan, entries=found)
        scan_grad_w_workers(changed.meta_buckets, plan, found)
    except ValueError as error:
        assert "corrupt or invalid meta-information" in str(error)
    else:
        # It lies behind an end mark, or moved a block or a row, or a zero ended a bucket early.
        assert B.nnzb <= A.nnzb
        if meta[place]:
            assert B.values.sort(0).values.equal(A.values.sort(0).values)


def test_more_partitions_than_16_bits_count():
    plan, _ = small()
    none = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match=r"65536 partitions of one dimension; .* fewer partitions"):
        overflow_info(none, none, none, replace(plan, z=2**16))
