"""GFLOP/s against arithmetic intensity, under what the processor and its memory allow."""

from collections.abc import Sequence
from dataclasses import fields
from statistics import median
from typing import Any

from sparsetile.bench._bench_case import Case
from sparsetile.bench._bench_row import work
from sparsetile.bench._bench_time import Timed
from sparsetile.bench._peers import DENSE, OWN
from sparsetile.bench._plot_rows import Row, block_text, count, split
from sparsetile.bench._plot_style import FAINT, INK, block_style, panels

COLUMNS = (
    "peer", "n", "r", "c", "density", "flops_per_byte", "gflops", "peak_fraction", "bound",
)  # fmt: skip
_MARKS = "osD^vPX*"
_FROM = {"memory": (("memory",), "-"), "caches": (("l2", "l3"), "--")}  # bounds, and dashes


def has_roofline(rows: Sequence[Row]) -> bool:
    """Whether the peak was measured for these rows."""
    return any(row.peer == OWN for row in _timed(rows))


def intensity(row: Row) -> float:
    """Floating point operations for each byte of operands and result, each moved once."""
    case = Case(*(getattr(row, field.name) for field in fields(Case)))
    flops, moved, _ = work(case, Timed(row.peer, nnzb=row.nnzb))
    return flops / moved


def roofline_numbers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What the picture shows, one line a point."""
    return [
        {
            name: intensity(row) if name == "flops_per_byte" else getattr(row, name)
            for name in COLUMNS
        }
        for row in _timed(rows)
    ]


def roofline_figure(rows: Sequence[Row], subtitle: str) -> Any:
    """Draw the points of one setting under their roof.

    Args:
        rows: Rows of one setting.
        subtitle: What was measured, and where.

    Returns:
        The matplotlib Figure.
    """
    shown = _timed(rows)
    ours = [row for row in shown if row.peer == OWN]
    peak = median(row.gflops / row.peak_fraction for row in ours)
    share = sorted(row.peak_fraction for row in ours)
    title = (
        f"Up to {share[-1]:.0%} of the measured peak of {peak:.0f} GFLOP/s; "
        f"median of {count(len(ours), 'cell')} {median(share):.0%}"
    )

    def paint(figure: Any, axes: list[Any]) -> None:
        ax = axes[0]
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        batches = list(split(shown, lambda row: row.n))
        marks = {n: _MARKS[i % len(_MARKS)] for i, n in enumerate(batches)}
        for row in [*_best_dense(shown), *ours]:
            dense = row.peer != OWN
            ax.plot(
                [intensity(row)], [row.gflops], marks[row.n], markersize=6.5,
                color=FAINT if dense else block_style(row.block)["color"],
                markerfacecolor="none" if dense else None,
                markeredgecolor=FAINT if dense else "white", markeredgewidth=1.0 if dense else 0.5,
                linestyle="none",
            )  # fmt: skip
        _roof(ax, ours, peak)
        ax.set_xlabel("arithmetic intensity (FLOP/byte, every operand moved once)")
        ax.set_ylabel("effective speed (GFLOP/s)")
        _ticks(ax)
        _legend(ax, ours, marks)

    return panels(1, 4.4, paint, titles=(title, subtitle))


def _timed(rows: Sequence[Row]) -> list[Row]:
    return [
        row for row in rows if row.peer in (OWN, DENSE) and row.gflops > 0 and row.peak_fraction > 0
    ]


def _best_dense(rows: Sequence[Row]) -> list[Row]:
    """Dense does the same work in every cell of a batch: its best time says enough."""
    dense = split((row for row in rows if row.peer == DENSE), lambda row: row.n)
    return [max(batch, key=lambda row: row.gflops) for batch in dense.values()]


def _roof(ax: Any, ours: Sequence[Row], peak: float) -> None:
    left, right = ax.get_xlim()
    bottom, top = ax.get_ylim()
    left, bottom = min(left, right / 32), min(bottom, peak / 8)
    corners = []
    for name, (levels, dashes) in _FROM.items():
        bytes_per_ns = [row.gflops / intensity(row) for row in ours if row.bound in levels]
        if bytes_per_ns:
            fastest = max(bytes_per_ns)
            corners.append(peak / fastest)
            ax.plot(
                [bottom / fastest / 4, corners[-1]], [bottom / 4, peak], dashes, color=INK,
                linewidth=1.3, label=f"from {name}, {fastest:.0f} GB/s seen",
                scalex=False, scaley=False,
            )  # fmt: skip
    ax.plot([min(corners, default=left), right], [peak, peak], color=INK, linewidth=1.3)
    ax.annotate(
        f"measured peak, {peak:.0f} GFLOP/s", (right, peak), (-4, 4), ha="right",
        va="bottom", textcoords="offset points", fontsize=9, color=INK,
    )  # fmt: skip
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, max(top, peak) * 1.35)


def _ticks(ax: Any) -> None:
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()


def _legend(ax: Any, ours: Sequence[Row], marks: dict[int, str]) -> None:
    from matplotlib.lines import Line2D

    def dot(color: str, mark: str, label: str, *, hollow: bool = False) -> Line2D:
        return Line2D(
            [], [], color=color, marker=mark, linestyle="none", label=label,
            markerfacecolor="none" if hollow else color,
        )  # fmt: skip

    colors: dict[str, list[str]] = {}
    for block in split(ours, lambda row: row.block):
        colors.setdefault(block_style(block)["color"], []).append(block_text(block))
    handles = [dot(color, "o", "\n".join(names)) for color, names in colors.items()]
    handles += [dot(INK, mark, f"n = {n}") for n, mark in marks.items()]
    handles.append(dot(FAINT, "o", "torch dense", hollow=True))
    handles += [line for line in ax.get_lines() if not line.get_label().startswith("_")]
    ax.legend(handles=handles, fontsize=9, loc="center left", bbox_to_anchor=(1.01, 0.5))
