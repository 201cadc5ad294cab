"""Speed-up over dense against density, one line a block, with the break-even density marked."""

from collections.abc import Mapping, Sequence
from math import ceil, isnan, log2
from typing import Any

from sparsetile.bench._bench_row import NOISE
from sparsetile.bench._breakeven import crossing, line_of, outcome
from sparsetile.bench._plot_rows import Row, block_text, compared, density_text, split
from sparsetile.bench._plot_style import FAINT, INK, LOSS, block_style, panels

COLUMNS = ("n", "r", "c", "density", "dense_ratio", "verdict", "break_even")
_NAMES, _STARS = 9, 7  # at most: names in a line of the legend, break-even densities in a panel


def speed_numbers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the picture shows, one line a point."""
    return [
        {
            **{name: getattr(row, name) for name in COLUMNS[:-1]},
            "break_even": str(crossing(line)),
        }
        for line in split(compared(rows), lambda row: (row.n, row.block)).values()
        for row in line
    ]


def speed_figure(rows: Sequence[Row], subtitle: str) -> Any:
    """Draw the lines of one setting, a panel for each batch.

    Args:
        rows: Rows of one setting.
        subtitle: What was measured, and where.

    Returns:
        The matplotlib Figure.
    """
    ours = compared(rows)
    batches = split(ours, lambda row: row.n)

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, (n, batch) in zip(axes, batches.items(), strict=True):
            blocks = split(batch, lambda row: row.block)
            speed_curves(ax, {block: line_of(line) for block, line in blocks.items()})
            _draws(ax, batch)
            _crossovers(ax, blocks)
            ax.set_title(f"n = {n}", fontsize=10)
        scales(axes, line_of(ours))
        names = {h.get_label(): h for ax in axes for h in ax.get_lines() if h.get_label()[0] != "_"}
        lines = ceil(len(names) / _NAMES)
        figure.legend(
            names.values(), names.keys(), loc="outside lower center", fontsize=9,
            ncols=ceil(len(names) / lines), columnspacing=1.4, handlelength=2.6,
        )  # fmt: skip

    return panels(len(batches), 3.0, paint, titles=(outcome(ours), subtitle))


def speed_curves(ax: Any, lines: Mapping[tuple[int, int], Sequence[tuple[float, float]]]) -> None:
    """Speed-up over dense against density; `scales` must follow, once all panels are drawn.

    Args:
        ax: Where to draw.
        lines: For each block, (density, speed-up over dense).
    """
    densities = sorted({density for line in lines.values() for density, _ in line})
    ax.plot(densities, [1 / d for d in densities], ":", color=FAINT, label="1 / density", lw=1.2)
    ax.axhline(1.0, color=FAINT, linewidth=1.0)
    for block, line in lines.items():
        ax.plot(*zip(*sorted(line), strict=True), label=block_text(block), **block_style(block))


def scales(axes: Sequence[Any], points: Sequence[tuple[float, float]]) -> None:
    """Give panels that share their axes logarithmic ones, and shade the side where dense wins.

    Args:
        axes: The panels.
        points: (density, speed-up over dense) of all of them.
    """
    densities, ratios = zip(*points, strict=True)
    low, high = min(0.75, *ratios) / 1.15, max(1.0 / min(densities), *ratios) * 1.2
    heights = [2.0**p for p in range(-10, 12) if low <= 2.0**p <= high]
    shown = _apart(sorted(set(densities)))
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        ax.set_xticks(shown, [density_text(d) for d in shown], fontsize=9)
        ax.set_yticks(heights, [f"{h:g}×" for h in heights])
        ax.minorticks_off()
        ax.set_ylim(low, high)
        ax.set_xlabel("density")
        ax.set_ylabel("times faster than dense")
        ax.axhspan(low, 1.0, color=LOSS, alpha=0.09, linewidth=0)
        ax.annotate(
            "dense wins", (0, 1), (5, -3), xycoords=("axes fraction", "data"), va="top",
            textcoords="offset points", color=LOSS, fontsize=8.5,
        )  # fmt: skip
        if len(axes) > 1:
            ax.label_outer()


def _apart(densities: Sequence[float]) -> list[float]:
    """Those whose labels do not touch, the densest first."""
    gap = max(log2(densities[-1] / densities[0]) / 7, 0.3)
    kept = [densities[-1]]
    for density in reversed(densities):
        if log2(kept[-1] / density) >= gap:
            kept.append(density)
    return kept


def _draws(ax: Any, rows: Sequence[Row]) -> None:
    drawn = [(row.density, row.dense_ratio) for row in rows if row.verdict == NOISE]
    if drawn:
        ax.plot(
            *zip(*drawn, strict=True), "o", markersize=11, markerfacecolor="none",
            markeredgecolor=FAINT, label="within the noise", zorder=1.5,
        )  # fmt: skip


def _crossovers(ax: Any, blocks: Mapping[tuple[int, int], Sequence[Row]]) -> None:
    found = {block: crossing(rows) for block, rows in blocks.items()}
    crossings = {block: b for block, b in found.items() if not isnan(b.density)}
    for block, star in crossings.items():
        ax.plot(
            [star.density], [1.0], "*", markersize=13, zorder=4, markeredgewidth=0.9,
            markerfacecolor=block_style(block)["color"], markeredgecolor="white",
        )  # fmt: skip
    said = [(f"{block_text(b)}  {at}", block_style(b)["color"]) for b, at in crossings.items()]
    if len(said) > _STARS:
        said[_STARS - 1 :] = [(f"and {len(said) - _STARS + 1} more", INK)]
    # The upper right is free: speed-ups fall to the right.
    for place, (text, color) in enumerate([("★ break-even density", INK), *said] if said else []):
        ax.annotate(
            text, (1, 1), (-3, -3 - 11 * place), ha="right", va="top", fontsize=8.5, color=color,
            xycoords="axes fraction", textcoords="offset points",
            fontweight="bold" if place else "normal",
        )  # fmt: skip
