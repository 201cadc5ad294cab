"""The model against what PopSparse published; `sparsetile reproduce popsparse` compares it all."""

import csv
from math import log, sqrt
from pathlib import Path

import pytest

from sparsetile.bench._reproduce_best import best, best_dense, cells_of
from sparsetile.bench._reproduce_cells import predict_cells
from sparsetile.bench._reproduce_published import parts_of, published
from sparsetile.bench._reproduce_scope import grid_cell

GRID = published("static_grid")
RAN = {grid_cell(row): float(row["speedup"]) for row in GRID if row["speedup"]}
BLANK = [grid_cell(row) for row in GRID if not row["speedup"]]
HALF = [*RAN][::2]  # all of them take twice the seconds and say the same
TABLE = published("table")


def dynamic_points():
    for row in published("density"):
        if row["device"] == "ipu" and row["mode"] == "dynamic":
            yield int(row["blocksize"]), parts_of(row["density"]), 4096, float(row["tflops"])
    for row in published("blocks"):
        if row["mode"] == "dynamic":
            yield int(row["blocksize"]), 16, 4096, float(row["tflops"])
    for row in published("sizes"):
        if row["mode"] == "dynamic":
            yield 16, 16, int(row["m"]), float(row["tflops"])


def neighbours(cell):
    around = (cell._replace(n=cell.n // 4), cell._replace(parts=cell.parts * 2))
    return [other for other in around if other in RAN]


@pytest.fixture(scope="module")
def model():
    cells = [*HALF, *BLANK, *(other for cell in BLANK for other in neighbours(cell))]
    for b, parts, m, _ in dynamic_points():
        cells += cells_of("dynamic", "float16", b, parts, m)
    for row in TABLE:
        cells += cells_of(row["mode"], row["dtype"], int(row["blocksize"]), 16, 4096)
    return predict_cells(cells)


def label(value):
    if isinstance(value, dict):
        return "-".join(value.values())
    return "-".join(map(str, value[2:6])) if isinstance(value, tuple) else str(value)


def test_half_of_the_static_grid_is_as_near_as_asked(model):
    ratios = [model[cell].speedup / RAN[cell] for cell in HALF]
    assert len(ratios) == 155
    assert sum(0.75 <= ratio <= 1.25 for ratio in ratios) / len(ratios) >= 0.85
    assert sqrt(sum(log(ratio) ** 2 for ratio in ratios) / len(ratios)) <= 0.16


def test_the_whole_grid_of_the_page_is_as_near_and_on_the_same_side(model):
    page = Path(__file__).parents[2] / "docs/_static/popsparse/grid.csv"
    with page.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["published"]]
    ours = {grid_cell(row): float(row["ours"]) for row in rows}
    assert ours.keys() == RAN.keys()
    assert all(ours[cell] == pytest.approx(model[cell].speedup, rel=1e-3) for cell in HALF)
    assert sum(0.75 <= ours[c] / RAN[c] <= 1.25 for c in RAN) / len(RAN) >= 0.85
    assert sum((RAN[c] > 1) == (ours[c] > 1) for c in RAN) / len(RAN) >= 0.95


@pytest.mark.parametrize("cell", BLANK, ids=label)
def test_what_did_not_run_does_not_fit_and_its_neighbours_do(model, cell):
    assert model[cell] is None
    assert [other for other in neighbours(cell) if model[other] is None] == []


@pytest.mark.parametrize(("b", "parts", "m", "tflops"), [*dynamic_points()])
def test_dynamic_products_are_as_fast_as_published(model, b, parts, m, tflops):
    near = b > 1 and 1024 <= m <= 4096
    _, ours = best(model, "dynamic", "float16", b, parts, m)
    assert ours.tflops == pytest.approx(tflops, rel=0.10 if near else 0.20)


@pytest.mark.parametrize("row", TABLE, ids=label)
def test_the_table_of_speedups_holds(model, row):
    _, ours = best(model, row["mode"], row["dtype"], int(row["blocksize"]), 16, 4096)
    told = float(row["speedup"])
    # It is printed with one decimal.
    speedup = ours.tflops / (best_dense(4096, row["dtype"]) / 16)
    assert abs(speedup - told) <= 0.20 * told + 0.05
