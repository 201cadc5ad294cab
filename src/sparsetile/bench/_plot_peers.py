"""How many times faster than each peer: bars for the mean, whiskers for the range of cells."""

import textwrap
from collections.abc import Sequence
from math import isnan, log2
from typing import Any

from sparsetile.bench._breakeven import against, best_peer, geometric_mean
from sparsetile.bench._peers import DENSE, DENSE_BF16
from sparsetile.bench._plot_rows import Row, split
from sparsetile.bench._plot_style import FAINT, INK, LOSS, panels

COLUMNS = ("n", "peer", "mean", "least", "most", "cells", "of", "why_not")
_SPARSE = "#1f5fa8"


def peer_numbers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the picture shows, one line a bar: geometric mean, least and most times faster."""
    return [
        {"n": n, **_bar(peer, cells)}
        for n, batch in split(rows, lambda row: row.n).items()
        for peer, cells in against(batch).items()
    ]


def peer_result(rows: Sequence[Row]) -> str:
    """One sentence: how many times faster than the best sparse peer."""
    best = best_peer(rows)
    if not best:
        return "No sparse peer can do these cells"
    slower = sum(ratio < 1 for ratio in best)
    least = f"slower in {slower}" if slower else f"least {min(best):.2g}×"
    return (
        f"{geometric_mean(best):.2g}× the speed of each cell's best sparse peer "
        f"(geometric mean of {len(best)}; {least})"
    )


def peer_figure(rows: Sequence[Row], subtitle: str) -> Any:
    """Draw the bars of one setting, a panel for each batch.

    Args:
        rows: Rows of one setting, with peers.
        subtitle: What was measured, and where.

    Returns:
        The matplotlib Figure.
    """
    bars = peer_numbers(rows)
    batches = sorted({bar["n"] for bar in bars})
    peers = list(dict.fromkeys(bar["peer"] for bar in bars))

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, n in zip(axes, batches, strict=True):
            ax.set_xscale("log", base=2)
            ax.axvline(1.0, color=INK, linewidth=1.2, zorder=3)
            for bar in bars:
                if bar["n"] == n:
                    _draw(ax, peers.index(bar["peer"]), bar)
            ax.set_yticks(range(len(peers)), peers)
            ax.set_ylim(len(peers) - 0.4, -0.6)
            ax.grid(axis="y", visible=False)
            ax.set_xlabel("times faster than the peer")
            ax.set_title(f"n = {n}", fontsize=10)
            ax.label_outer()
        _widths(axes, bars)

    height = 0.85 + 0.34 * len(peers)
    return panels(len(batches), height, paint, titles=(peer_result(rows), subtitle))


def _bar(peer: str, cells: Sequence[tuple[Row, float]]) -> dict[str, Any]:
    done = [ratio for _, ratio in cells if not isnan(ratio)]
    why = sorted({row.verdict for row, ratio in cells if isnan(ratio)})
    return {
        "peer": peer,
        "mean": geometric_mean(done) if done else None,
        "least": min(done, default=None),
        "most": max(done, default=None),
        "cells": len(done),
        "of": len(cells),
        "why_not": "; ".join(why),
    }


def _draw(ax: Any, place: int, bar: dict[str, Any]) -> None:
    if bar["mean"] is None:
        why = textwrap.shorten(bar["why_not"], 30, placeholder=" …")
        ax.text(1.08, place, why, va="center", fontsize=8.5, style="italic", color=FAINT)
        return
    mean, least, most = bar["mean"], bar["least"], bar["most"]
    color = FAINT if bar["peer"] in (DENSE, DENSE_BF16) else _SPARSE
    ax.barh(place, mean - 1, left=1, height=0.62, color=color if mean >= 1 else LOSS)
    ax.plot([least, most], [place, place], color=INK, linewidth=1.0)
    ax.plot([least, most], [place, place], "|", color=INK, markersize=6)
    some = "" if bar["cells"] == bar["of"] else f" ({bar['cells']} of {bar['of']} cells)"
    digits = 0 if mean >= 10 else 1 if mean >= 1 else 2
    ax.annotate(
        f"{mean:.{digits}f}×{some}", (max(most, 1.0), place), (6, 0), va="center", fontsize=8.5,
        textcoords="offset points",
    )  # fmt: skip


def _widths(axes: Sequence[Any], bars: Sequence[dict[str, Any]]) -> None:
    low = min([bar["least"] for bar in bars if bar["least"]] + [1.0])
    high = max([bar["most"] for bar in bars if bar["most"]] + [2.0])
    ends = low / 1.3, high * 2 ** (0.35 * log2(high / low))  # room for the number at a bar's end
    step = 1 if log2(ends[1] / ends[0]) < 6 else 2
    ticks = [2.0**p for p in range(-14, 16, step) if ends[0] <= 2.0**p <= high * 1.5]
    for ax in axes:
        ax.set_xticks(ticks, [f"{t:g}×" for t in ticks], fontsize=9)
        ax.minorticks_off()
        ax.set_xlim(*ends)
        ax.axvspan(ends[0], 1.0, color=LOSS, alpha=0.09, linewidth=0)
