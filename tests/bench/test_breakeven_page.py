import re
from pathlib import Path

import pytest

from sparsetile.bench._breakeven_page import page
from sparsetile.bench._plot_rows import compared, read_rows
from support_plot import bench_rows, write_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "when-sparse-wins.md"
CSVS = sorted((ROOT / "benchmarks").glob("*.csv"))
PICTURES = "_static/when-sparse-wins"


def rows_of(tmp_path, **of):
    return read_rows([write_rows(tmp_path / "out.csv", bench_rows(**of))])


def table(text, heading):
    part = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in part.splitlines()
        if line.startswith("|")
    ]


@pytest.mark.skipif(not PAGE.exists(), reason="no sweep is committed yet")
def test_the_page_in_docs_is_made_from_the_committed_csvs():
    assert PAGE.read_text("utf-8") == page(read_rows(CSVS), [p.name for p in CSVS], PICTURES)
    for picture in re.findall(r"\]\((_static/[^)]+)\)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / picture).is_file(), picture


def test_there_is_a_page_once_there_are_csvs():
    assert PAGE.exists() == bool(CSVS)


def test_every_cell_and_every_loss_is_on_the_page(tmp_path):
    rows = rows_of(tmp_path)
    text = page(rows, ["out.csv"])
    cells = re.findall(r"(?m)^\| \d+ \| \d+×\d+ \| (.*) \|$", text)
    numbers = [cell for line in cells for cell in line.split(" | ")]
    assert len(numbers) == len(compared(rows))
    losses = [row for row in compared(rows) if row.verdict == "slower"]
    assert (
        sum(cell.startswith("**") and cell.endswith("✗**") for cell in numbers) == len(losses) > 0
    )
    listed = table(text, "Where dense wins")[2:]
    assert sum(line[3].count("✗**") for line in listed) == len(losses)


def test_break_even_table_has_a_line_a_block_and_a_column_a_batch(tmp_path):
    lines = table(page(rows_of(tmp_path), ["out.csv"]), "Break-even density")
    assert lines[0] == ["product", "block", "n = 1", "n = 64", "n = 1024"]
    assert len(lines) - 2 == 2 * 3
    unstructured = lines[2]
    assert unstructured[:2] == ["linear, float32, 4096×4096, 1 thread", "1×1"]
    assert 0.5 < float(unstructured[3]) < 0.7


def test_a_block_that_never_wins_is_bold(tmp_path):
    rows = [row | ({"dense_ratio": 0.5, "verdict": "slower"} if row["r"] == 1 else {})
            for row in bench_rows(batches=(64,))]  # fmt: skip
    text = page(read_rows([write_rows(tmp_path / "out.csv", rows)]), ["out.csv"])
    assert table(text, "Break-even density")[2][2] == "**< 1/32 ✗**"


def test_no_losses_are_said_to_be_none(tmp_path):
    text = page(rows_of(tmp_path, blocks=((16, 16),), batches=(64,), densities=(0.125,)), ["a"])
    assert "## Where dense wins\n\nIn no cell that was measured." in text


def test_the_page_says_how_it_was_measured(tmp_path):
    text = page(rows_of(tmp_path), ["one.csv", "two.csv"])
    for fact in ("Some Processor 9000", "avx512", "torch 2.13.0", "0123456789",
                 "`one.csv`, `two.csv`", "sparsetile bench linear --density 1,0.5"):  # fmt: skip
        assert fact in text


def test_peers_that_cannot_say_why(tmp_path):
    lines = table(page(rows_of(tmp_path), ["out.csv"]), "Against other libraries")
    assert ["linear, bfloat16, 4096×4096, 1 thread", "torch-csr", "0 of 36", "–", "–", "–",
            "no bfloat16"] in lines  # fmt: skip
    assert lines[2][1] == "best sparse"


def test_machines_are_told_apart(tmp_path):
    rows = [*bench_rows(batches=(64,)),
            *(row | {"cpu": "Another"} for row in bench_rows(batches=(64,)))]  # fmt: skip
    text = page(read_rows([write_rows(tmp_path / "out.csv", rows)]), ["out.csv"])
    assert "### linear, float32, 4096×4096, 1 thread, Another\n" in text


def test_without_sparse_peers_there_is_no_such_part(tmp_path):
    rows = [row for row in bench_rows() if row["peer"] in ("sparsetile", "torch-dense")]
    text = page(read_rows([write_rows(tmp_path / "out.csv", rows)]), ["out.csv"])
    assert "Against other libraries" not in text
