"""The picture of a profile, drawn with matplotlib, which is imported on the first call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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
    with matplotlib.rc_context({"font.size": 9, "svg.hashsalt": "sparsetile"}):
        figure = Figure(figsize=(9.5, high + 3.3), layout="constrained")
        axes = figure.subplot_mosaic(
            [["time", "time"], ["load", "memory"]], height_ratios=[high, 2.6]
        )
        figure.suptitle(
            f"{profile.program} on {profile.machine.name}: {profile.cycles:,} cycles, "
            f"{profile.seconds * 1e6:,.1f} µs"
        )
        for ax in axes.values():
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_axisbelow(True)
        _timeline(axes["time"], phases, profile.cycles)
        _load(axes["load"], profile)
        _memory(axes["memory"], profile)
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
        text = f"{cycles:,}  ({100 * cycles / max(total, 1):.0f} %)"
        after = at + cycles < 0.8 * total
        ax.annotate(
            text,
            (at + cycles if after else at, row),
            xytext=(4 if after else -4, 0),
            textcoords="offset points",
            va="center",
            ha="left" if after else "right",
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


def _load(ax: Axes, profile: Profile) -> None:
    below = np.zeros(len(profile.tile_memory), np.int64)
    for kind in ("exchange", "compute"):
        cycles = [phase.tile_cycles for phase in profile.phases if phase.kind == kind]
        top = sum(cycles, start=below)
        ax.stairs(top, baseline=below, fill=True, color=_COLORS[kind], linewidth=0)
        below = top
    mean = profile.tile_cycles.mean()
    ax.axhline(mean, color="black", linewidth=0.9, linestyle=":")
    ax.set_title(
        f"work of each tile: mean {mean:,.0f}, most {profile.tile_cycles.max():,} cycles",
        fontsize="medium",
        loc="left",
    )
    _by_tile(ax, len(below), "cycles")


def _memory(ax: Axes, profile: Profile) -> None:
    limit, most = profile.machine.memory_per_tile, int(profile.tile_memory.max())
    ax.stairs(profile.tile_memory, fill=True, color="#4f9d69", linewidth=0)
    ax.axhline(limit, color="#b3261e", linewidth=1.1, linestyle="--")
    ax.annotate(
        f"a tile has {limit:,}",
        (0, limit),
        xytext=(3, -3),
        textcoords="offset points",
        va="top",
        color="#b3261e",
    )
    ax.set_title(
        f"most memory of each tile: at most {most:,} bytes,\nin {profile.peak_step}",
        fontsize="medium",
        loc="left",
    )
    _by_tile(ax, len(profile.tile_memory), "bytes")


def _by_tile(ax: Axes, tiles: int, unit: str) -> None:
    ax.set(xlabel="tile", ylabel=unit)
    ax.set_xlim(0, tiles)
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.grid(axis="y", color="#d8d8d8", linewidth=0.6)
