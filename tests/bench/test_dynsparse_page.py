"""What is drawn and said of finished runs, all of them or a few."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

import support_dynsparse as support
from sparsetile.bench._files import read_csv, write_csv
from sparsetile.bench.dynsparse import PICTURES, TIERS, draw, fill
from sparsetile.bench.dynsparse import _timing as timing
from sparsetile.bench.dynsparse._chosen import by_family, chosen
from sparsetile.bench.dynsparse._page import PARTS
from sparsetile.bench.dynsparse._results import COLUMNS, results

TIER = replace(TIERS["nightly"], blocks=(1, 16), seeds=2, short_steps=0)
PAGE = Path(__file__).parents[2] / "docs" / "dynsparse.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small nightly tier, all of it done, drawn."""
    folder = tmp_path_factory.mktemp("drawn")
    main = chosen(TIER, support.fill(folder, TIER).runs)["main"]
    rows = []
    for family in by_family(main):
        cells = (*family, family[2] / 10, 30.0 * (family[0] == "dynsparse"), 9, "")
        rows.append(dict(zip(timing.COLUMNS, cells, strict=True)))
    write_csv(folder / "timing.csv", timing.COLUMNS, rows)
    draw(folder, TIER)
    return folder


def test_every_picture_has_its_csv_and_stands_on_both_pages(folder):
    made = {path.name for path in folder.iterdir()}
    assert {f"{name}.svg" for name in PICTURES} | {f"{name}.csv" for name in COLUMNS} <= made
    for page in ("index.md", "index.html"):
        text = (folder / page).read_text("utf-8")
        assert all(f"{name}.svg" in text and f"{name}.csv" in text for name in PICTURES)
    for name in PICTURES:
        svg = (folder / f"{name}.svg").read_text("utf-8")
        assert svg.count("<path") > 10
        assert len(svg) < 150_000


def test_the_comparison_is_that_of_the_runs(folder):
    one, sixteen = results(TIER, folder)["comparison"]
    assert (one["blocksize"], sixteen["blocksize"]) == (1, 16)
    assert one["static"] == pytest.approx(3.7205)
    assert one["static_sd"] == pytest.approx(0.001 / 2**0.5)
    assert one["difference"] == pytest.approx(-0.12)
    assert one["difference_sd"] == pytest.approx(0.0, abs=1e-6)
    assert one["seeds"] == 2
    # The made-up dense models are 64, 92 and 144 wide: 4.3 - 0.1 log2(width), 1e4 width² flops.
    assert one["matched"] == pytest.approx(4.3005 - 0.1 * 6.54, abs=2e-3)
    assert one["flops_ratio"] == pytest.approx(86e6 / (1e4 * 2 ** (2 * 7.0)), rel=0.02)
    assert one["static_flops_ratio"] > one["flops_ratio"]
    assert not one["extrapolated"]
    assert one["published_base"] == 0.49
    # A step takes width / 10 ms, an update 30 ms more every 300 steps.
    assert one["seconds_ratio"] == pytest.approx((25.6 + 0.1) / 12.8, rel=0.02)
    assert sixteen["rigl"] == pytest.approx(3.6905)


def test_without_timing_there_are_no_seconds_but_all_else(tmp_path, folder):
    for name in ("runs.csv", "curves.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    made = results(TIER, tmp_path)
    row = made["comparison"][0]
    assert row["seconds_ratio"] is None
    assert row["flops_ratio"] < 1
    said = {row["expected"]: row for row in made["verdicts"]}
    assert said["1×1: fewer seconds than the dense model of the same loss"]["holds"] == "open"
    assert made["loss-seconds"] == []


def test_verdicts_say_what_came(folder):
    said = {row["expected"]: row["holds"] for row in read_csv(folder / "verdicts.csv")}
    assert said["16×16: dynamic ends below static"] == "yes"
    assert said["1×1: dynamic ends below matched dense"] == "yes"
    assert said["1×1: fewer seconds than the dense model of the same loss"] == "no"
    assert said["1×1: the paper's order, dynamic, matched dense, static"] == "yes"
    assert said["16×16: the sum of magnitudes scores blocks best"] == "yes"
    assert said["no compared run is stuck at the unigram loss"] == "yes"


@pytest.mark.parametrize("most", [0, 30])
def test_what_is_there_is_drawn(tmp_path, most):
    support.fill(tmp_path, TIER, most)
    written = draw(tmp_path, TIER)
    assert tmp_path / "index.html" in written
    assert (tmp_path / "sweeps.svg" in written) == (most > 0)
    page = (tmp_path / "index.md").read_text("utf-8")
    pictures = set(re.findall(r"\]\(([\w-]+\.svg)\)", page))
    assert pictures == {path.name for path in written if path.suffix == ".svg"}


def test_a_page_of_prose_gets_its_tables(folder):
    prose = "a\n<!-- table: comparison -->\nold\n<!-- end -->\nb"
    text = fill(prose, folder, TIER)
    assert text.startswith("a\n<!-- table: comparison -->\n| block |")
    assert text.endswith("<!-- end -->\nb")
    assert "old" not in text


def test_the_page_of_the_docs_has_every_table_picture_and_csv():
    text = PAGE.read_text("utf-8")
    asked = set(re.findall(r"<!-- table: (.*?) -->", text))
    assert asked == {name for _, _, names in PARTS for name in names}
    linked = set(re.findall(r"\]\(_static/dynsparse/([^)]+)\)", text))
    folder = PAGE.parent / "_static" / "dynsparse"
    assert all((folder / name).is_file() for name in linked)
    assert {f"{name}.csv" for name in PICTURES} <= linked
    assert {name for name in linked if name.endswith(".svg")} == {
        path.name for path in folder.glob("*.svg")
    }


def test_the_docs_tables_are_those_of_its_csvs():
    folder = PAGE.parent / "_static" / "dynsparse"
    text = PAGE.read_text("utf-8")
    assert fill(text, folder, TIERS["nightly"]) == text
    with (folder / "runs.csv").open(encoding="utf-8", newline="") as file:
        names = [row["run"] for row in csv.DictReader(file)]
    assert len(set(names)) == len(names)
