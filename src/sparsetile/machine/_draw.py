"""The picture of a profile, drawn with matplotlib, which is imported on the first call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from sparsetile.machine._profile import Phase, Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLORS = {"compute": "#2f7fc1", "exchange": "#e0701b", "sync": "#7a7f87"}
_SUFFIXES = (".svg", ".png", ".pdf")
_MOST_PHASES = 24


def draw(profile: Profile, path: Path) -> None:
    """Write the picture; see `Profile.draw`."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"a picture of the profile was asked for as {path.name!r}; it can be written as "
            f"{', '.join(_SUFFIXES)}: end the name in one of these"
        )
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(
            "draw needs matplotlib, which is not installed; 3.9 or newer will do: "
            "pip install 'sparsetile[plot]'"
        ) from missing
    phases = _shown(profile)
    high = 1.0 + 0.27 * len(phases)
    with matplotlib.rc_context(
        {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "sparsetile"}
    ):
        figure = Figure(figsize=(9.5, high + 3.9), layout="constrained")
        axes = figure.subplot_mosaic(
            [["time", "time"], ["load", "memory"], ["load strip", "memory strip"]],
            height_ratios=[high, 2.2, 0.25],
        )
        figure.suptitle(
            f"{profile.program} on {profile.machine.name}: {profile.cycles:,} cycles, "
            f"{profile.seconds * 1e6:,.1f} µs"
        )
        for ax in axes.values():
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_axisbelow(True)
        _timeline(axes["time"], phases, profile.cycles)
        _load(axes["load"], axes["load strip"], profile)
        _memory(axes["memory"], axes["memory strip"], profile)
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure.savefig(path, dpi=150, metadata=metadata)


def _shown(profile: Profile) -> list[tuple[str, str, int, float]]:
    """Label, kind, busiest and mean cycles of each bar; the smallest phases share one."""
    phases = list(profile.phases)
    rest: list[Phase] = []
    if len(phases) > _MOST_PHASES:
        large = sorted(phases, key=lambda phase: phase.cycles)[-_MOST_PHASES + 1 :]
        rest = [phase for phase in phases if phase not in large]
        phases = [phase for phase in phases if phase in large]
    bars: list[tuple[str, str, int, float]] = [
        (
            p.name if p.times == 1 else f"{p.name} × {p.times:,}",
            p.kind,
            p.cycles,
            p.mean_cycles,
        )
        for p in phases
    ]
    if rest:
        cycles, mean = sum(p.cycles for p in rest), sum(p.mean_cycles for p in rest)
        bars.append((f"{len(rest)} smaller phases", "sync", cycles, mean))
    return bars


def _timeline(ax: Axes, bars: list[tuple[str, str, int, float]], total: int) -> None:
    from matplotlib.patches import Patch

    at = 0.0
    for row, (_, kind, cycles, mean) in enumerate(bars):
        color = _COLORS[kind]
        ax.barh(row, cycles, left=at, height=0.72, color=color, alpha=0.35, linewidth=0)
        ax.barh(row, min(mean, cycles), left=at, height=0.72, color=color, linewidth=0)
        # Right of the bar, left of it, or in it: where there is room.
        if at + cycles < 0.82 * total:
            x, align, ink = at + cycles, "left", "black"
        elif at > 0.18 * total:
            x, align, ink = at, "right", "black"
        else:
            x, align, ink = at, "left", "white"
        ax.annotate(
            f"{cycles:,}  ({100 * cycles / max(total, 1):.0f} %)",
            (x, row),
            xytext=(4 if align == "left" else -4, 0),
            textcoords="offset points",
            va="center_baseline",
            ha=align,
            color=ink,
        )
        at += cycles
    ax.set_yticks(range(len(bars)), [label for label, *_ in bars])
    ax.set_ylim(len(bars) - 0.4, -0.6)
    ax.set_xlim(0, max(total, 1))
    ax.set_xlabel("cycles of the busiest tile; the full colour is the mean tile")
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#d8d8d8", linewidth=0.6)
    kinds = [kind for kind in _COLORS if any(bar[1] == kind for bar in bars)]
    if kinds:
        ax.legend(
            handles=[Patch(color=_COLORS[kind], label=kind) for kind in kinds],
            loc="lower left",
            frameon=False,
            ncols=3,
            bbox_to_anchor=(0, 1),
            borderaxespad=0.2,
        )


def _load(ax: Axes, strip: Axes, profile: Profile) -> None:
    work = profile.tile_cycles
    order = np.argsort(-work, kind="stable")
    below = np.zeros(len(work), np.int64)
    for kind in ("exchange", "compute"):
        cycles = [phase.tile_cycles[order] for phase in profile.phases if phase.kind == kind]
        top = sum(cycles, start=below)
        _steps(ax, top, below, _COLORS[kind])
        below = top
    ax.axhline(work.mean(), color="black", linewidth=0.9, linestyle=":")
    ax.set_title(
        f"cycles of each tile: mean {work.mean():,.0f} (dotted),\n"
        f"most {work.max():,} on tile {order[0]}",
        fontsize="medium",
        loc="left",
    )
    _by_tile(ax, strip, work, "Blues")


def _memory(ax: Axes, strip: Axes, profile: Profile) -> None:
    memory, limit = profile.tile_memory, profile.machine.memory_per_tile
    order = np.argsort(-memory, kind="stable")
    _steps(ax, memory[order], np.zeros(len(memory), np.int64), "#4f9d69")
    ax.axhline(limit, color="#b3261e", linewidth=1.1, linestyle="--")
    ax.annotate(
        f"a tile has {limit:,}",
        (1, limit),
        xycoords=("axes fraction", "data"),
        xytext=(-3, -3),
        textcoords="offset points",
        va="top",
        ha="right",
        color="#b3261e",
    )
    ax.set_title(
        f"most bytes of each tile: {memory.max():,} on tile {order[0]},\nin {profile.peak_step}",
        fontsize="medium",
        loc="left",
    )
    _by_tile(ax, strip, memory, "Greens")


def _steps(
    ax: Axes, top: Int64[np.ndarray, " tiles"], below: Int64[np.ndarray, " tiles"], color: str
) -> None:
    # Rasterized: thousands of steps would make an SVG of a megabyte.
    many = len(top) > 256
    ax.stairs(top, baseline=below, fill=True, color=color, linewidth=0, rasterized=many)


def _by_tile(ax: Axes, strip: Axes, values: Int64[np.ndarray, " tiles"], colors: str) -> None:
    """Label a panel of sorted tiles, and show under it which tile has how much."""
    tiles = len(values)
    ax.set_xlim(0, tiles)
    ax.set_ylim(bottom=0)
    ax.set_xticks([])
    ax.set_xlabel("tiles, from most to least")
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.grid(axis="y", color="#d8d8d8", linewidth=0.6)
    strip.imshow(
        values[None, :],
        cmap=colors,
        vmin=0,
        vmax=max(int(values.max()), 1),
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5, tiles - 0.5, 0, 1),
    )
    strip.set_yticks([])
    strip.set_xlabel("tile; the darker, the more")
