import csv
import xml.etree.ElementTree as ElementTree
from math import log2

import pytest
from matplotlib.image import imread

from sparsetile.bench import _plot_heat, _plot_peers, _plot_roofline, _plot_speed
from sparsetile.bench._breakeven import crossing
from sparsetile.bench._plot import plot, plot_speedups
from sparsetile.bench._plot_rows import compared, read_rows, split
from sparsetile.bench._plot_style import block_style
from support_plot import bench_rows, write_rows

SMALL = {"dtypes": ("float32",), "batches": (1, 64), "blocks": ((1, 1), (16, 16))}
KINDS = {"speedup", "heat", "roofline", "peers"}


def rows_of(tmp_path, rows):
    return read_rows([write_rows(tmp_path / "out.csv", rows)])


@pytest.fixture
def rows(tmp_path):
    return rows_of(tmp_path, bench_rows(**SMALL))


def numbers(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_picture_comes_as_png_svg_and_numbers(tmp_path, rows):
    folder = tmp_path / "drawn"
    folder.mkdir()
    written = plot(rows, folder)
    assert sorted(written) == sorted(folder.iterdir())
    assert {p.name for p in written} == {
        f"{kind}-linear-float32-4096x4096-1t{end}"
        for kind in KINDS
        for end in (".png", ".svg", ".csv")
    }
    for path in written:
        if path.suffix == ".png":
            assert imread(path).std() > 0.01  # not blank
        elif path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
        else:
            assert numbers(path)


def test_the_same_rows_give_the_same_svg(tmp_path, rows):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        plot_speedups(rows, tmp_path / name)
    (first,) = (tmp_path / "a").iterdir()
    (second,) = (tmp_path / "b").iterdir()
    assert first.read_bytes() == second.read_bytes()


def test_the_crossover_is_marked_where_it_was_computed(rows):
    figure = _plot_speed.speed_figure(rows, "of something")
    ours = compared(rows)
    for ax, n in zip(figure.axes, (1, 64), strict=True):
        lines = split((row for row in ours if row.n == n), lambda row: row.block)
        wanted = [c.density for c in map(crossing, lines.values()) if c.density == c.density]
        stars = [float(x.get_xdata()[0]) for x in ax.get_lines() if x.get_marker() == "*"]
        assert stars == wanted
        said = " ".join(text.get_text() for text in ax.texts)
        assert all(f"{density:.2f}" in said for density in wanted)
    assert stars  # 1×1 loses somewhere in the last panel


def test_speed_lines_show_every_point(rows):
    figure = _plot_speed.speed_figure(rows, "of something")
    ax = figure.axes[1]
    line = next(line for line in ax.get_lines() if line.get_label() == "16×16")
    wanted = [(r.density, r.dense_ratio) for r in compared(rows) if (r.n, r.r) == (64, 16)]
    assert list(zip(*line.get_data(), strict=True)) == wanted
    low, high = ax.get_ylim()
    assert all(low < s < high for _, s in wanted)
    assert figure.texts[0].get_text().startswith("Sparse wins")
    assert figure.texts[1].get_text() == "of something"


def test_numbers_of_the_speedups_hold_the_break_even(rows):
    table = _plot_speed.speed_numbers(rows)
    assert len(table) == len(compared(rows))
    assert {t["break_even"] for t in table if (t["n"], t["r"]) == (64, 16)} == {"all"}


def test_losses_are_framed_and_bold_in_the_heat_map(rows):
    figure = _plot_heat.heat_figure(rows, "of something")
    losses = [row for row in compared(rows) if row.verdict == "slower"]
    panels = figure.axes[:2]
    assert losses
    assert sum(len(ax.patches) for ax in panels) == len(losses)
    bold = [t.get_text() for ax in panels for t in ax.texts if t.get_fontweight() == "bold"]
    assert bold == [f"{row.dense_ratio:.2f}" for row in losses]


def test_heat_map_puts_each_cell_in_its_place(rows):
    figure = _plot_heat.heat_figure(rows, "of something")
    ax = figure.axes[1]
    cells = ax.images[0].get_array()
    row = next(r for r in compared(rows) if (r.n, r.r, r.density) == (64, 16, 0.125))
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["1×1", "16×16"]
    assert cells[1, 1] == pytest.approx(log2(row.dense_ratio))
    assert cells.shape == (2, 4)


def test_roofline_has_the_measured_peak_and_points_below_it(rows):
    figure = _plot_roofline.roofline_figure(rows, "of something")
    (ax,) = figure.axes
    assert "peak of 115 GFLOP/s" in figure.texts[0].get_text()
    heights = [float(x.get_ydata()[0]) for x in ax.get_lines() if x.get_linestyle() == "None"]
    assert len(heights) == len(compared(rows)) + 2  # dense once a batch
    assert max(heights) < 115


def test_intensity_counts_every_operand_once(rows):
    row = next(r for r in compared(rows) if (r.n, r.r, r.density) == (64, 16, 0.125))
    stored = row.nnzb * 256
    moved = 4 * (stored + 2 * 4096 * 64) + 4 * row.nnzb
    assert _plot_roofline.intensity(row) == pytest.approx(2 * stored * 64 / moved)


def test_without_a_measured_peak_there_is_no_roofline(tmp_path):
    rows = rows_of(tmp_path, [row | {"peak_fraction": ""} for row in bench_rows(**SMALL)])
    (tmp_path / "drawn").mkdir()
    kinds = {path.name.partition("-")[0] for path in plot(rows, tmp_path / "drawn")}
    assert kinds == KINDS - {"roofline"}


def test_without_sparse_peers_there_is_no_picture_of_them(tmp_path):
    rows = [row for row in bench_rows(**SMALL) if row["peer"] in ("sparsetile", "torch-dense")]
    (tmp_path / "drawn").mkdir()
    written = plot(rows_of(tmp_path, rows), tmp_path / "drawn")
    assert {path.name.partition("-")[0] for path in written} == KINDS - {"peers"}


def test_peers_show_mean_range_and_reasons(rows):
    bars = {(bar["n"], bar["peer"]): bar for bar in _plot_peers.peer_numbers(rows)}
    bsr = bars[64, "torch-bsr"]
    assert (bsr["cells"], bsr["of"], bsr["why_not"]) == (4, 8, "no blocks of 1×1")
    assert bsr["least"] <= bsr["mean"] <= bsr["most"]
    texts = [t.get_text() for t in _plot_peers.peer_figure(rows, "of something").axes[1].texts]
    assert any(text.endswith("(4 of 8 cells)") for text in texts)


def test_a_peer_that_is_faster_is_told_in_the_title(rows):
    assert "slower in" in _plot_peers.peer_result([r for r in rows if r.n == 1])
    assert "least" in _plot_peers.peer_result([r for r in rows if r.n == 64])


def test_one_cell_that_dense_wins_can_be_drawn(tmp_path):
    one = {"dtypes": ("float32",), "batches": (64,), "blocks": ((1, 1),), "densities": (1.0,)}
    (tmp_path / "drawn").mkdir()
    assert len(plot(rows_of(tmp_path, bench_rows(**one)), tmp_path / "drawn")) == 12


def test_blocks_look_different():
    blocks = [(r, c) for r in (1, 2, 4, 8, 16, 32, 64, 128) for c in (1, 2, 4, 8, 16, 32, 64, 128)]
    looks = {tuple(sorted(block_style(block).items())) for block in blocks}
    assert len(looks) == len(blocks)
