"""Blocks against densities, every cell coloured by its speed-up over dense; losses are red."""

from collections.abc import Sequence
from math import ceil, log2, nan
from typing import Any

import numpy as np

from sparsetile.bench._bench_row import NOISE
from sparsetile.bench._breakeven import lost, worst
from sparsetile.bench._plot_rows import Row, block_text, compared, density_text, split
from sparsetile.bench._plot_style import LOSS, panels

COLUMNS = ("n", "r", "c", "density", "dense_ratio", "verdict")


def heat_numbers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the picture shows, one line a cell."""
    return [{name: getattr(row, name) for name in COLUMNS} for row in compared(rows)]


def heat_figure(rows: Sequence[Row], subtitle: str) -> Any:
    """Draw the cells of one setting, a panel for each batch.

    Args:
        rows: Rows of one setting.
        subtitle: What was measured, and where.

    Returns:
        The matplotlib Figure.
    """
    from matplotlib.colors import TwoSlopeNorm

    ours = compared(rows)
    batches = split(ours, lambda row: row.n)
    blocks = list(split(sorted(ours, key=lambda row: (row.r * row.c, row.r)), lambda r: r.block))
    densities = sorted({row.density for row in ours})
    across = max(1, min(3, 24 // len(densities)))
    top = max(1.0, max(log2(row.dense_ratio) for row in ours))
    # Half as fast as dense is as red as it gets: the steps near 1 are the ones that matter.
    colors: Any = {"cmap": _colors(), "norm": TwoSlopeNorm(0.0, -1.0, top)}

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, (n, batch) in zip(axes, batches.items(), strict=True):
            cells = np.full((len(blocks), len(densities)), nan)
            for row in batch:
                i, j = blocks.index(row.block), densities.index(row.density)
                height = log2(row.dense_ratio)
                cells[i, j] = height
                _write(ax, j, i, row, dark=height > 0.6 * top or height < -0.6)
            shown = ax.imshow(cells, aspect="auto", **colors)
            ax.set_xticks(range(len(densities)), [density_text(d) for d in densities], fontsize=8)
            ax.set_yticks(range(len(blocks)), [block_text(b) for b in blocks])
            ax.grid(visible=False)
            ax.tick_params(length=0)
            ax.set(xlabel="density", ylabel="block")
            ax.set_title(f"n = {n}", fontsize=10)
            ax.label_outer()
        bar = figure.colorbar(
            shown, ax=axes, pad=0.015, aspect=22, extend="min", extendfrac=0.03, anchor=(0, 1),
            shrink=1 / ceil(len(axes) / across),
        )  # fmt: skip
        ticks = [-1, *range(int(top) + 1)]
        bar.set_ticks(ticks, labels=[f"{2.0**t:g}×" for t in ticks])
        bar.set_label("times faster than dense")
        bar.outline.set_visible(False)

    return panels(
        len(batches),
        max(2.2, 0.75 + 0.27 * len(blocks)),
        paint,
        titles=(worst(ours), subtitle),
        across=across,
    )


def _write(ax: Any, x: int, y: int, row: Row, *, dark: bool) -> None:
    from matplotlib.patches import Rectangle

    ax.text(
        x, y, _short(row), ha="center", va="center", fontsize=8,
        color="white" if dark else "black", fontweight="bold" if lost(row) else "normal",
    )  # fmt: skip
    if lost(row):  # a frame, for those who do not see red
        ax.add_patch(
            Rectangle((x - 0.47, y - 0.46), 0.94, 0.92, fill=False, edgecolor=LOSS, linewidth=1.6)
        )


def _short(row: Row) -> str:
    if row.verdict == NOISE:
        return "≈ 1"
    if row.dense_ratio < 1:
        return f"{min(row.dense_ratio, 0.99):.2f}"
    return f"{row.dense_ratio:.0f}" if row.dense_ratio >= 9.95 else f"{row.dense_ratio:.1f}"


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list(
        "wins",
        [(0, LOSS), (0.25, "#e8806f"), (0.5, "#fdf6f0"), (0.7, "#8fc1e3"), (1, "#0b4a86")],
    )
    return colors.with_extremes(bad="#e9eaec")  # not measured
