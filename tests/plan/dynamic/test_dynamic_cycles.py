"""Cycles of the vertices are those of the formulas, worked out by hand, and runs count them."""

import math

import numpy as np
import pytest
import torch

from sparsetile.matrix import BSR
from sparsetile.plan.dynamic import _vertex_block as block
from sparsetile.plan.dynamic import _vertex_element as element
from sparsetile.plan.dynamic import _vertex_sum as sums
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._scan import scan
from support_dynamic_run import check_passes, draw, hand_plan, moved

HALF, FLOAT = "float16", "float32"


@pytest.mark.parametrize(
    ("function", "rows", "per_row", "z", "dtype", "cycles"),
    [
        (element.element_forward, 2, 3, 8, HALF, 28 + 2 * (15 + 9)),
        (element.element_forward, 2, 3, 4, HALF, 30 + 2 * (11 + 6)),
        (element.element_forward, 1, 2, 15, HALF, 33 + 12 + (16 + 6) + (13 + 4) + (11 + 12)),
        (element.element_forward, 2, 3, 4, FLOAT, 25 + 2 * (13 + 9)),
        (element.element_forward, 1, 3, 2, FLOAT, 27 + 11 + 6),
        (element.element_forward, 1, 2, 7, FLOAT, 30 + 13 + (12 + 6) + (8 + 12) + (8 + 4) + 3),
        (element.element_forward, 1, 2, 8, FLOAT, 30 + 13 + (12 + 12) + 1),
        (element.element_grad_a, 1, 2, 15, HALF, 32 + 11 + (14 + 6) + (13 + 4) + (10 + 12)),
        (element.element_grad_a, 1, 3, 4, HALF, 28 + 11 + 6),
        (element.element_grad_a, 1, 2, 7, FLOAT, 33 + 13 + (10 + 6) + (8 + 12) + (8 + 4) + 3),
        (element.element_transpose, 2, 7, 8, HALF, 20 + 2 * (18 + 20)),
        (element.element_transpose, 2, 7, 7, HALF, 26 + 2 * (22 + 8 + 2 * (7 + 14))),
        (element.element_transpose, 1, 7, 5, FLOAT, 23 + 24 + 8 + 2 * (8 + 4)),
        (element.element_grad_w, 2, 3, 4, HALF, 32 + 2 * (10 + 12)),
        (element.element_grad_w, 2, 3, 7, HALF, 35 + 2 * (8 + 3 * (11 + 1 + 3 + 4))),
        (element.element_grad_w, 2, 3, 4, FLOAT, 30 + 2 * (9 + 15)),
        (element.element_grad_w, 2, 3, 5, FLOAT, 34 + 2 * (9 + 3 * (9 + 2 + 1))),
    ],
)
def test_elements(function, rows, per_row, z, dtype, cycles):
    assert function(rows, per_row, z, dtype) == cycles
    many = function(np.array([rows, rows]), np.array([per_row] * 2), np.array([z] * 2), dtype)
    assert many.tolist() == [cycles] * 2


def test_supervisors():
    assert element.element_supervisor("Forward", 2, 1, 0.5) == 30 + 64 + 1.5 * 47 + 46
    assert element.element_supervisor("GradA", 2, 3, 0) == 30 + 64 + 3 * (46 + 46)
    assert element.element_supervisor("Transpose", 0, 1, 1) == 30 + 2 * 44 + 68
    assert element.element_supervisor("GradW", 5, 2, 0) == 37 + 38 + 2 * 26
    kind = ((16, 16), HALF, FLOAT)
    found = 40 + 33 * 2 + 1.5 * 46 + 56
    assert block.block_supervisor(2, 1, 0.5, 2, 3, *kind) == found + (3 * (64 + 3 + 24) + 1) * 2 + 2
    kind = ((8, 8), FLOAT, FLOAT)
    load = 3 * (32 + 3 + 12)
    assert block.block_supervisor(0, 0, 0, 2, 3, *kind, True) == 40 + load * 2 + 2


def test_blocks():
    kind = ((8, 8), HALF, FLOAT)
    assert block.block_forward(2, 3, 2, *kind) == 20 + 6 * (23 + 8 - 3)
    assert block.block_forward(2, 3, 2, *kind, True) == 20 + 6 * (23 + 8)
    assert block.block_forward(2, 3, 1, (16, 16), HALF, HALF) == 22 + 6 * (22 + 4 - 3)
    assert block.block_forward(2, 3, 9, (16, 16), HALF, FLOAT) == 23 + 12 * (24 + 36 - 3)
    assert block.block_grad_w(2, 3, 5, (8, 8), FLOAT, FLOAT) == 24 + 2 * (7 + 3 * (208 + 240))
    worker, supervisor = block.block_grad_w_amp(2, 3, 20, (4, 4), HALF, FLOAT)
    assert worker == 5 + 6 * (17 * 2 - 2)
    assert supervisor == 23 + 8 + 2 * (32 + 20 + 3 * (15 + 4 + 2 * (8 + 8)))
    assert block.block_transpose_grad_w(7, 9, 4, FLOAT) == 18 + 6 * (34 + 2 * (3 + 2 * (3 + 24)))
    assert block.transpose_blocks(13, (4, 4), HALF) == 7 + 6 * (37 + 4)
    assert block.transpose_blocks(7, (4, 4), FLOAT) == 7 + 6 * (29 + 2 * (18 + 2 * 12))


def test_sums():
    assert sums.zero_partials(97, HALF, block=False) == 6 * (5 + 10 + 5)
    assert sums.zero_partials(0, HALF, block=True) == 18
    assert sums.zero_partials_planned(97) == 17 * 6
    assert sums.cast(100, HALF, HALF) == (math.ceil(17 / 4) + 26) * 6
    assert sums.reduce(50, 3, FLOAT, FLOAT) == (32 + 2 * (9 + 7) + 6 + 13) * 6
    assert sums.reduce(28, 3, FLOAT, HALF) == (32 + 2 * (9 + 6)) * 6
    assert sums.reduce(83, 2, HALF, HALF) == (32 + 2 * (6 + 8)) * 6
    assert sums.reduce(81, 2, HALF, FLOAT) == (32 + 1 * (6 + 9) + 4 + 11) * 6
    assert element.gather(7, HALF) == 18 + 6 * (23 + 8 + 14 - 5)
    assert element.gather(3, FLOAT) == 18 + 6 * (23 + 5 + 5 - 3)


def phase(profile, name):
    return next(p for p in profile.phases if (p.name, p.kind) == (name, "compute"))


def test_a_tile_of_full_blocks():
    A = draw(16, 24, (8, 8), 1.0)
    plan = hand_plan(A, 20, (1, 1, 1), amp=True)
    profiles = check_passes(plan, A, encode(plan, A))
    kind = ((8, 8), FLOAT, FLOAT)
    for pass_, transposed in (("fwd", False), ("grad_a", True)):
        expected = 6 * block.block_forward(2, 3, 4, *kind, transposed)
        expected += block.block_supervisor(0, 1, 0, 2, 3, *kind, transposed)
        assert phase(profiles[pass_], "Distribution compute").cycles == expected
    worker, supervisor = block.block_grad_w_amp(2, 3, 20, *kind)
    expected = 6 * worker + supervisor + element.element_supervisor("GradW", 0, 1, 0)
    assert phase(profiles["grad_w"], "Distribution compute").cycles == expected


def test_a_tile_of_single_numbers():
    A = draw(12, 7, (1, 1), 1.0)
    plan = hand_plan(A, 4, (1, 1, 1), shared_buckets=False)
    profiles = check_passes(plan, A, encode(plan, A))
    # Six workers with two rows each; the gradient's seven columns are dealt otherwise.
    expected = 6 * element.element_forward(2, 7, 4, FLOAT)
    expected += element.element_supervisor("Forward", 0, 1, 0)
    assert phase(profiles["fwd"], "Distribution compute").cycles == expected
    shared = hand_plan(A, 4, (1, 1, 1))
    profile = check_passes(shared, A, encode(shared, A), ("grad_a",))["grad_a"]
    expected = 6 * element.element_transpose(12, 7, 4, FLOAT)
    expected += element.element_supervisor("Transpose", 0, 1, 0)
    assert phase(profile, "Distribution compute").cycles == expected


def test_foreign_subgroups_cost_a_look():
    A = draw(32, 8, (4, 4), 1.0)
    plan = hand_plan(A, 6, (4, 1, 1), slack=A.nnzb)
    encoded = next(
        e
        for e in (moved(plan, A, seed) for seed in range(99))
        if np.unique(scan(e.meta_buckets, plan).bucket).size == 1
    )
    home = int(scan(encoded.meta_buckets, plan).bucket[0])
    profile = check_passes(plan, A, encoded, ("fwd",))["fwd"]
    kind = ((4, 4), FLOAT, FLOAT)
    # On the way each tile finds its own subgroup of the bucket and passes over three.
    expected = 6 * block.block_forward(2, 2, 1, *kind)
    expected += block.block_supervisor(0, 1, 3, 2, 2, *kind)
    steps = phase(profile, "Propagation compute")
    assert (steps.times, steps.cycles) == (3, 3 * expected)
    assert phase(profile, "Distribution compute").busiest_tile == home


def test_a_bucket_without_own_subgroups_costs_a_look_alone():
    A = draw(16, 4, (4, 4), 1.0)
    A = BSR.from_dense(A.to_dense() * (torch.arange(16) >= 12)[:, None], 4)
    plan = hand_plan(A, 6, (4, 1, 1), slack=1)
    encoded = next(
        e for e in (moved(plan, A, seed) for seed in range(99)) if e.value_buckets[1].any()
    )
    profile = check_passes(plan, A, encoded, ("fwd",))["fwd"]
    distribution = phase(profile, "Distribution compute")
    assert (distribution.cycles, distribution.busiest_tile) == (40 + 33 + 2, 1)
    kind = ((4, 4), FLOAT, FLOAT)
    expected = 6 * block.block_forward(1, 1, 1, *kind)
    expected += block.block_supervisor(0, 1, 0, 1, 1, *kind)
    assert phase(profile, "Propagation compute").cycles == expected
