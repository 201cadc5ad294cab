import pytest

from sparsetile.bench import _layers
from sparsetile.bench._layers import Layer, grouped, layer_table, time_layers

SMALL = Layer("small", 32, 64)


@pytest.fixture(scope="module")
def rows():
    return list(
        time_layers([SMALL], densities=[0.5, 0.25], blocksizes=[1, 4], rows=8, seconds=0.05)
    )


def test_every_cell_is_timed_beside_dense(rows):
    cells = {(r.op, r.blocksize, round(r.density, 2)) for r in rows}
    assert cells == {
        (op, b, d)
        for op in ("linear", "linear+grad")
        for b, d in [(0, 1.0), (1, 0.5), (1, 0.25), (4, 0.5), (4, 0.25)]
    }


def test_rows_name_the_kernel_that_ran(rows):
    for row in rows:
        assert row.backend == ("cpu" if row.blocksize else "dense")
        assert bool(row.kernel) == (row.blocksize > 0)


def test_speedup_is_against_dense_of_the_same_op(rows):
    dense = {r.op: r.minimum for r in rows if r.blocksize == 0}
    for row in rows:
        assert row.speedup == pytest.approx(dense[row.op] / row.minimum)


def test_stop_ends_the_timing():
    assert list(time_layers([SMALL], seconds=5, stop=lambda: True)) == []


def test_large_product_without_a_fast_kernel_is_left_out(monkeypatch):
    monkeypatch.setattr(_layers, "op_runs_slowly", lambda blocksize, flops: blocksize == 1)
    rows = time_layers([SMALL], densities=[0.5], blocksizes=[1, 4], rows=8, seconds=0.05)
    assert {r.blocksize for r in rows} == {0, 4}


def test_small_products_never_count_as_slow():
    assert not _layers.op_runs_slowly(3, 1e6)


def test_table_has_a_line_for_each_block_size(rows):
    assert layer_table(rows, [SMALL]).row_count == 2
    assert [(name, block) for name, block, _ in grouped(rows, [SMALL])] == [
        ("small", 1),
        ("small", 4),
    ]


def test_table_of_nothing_is_empty():
    assert layer_table([], [SMALL]).row_count == 0


def test_gradients_can_be_timed_alone():
    rows = list(
        time_layers(
            [SMALL],
            densities=[0.5],
            blocksizes=[4],
            rows=8,
            seconds=0.05,
            ops=("dx", "dvalues"),
        )
    )
    assert [(r.op, r.kernel.partition("_")[0]) for r in rows if r.blocksize] == [
        ("dx", "linear"),
        ("dvalues", "sddmm"),
    ]
    assert layer_table(rows, [SMALL]).columns[2].header.startswith("input gradient")
