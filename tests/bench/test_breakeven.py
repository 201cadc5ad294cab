from dataclasses import replace
from math import isnan

import pytest

from sparsetile.bench._breakeven import (
    against,
    best_peer,
    break_even,
    crossing,
    lost,
    outcome,
    ratio_text,
    worst,
)
from sparsetile.bench._plot_rows import compared, read_rows
from support_plot import bench_rows, write_rows


@pytest.fixture
def rows(tmp_path):
    few = {"dtypes": ("float32",), "batches": (64,), "blocks": ((1, 1), (4, 4))}
    return read_rows([write_rows(tmp_path / "out.csv", bench_rows(**few))])


@pytest.fixture
def ours(rows):
    return compared(rows)


def test_break_even_lies_on_a_line_in_logarithms():
    # y = 0.25 / d² is straight in logarithms and 1 at d = 1/2, whatever was measured.
    for densities in [(0.25, 1.0), (0.4, 0.6), (0.05, 0.45, 0.55)]:
        found = break_even([(d, 0.25 / d**2) for d in densities])
        assert found.density == pytest.approx(0.5, rel=1e-12)


def test_break_even_takes_points_in_any_order():
    points = [(1.0, 0.5), (0.125, 4.0), (0.25, 2.0)]
    assert break_even(points) == break_even(sorted(points))


@pytest.mark.parametrize(
    ("points", "text"),
    [
        ([(0.125, 4.0), (0.5, 1.0)], "> 1/2"),
        ([(0.125, 4.0), (1.0, 1.0)], "all"),
        ([(0.125, 0.99), (1.0, 0.1)], "< 1/8"),
        ([(0.5, 1.0), (1.0, 0.5)], "0.50"),
        ([(0.01, 2.0), (0.04, 0.5)], "0.02"),
        ([(0.25, 1.5)], "> 1/4"),
        ([(0.25, 0.5)], "< 1/4"),
        # Overhead at the lowest density, or a bump of noise: the first fall above a win counts.
        ([(0.01, 0.9), (0.25, 2.0), (1.0, 0.5)], "0.50"),
        ([(0.25, 2.0), (1.0, 0.5), (1.0, 2.0)], "0.50"),
    ],
)
def test_break_even_says_what_the_range_shows(points, text):
    assert str(break_even(points)) == text


def test_a_draw_is_no_loss(ours):
    line = [replace(ours[0], density=d, dense_ratio=s) for d, s in [(0.25, 2.0), (1.0, 0.99)]]
    assert not isnan(crossing(line).density)
    line[1] = replace(line[1], verdict="within the noise")
    assert str(crossing(line)) == "all"
    assert not lost(line[1])
    assert ratio_text(line[1]) == "0.99 ≈"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(41.2, "41"), (8.04, "8.0"), (1.04, "1.04"), (0.999, "0.99 ✗"), (0.8, "0.80 ✗")],
)
def test_a_loss_never_reads_as_one(ours, ratio, text):
    verdict = "faster" if ratio > 1 else "slower"
    assert ratio_text(replace(ours[0], dense_ratio=ratio, verdict=verdict)) == text


def with_ratios(ours, *ratios):
    verdicts = ["within the noise" if r == 1 else "faster" if r > 1 else "slower" for r in ratios]
    pairs = zip(ratios, verdicts, strict=True)
    return [replace(ours[0], dense_ratio=r, verdict=v, n=i) for i, (r, v) in enumerate(pairs, 1)]


@pytest.mark.parametrize(
    ("ratios", "says"),
    [
        ((2.0, 41.3), "Sparse wins 2 of 2 cells, by up to 41×"),
        ((2.0, 1.0), "Sparse wins 1 of 2 cells, by up to 2.0×; 1 too close to call"),
        ((2.0, 0.5), "Sparse wins 1 of 2 cells, by up to 2.0×; dense wins 1"),
        ((0.5, 1.0), "Dense wins 1 of 2 cells; 1 too close to call"),
        ((0.9, 0.5), "Dense wins 2 of 2 cells"),
    ],
)  # fmt: skip
def test_outcome_counts_both_sides(ours, ratios, says):
    assert outcome(with_ratios(ours, *ratios)) == says


def test_worst_names_the_cell(ours):
    rows = with_ratios(ours, 2.0, 0.5)
    assert worst(rows) == "Dense wins 1 of 2 cells; worst is 1×1 at density 1/32, 2 rows: 0.50×"
    assert worst(rows[:1]).startswith("Dense wins none of 1 cell; sparse is nearest to losing")


def test_peers_are_compared_through_dense(rows, ours):
    found = against(rows)
    dense = {row.cell: ratio for row, ratio in found["torch-dense"]}
    assert dense == {row.cell: row.dense_ratio for row in ours}
    for row, ratio in found["scipy-bsr"]:
        # One process: the same as the quotient of the times.
        mine = next(own for own in ours if own.cell == row.cell)
        assert ratio == pytest.approx(row.median_us / mine.median_us, rel=1e-9)


def test_the_best_peer_is_the_fastest_sparse_one_of_each_cell(rows):
    best = best_peer(rows)
    found = against(rows)
    assert len(best) == 8
    least = min(r for p in ("torch-csr", "torch-bsr", "scipy-bsr") for _, r in found[p] if r == r)
    assert min(best) == least
