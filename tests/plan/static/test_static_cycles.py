import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparsetile.matrix import BSR, Pattern, random_pattern
from sparsetile.plan._cost import Cost
from sparsetile.plan.static import _cost
from sparsetile.plan.static._deal import Deal
from sparsetile.plan.static._multiply import worker_shares
from sparsetile.plan.static._partition import partition
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._program import static_program
from sparsetile.plan.static._run import run_static
from sparsetile.plan.static._sharers import Sharers
from support_static import machine, make_plan


def phase(profile, name):
    return next(phase for phase in profile.phases if phase.name == name)


def dense_plan(b, n, dtype, band_tiles, *, rows, columns):
    """All blocks stored, one interval, bands of equal width."""
    pattern = random_pattern(rows * b, columns * b, blocksize=b, density=1, seed=0)
    bands = len(band_tiles) - 1
    return StaticPlan(
        machine=machine(band_tiles[-1]),
        pattern=pattern,
        n=n,
        dtype=dtype,
        preprocess=False,
        column_starts=(0, n),
        split_tiles=(0, band_tiles[-1]),
        band_starts=tuple(range(0, columns + 1, columns // bands)),
        band_tiles=(band_tiles,),
        cost=Cost(()),
    )


def profile_of(plan, dtype):
    (_, k), (r, c) = plan.pattern.shape, plan.pattern.blocksize
    values = torch.ones(plan.pattern.nnzb, r, c, dtype=getattr(torch, dtype))
    return run_static(plan, values, torch.ones(k, plan.n, dtype=getattr(torch, dtype)))[1]


def test_cycles_of_whole_blocks_follow_the_planner():
    # 4×4 blocks of 16; each of two bands has two columns and two tiles: two rows of two blocks.
    plan = dense_plan(16, 48, "float16", (0, 2, 4), rows=4, columns=4)
    profile = profile_of(plan, "float16")
    assert (
        phase(profile, "Multiply").tile_cycles.tolist()
        == [int(_cost.multiply_blocks(2, 2, 8, 16, "float16"))] * 4
    )
    # A tile makes 2·16·48 sums, half of which it adds up: 768 of two each, 96 steps of 15 cycles.
    assert phase(profile, "Reduction").tile_cycles.tolist() == [(16 + 96 * 15 // 6) * 6] * 4


def test_partial_sums_of_float32_blocks_are_cleared_first():
    plan = dense_plan(8, 12, "float32", (0, 2), rows=2, columns=2)
    profile = profile_of(plan, "float32")
    clear = float(_cost.zero_partials(8 * 12, 8, "float32", plan.machine))
    busy = float(_cost.multiply_blocks(1, 2, 2, 8, "float32"))
    assert phase(profile, "Multiply").tile_cycles.tolist() == [clear + busy] * 2


def test_cycles_of_elements_are_those_of_the_busiest_worker():
    # One tile, 12 rows of 5: two rows to a worker.
    plan = dense_plan(1, 8, "float16", (0, 1), rows=12, columns=5)
    busy = 6 * float(_cost.multiply_elements(2, 5, 8, "float16"))
    assert phase(profile_of(plan, "float16"), "Multiply").tile_cycles.tolist() == [busy]
    # Three rows leave three workers idle, unless the columns are halved too.
    plan = dense_plan(1, 8, "float16", (0, 1), rows=3, columns=5)
    busy = 6 * float(_cost.multiply_elements(1, 5, 4, "float16"))
    assert phase(profile_of(plan, "float16"), "Multiply").tile_cycles.tolist() == [busy]
    plan = dense_plan(1, 12, "float16", (0, 1), rows=3, columns=5)
    busy = 6 * float(_cost.multiply_elements(1, 5, 12, "float16"))
    assert phase(profile_of(plan, "float16"), "Multiply").tile_cycles.tolist() == [busy]


def test_tiles_gather_only_rows_that_their_blocks_touch():
    # Tile 0 needs rows 0-3 and 8-11 of 16, tile 1 only rows 12-15.
    pattern = Pattern((8, 16), 4, [0, 2, 3], [0, 2, 3])
    plan = StaticPlan(
        machine=machine(2),
        pattern=pattern,
        n=6,
        dtype="float32",
        preprocess=False,
        column_starts=(0, 6),
        split_tiles=(0, 2),
        band_starts=(0, 4),
        band_tiles=((0, 2),),
        cost=Cost(()),
    )
    gathered = static_program(plan).program.steps[1].copies[0].target
    assert gathered.counts.tolist() == [2 * 4 * 6, 4 * 6]
    profile = profile_of(plan, "float32")
    moved = phase(profile, "Exchange of dense rows")
    # Rows 0-7 of x lie on tile 0, rows 8-15 on tile 1.
    assert (moved.bytes_moved, moved.bytes_moved_on_tile) == (4 * 6 * 4, 2 * 4 * 6 * 4)


def test_memory_is_that_of_the_variables():
    plan = dense_plan(4, 8, "float32", (0, 1), rows=2, columns=3)
    made = static_program(plan)
    profile = profile_of(plan, "float32")
    values, x, sums, lists = 6 * 16 * 4, 12 * 8 * 4, 8 * 8 * 4, 2 * (6 + 2 * 2)
    assert made.values.size * 4 == values
    # Gathered rows take as much as x and 16 bytes more; x itself is no longer there.
    assert phase(profile, "Multiply").memory == values + x + 16 + sums + lists
    assert phase(profile, "Exchange of dense rows").memory == values + 2 * x + lists


def test_values_are_exchanged_only_where_several_intervals_need_them():
    pattern = random_pattern(32, 32, blocksize=4, density=0.5, seed=0)
    for intervals in (1, 3):
        plan = make_plan(pattern, 12, "float32", tiles=12, intervals=intervals)
        names = [step.name for step in static_program(plan).program.steps]
        assert ("Exchange of non-zeros" in names) == (intervals > 1)


def test_adding_up_is_spread_over_all_tiles_that_hold_sums():
    # One row on two tiles, and many rows on one tile each.
    tile = np.array([0, 1, *range(2, 20)])
    row = np.array([0, 0, *range(1, 19)])
    sharers = Sharers(Deal(tile, row, np.zeros(20, np.int64), 1), size=80, dtype="float32")
    assert sharers.counts.tolist() == [4] * 20
    assert sharers.arriving.tolist() == [8] * 20
    assert sorted(sharers.alone.tolist()) == list(range(2, 20))


@given(
    lengths=st.lists(st.lists(st.integers(1, 9), max_size=20), min_size=1, max_size=5),
    workers=st.integers(1, 7),
)
def test_rows_are_dealt_to_workers_in_order(lengths, workers):
    flat = np.array([length for tile in lengths for length in tile], np.int64)
    rows, blocks = worker_shares(flat, np.array([len(tile) for tile in lengths]), workers)
    for at, tile in enumerate(lengths):
        share, left, expected = -(-sum(tile) // workers), list(tile), []
        for _ in range(workers):
            own = []
            while left and (len(own) < 1 if len(tile) <= workers else sum(own) < share):
                own.append(left.pop(0))
            expected.append((len(own), sum(own)))
        assert not left
        assert list(zip(rows[:, at].tolist(), blocks[:, at].tolist(), strict=True)) == expected


def test_a_large_product_on_all_tiles_is_planned_evenly():
    A = BSR.random(512, 512, blocksize=4, density=0.25, seed=0)
    plan = make_plan(A.pattern, 16, "float32", tiles=64, intervals=1, bands=4)
    tile = partition(plan).deal(0).tile_blocks
    for band, (begin, end) in enumerate(
        zip(plan.band_tiles[0][:-1], plan.band_tiles[0][1:], strict=True)
    ):
        inside = int((partition(plan).band == band).sum())
        assert tile[begin:end].max(initial=0) == -(-inside // (end - begin))
