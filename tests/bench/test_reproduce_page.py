"""The page in docs tells what its CSVs hold, and the model still says what they say."""

import re
from pathlib import Path

import pytest

from sparsetile.bench import _reproduce
from sparsetile.bench._reproduce_cells import Cell, predict_cell
from sparsetile.bench._reproduce_page import PARTS, filled
from sparsetile.bench._reproduce_published import number, published

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "popsparse.md"
FOLDER = DOCS / "_static" / "popsparse"
ROWS = _reproduce.read(FOLDER)


def test_the_tables_of_the_page_are_those_of_the_csvs():
    assert filled(PAGE.read_text("utf-8"), ROWS) == PAGE.read_text("utf-8")


def test_the_page_has_every_table_picture_and_csv():
    text = PAGE.read_text("utf-8")
    assert set(re.findall(r"<!-- table: (.*?) -->", text)) == {
        name for _, _, names in PARTS for name in names
    }
    linked = set(re.findall(r"\]\(_static/popsparse/([^)]+)\)", text))
    assert linked == {
        *(f"{name}.svg" for name in _reproduce.PICTURES),
        *(f"{name}.csv" for name in (*_reproduce.PICTURES, "laws")),
    }
    for name in linked:
        assert (FOLDER / name).stat().st_size < 150_000


def test_published_numbers_in_the_csvs_are_those_of_the_package():
    told = [number(row["speedup"]) for row in published("static_grid")]
    assert [row["published"] for row in ROWS["grid"]] == told
    table = [float(row["speedup"]) for row in published("table")]
    assert [row["published"] for row in ROWS["table"]] == table
    told = [float(row["tflops"]) for row in published("density")]
    assert [row["published"] for row in ROWS["density"]] == told


@pytest.mark.parametrize(("b", "parts", "m", "n"), [(1, 16, 512, 16), (16, 16, 4096, 1024)])
def test_static_cells_of_the_grid_are_what_the_model_says(b, parts, m, n):
    (row,) = [
        row
        for row in ROWS["grid"]
        if (row["blocksize"], row["density"], row["m"], row["n"]) == (b, f"1/{parts}", m, n)
    ]
    outcome = predict_cell(Cell("static", "float16", b, parts, m, n))
    assert row["ours"] == pytest.approx(outcome.speedup, rel=1e-4)


def test_a_dynamic_point_is_what_the_model_says():
    (row,) = [
        row
        for row in ROWS["density"]
        if (row["mode"], row["blocksize"], row["density"]) == ("dynamic", 16, "1/16")
    ]
    outcome = predict_cell(Cell("dynamic", "float16", 16, 16, 4096, row["n"]))
    assert row["ours"] == pytest.approx(outcome.tflops, rel=1e-4)
