"""The pictures of the comparison: loss against operations, seconds and bytes; coverage."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsetile.bench._plot_style import FAINT, INK, block_style, panels
from sparsetile.bench.dynsparse._chosen import Row
from sparsetile.bench.dynsparse._curve import loss_at

LABELS = {"dense": "dense", "static": "static", "dynsparse": "dynamic", "rigl": "RigL"}
_LINE = ("method", "blocksize", "width", "objective")
_MARKS = {"static": ("o", "white"), "dynsparse": ("o", None), "rigl": ("^", "white")}
_DASHES = {"static": ":", "dynsparse": "-", "rigl": "--"}
_AXES = {  # label, and what one unit of the axis is
    "flops": ("MFLOP a step and row, embedding and head left out", 1e6),
    "all_flops": ("MFLOP a step and row, embedding and head too", 1e6),
    "block_bytes": ("MB of the blocks' matrices in training", 1e6),
    "all_bytes": ("MB of the whole model in training", 1e6),
    "seconds": ("seconds of one core for the run", 1.0),
}


def flops_figure(lines: Sequence[Row]) -> Any:
    """Final loss against operations."""
    return _costs(lines, ("flops", "all_flops"), "Final loss against operations")


def bytes_figure(lines: Sequence[Row]) -> Any:
    """Final loss against bytes."""
    return _costs(lines, ("block_bytes", "all_bytes"), "Final loss against bytes")


def seconds_figure(lines: Sequence[Row], points: Sequence[Row]) -> Any:
    """Loss against seconds: at the end of the runs, and on the way there.

    Args:
        lines: One row for each line of the comparison.
        points: One row for each line and each time it was judged, with its `seconds`.
    """

    def paint(figure: Any, axes: list[Any]) -> None:
        ends, way = axes
        _cost_axes(ends, lines, "seconds")
        legend(ends)
        for line in lines:
            mine = [p for p in points if all(p[name] == line[name] for name in _LINE)]
            if _dense(line):
                look = {"color": FAINT, "linestyle": "-", "linewidth": 1.2}
            else:
                color = block_style((line["blocksize"],) * 2)["color"]
                look = {"color": color, "linestyle": _DASHES[line["method"]], "linewidth": 1.4}
            way.plot([p["seconds"] for p in mine], [p["loss"] for p in mine], **look)
            if _dense(line) and mine:
                way.annotate(
                    f"{line['width']}", (mine[-1]["seconds"], mine[-1]["loss"]), xytext=(3, -3),
                    textcoords="offset points", fontsize=8, color=FAINT,
                )  # fmt: skip
        log_axes(way)
        way.set_xlabel("seconds of one core", fontsize=9)
        way.set_title("on the way: grey dense, dotted static, solid dynamic", fontsize=9)

    titles = ("Loss against seconds", _note(lines))
    return panels(2, 4.2, paint, titles=titles, sharex=False, sharey=False)


def coverage_figure(points: Sequence[Row]) -> Any:
    """How much has been tried, and how much of what is dropped was grown just before."""

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, column, label in (
            (axes[0], "coverage", "share of the positions ever stored"),
            (axes[1], "wasted", "share of dropped blocks grown the update before"),
        ):
            for method, blocksize in dict.fromkeys((p["method"], p["blocksize"]) for p in points):
                if method == "dense" or (column == "wasted" and method == "static"):
                    continue
                mine = [p for p in points if (p["method"], p["blocksize"]) == (method, blocksize)]
                ax.plot(
                    [p["step"] for p in mine],
                    [p[column] for p in mine],
                    color=block_style((blocksize, blocksize))["color"],
                    linestyle=_DASHES[method],
                    label=f"{LABELS[method]} {blocksize}×{blocksize}",
                )
            ax.set_ylim(0, None)
            ax.set_xlabel("step")
            ax.set_title(label, fontsize=10)
            legend(ax)

    titles = ("What has been tried, and what was tried in vain", "mean over layers and seeds")
    return panels(2, 3.6, paint, titles=titles, sharey=False)


def _costs(lines: Sequence[Row], costs: tuple[str, str], title: str) -> Any:
    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, cost in zip(axes, costs, strict=True):
            _cost_axes(ax, lines, cost)
        axes[1].set_ylabel("")
        legend(axes[1])

    return panels(2, 4.2, paint, titles=(title, _note(lines)), sharex=False)


def _cost_axes(ax: Any, lines: Sequence[Row], cost: str) -> None:
    label, unit = _AXES[cost]
    known = [line for line in lines if line[cost] is not None]
    dense = sorted((line[cost] / unit, line["loss"]) for line in known if _dense(line))
    if len(dense) > 1:
        x = np.geomspace(dense[0][0], dense[-1][0], 60)
        ax.plot(x, [loss_at(dense, at) for at in x], color=FAINT, linewidth=1.2)
    for line in known:
        if _dense(line):
            look: dict[str, Any] = {"color": INK, "marker": "s", "label": f"dense {line['width']}"}
        else:
            marker, face = _MARKS[line["method"]]
            b = line["blocksize"]
            look = {"color": block_style((b, b))["color"], "marker": marker}
            look |= {"markerfacecolor": face} if face else {}
            look["label"] = f"{LABELS[line['method']]} {b}×{b}"
        ax.errorbar(
            line[cost] / unit, line["loss"], yerr=line["sd"], linestyle="none", markersize=6,
            capsize=2, elinewidth=1, **look,
        )  # fmt: skip
    log_axes(ax, y=True)
    ax.set_xlabel(label, fontsize=9)
    ax.set_ylabel("held-out loss, nats a token")


def log_axes(ax: Any, y: bool = False) -> None:
    """Make axes logarithmic, with ticks that are plain numbers."""
    from matplotlib.ticker import FixedLocator, LogLocator

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    if y:
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        step = 0.05 if high - low < 0.6 else 0.1
        ax.yaxis.set_major_locator(FixedLocator([step * place for place in range(1, 200)]))
        ax.yaxis.set_major_formatter("{x:.2f}")
        ax.set_ylim(low, high)
    ax.minorticks_off()


def legend(ax: Any, columns: int = 2) -> None:
    """Say what is drawn, if anything is."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=7.5, ncols=columns)


def _dense(line: Row) -> bool:
    return bool(line["method"] == "dense")


def _note(lines: Sequence[Row]) -> str:
    steps = {line["steps"] for line in lines}
    seeds = sorted({line["seeds"] for line in lines})
    said = f"{min(steps, default=0):,} steps each; "
    return said + f"mean ± standard deviation over {'–'.join(map(str, seeds))} seeds"
