import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import BSR, COO, CSC, CSR, Pattern, random_pattern
from sparsetile.plan.static._order import block_order
from sparsetile.plan.static._partition import partition, tile_of_block
from sparsetile.plan.static._partitioner import StaticPartitioner
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._runs import cut
from support_static import make_plan

DTYPES = ["float16", "float32"]


def dealt(plan, interval):
    """Tile order and tiles, block by block."""
    rows, columns = (order.tolist() for order in block_order(plan.pattern, plan.preprocess))
    row, column = plan.pattern.row_indices.tolist(), plan.pattern.col_indices.tolist()
    stored = {place: at for at, place in enumerate(zip(row, column, strict=True))}
    order, tile = [], [0] * len(row)
    for band, first in enumerate(plan.band_starts[:-1]):
        inside = columns[first : plan.band_starts[band + 1]]
        blocks = [stored[r, c] for r in rows for c in inside if (r, c) in stored]
        begin, end = plan.band_tiles[interval][band : band + 2]
        for nth, block in enumerate(blocks):
            tile[block] = begin + nth // -(-len(blocks) // (end - begin))
        order += blocks
    return order, tile


@settings(max_examples=30, deadline=None)
@given(
    m=st.integers(1, 40),
    k=st.integers(1, 40),
    b=st.sampled_from([1, 4, 8]),
    density=st.floats(0.01, 1),
    tiles=st.integers(4, 64),
    preprocess=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_blocks_are_dealt_row_by_row(m, k, b, density, tiles, preprocess, seed):
    pattern = random_pattern(m, k, blocksize=b, density=density, seed=seed)
    plan = make_plan(pattern, 16, "float32", tiles=tiles, seed=seed, preprocess=preprocess)
    for interval in range(len(plan.band_tiles)):
        order, tile = dealt(plan, interval)
        assert partition(plan).order.tolist() == order
        assert tile_of_block(plan, interval).tolist() == tile


def test_thin_rows_come_last_on_the_tiles():
    # Row 1 stores one block of 81; a tenth of the mean row is 2 blocks.
    mask = torch.zeros(4, 40, dtype=torch.bool)
    mask[1, 0] = True
    mask[2:4] = True
    pattern = BSR.from_dense(mask.float(), 1).pattern
    plan = make_plan(pattern, 2, "float32", tiles=4, bands=1, intervals=1)
    assert partition(plan).order.tolist() == [*range(1, 81), 0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("b", [1, 4, 8, 16])
@pytest.mark.parametrize(("m", "k", "density"), [(128, 112, 0.5), (32, 512, 0.1)])
def test_values_go_to_tiles_and_back(m, k, density, b, dtype):
    A = BSR.random(m, k, blocksize=b, density=density, seed=1).to(getattr(torch, dtype))
    plan = make_plan(A.pattern, 16, dtype, tiles=24, seed=2)
    partitioner = StaticPartitioner(plan)
    placed = partitioner.place(A)
    back = partitioner.restore(placed)
    assert back.pattern == A.pattern
    assert torch.equal(back.values, A.values)
    assert np.array_equal(np.sort(placed), np.sort(A.values.reshape(-1).numpy()))
    for form in (CSR, CSC, COO):
        assert np.array_equal(partitioner.place(form.from_bsr(A)), placed)
    parts = partition(plan)
    assert torch.equal(parts.from_tiles(parts.to_tiles(A.values)), A.values)


def test_float32_blocks_of_16_lie_as_two_halves():
    block = torch.arange(256.0).view(1, 16, 16)
    pattern = Pattern((16, 16), 16, [0, 1], [0])
    plan = make_plan(pattern, 2, "float32")
    placed = StaticPartitioner(plan).place(BSR(block, pattern))
    assert placed[:10].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 16, 17]
    assert placed[128] == 8


def test_another_pattern_is_refused():
    A = BSR.random(32, 32, blocksize=4, density=0.5, seed=0)
    other = BSR.random(32, 32, blocksize=4, density=0.5, seed=1)
    partitioner = StaticPartitioner(make_plan(A.pattern, 4, "float32"))
    with pytest.raises(ValueError, match=r"A: got .*in other places; allowed: .*make a plan"):
        partitioner.place(other)
    smaller = BSR.random(16, 32, blocksize=4, density=0.5, seed=1)
    with pytest.raises(ValueError, match=r"A: got a pattern of 16×32.*allowed: .*32×32"):
        partitioner.place(smaller)
    with pytest.raises(ValueError, match=r"got .*ndarray.*allowed: a numpy array of \[512\]"):
        partitioner.restore(np.zeros(3, np.float32))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"dtype": "bfloat16"}, "float16 or float32"),
        ({"band_tiles": ((0, 0, 8),)}, "no tile for band 0"),
        ({"band_tiles": ((0, 9, 8),)}, "ascending bounds"),
        ({"band_tiles": ((0, 2, 9),)}, "ascending bounds"),
        ({"band_tiles": ((0, 8),)}, "ascending bounds"),
        ({"split_tiles": (0, 9), "band_tiles": ((0, 2, 9),)}, "tiles that there are"),
        ({"column_starts": (0, 2)}, "cover all columns"),
        ({"band_starts": (0, 3, 5)}, "cover all columns"),
        ({"pattern": random_pattern(24, 24, blocksize=(4, 1), density=0.5, seed=0)}, "square"),
        ({"pattern": random_pattern(24, 24, blocksize=2, density=0.5, seed=0)}, "1, 4, 8, 16"),
    ],
)
def test_plans_that_do_not_hold_together_are_refused(change, what):
    pattern = random_pattern(24, 24, blocksize=4, density=0.5, seed=0)
    plan = make_plan(pattern, 4, "float32", tiles=8, intervals=1, bands=2)
    given = {"band_starts": (0, 3, 6), "band_tiles": ((0, 2, 8),), **change}
    broken = StaticPlan(**{**vars(plan), **given})
    with pytest.raises(ValueError, match="static plan: got") as error:
        partition(broken)
    assert what in str(error.value)


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    starts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=8),
)
def test_runs_are_cut_where_tiles_meet(counts, starts):
    offsets = np.concatenate(([0], np.cumsum(counts)))
    total = int(offsets[-1])
    runs = [(min(a, total), min(b, total - min(a, total))) for a, b in starts]
    start = np.array([a for a, _ in runs], np.int64)
    length = np.array([b for _, b in runs], np.int64)
    run, begin, size = cut(start, length, offsets)
    owner = np.repeat(np.arange(len(counts)), counts)
    elements = []
    for r, a, s in zip(run, begin, size, strict=True):
        if s:
            assert len(set(owner[a : a + s])) == 1
        elements += [(int(r), int(e)) for e in range(a, a + s)]
    assert elements == [(r, e) for r, (a, b) in enumerate(runs) for e in range(a, a + b)]
