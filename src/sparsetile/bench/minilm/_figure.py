"""The picture: quality against latency."""

from collections.abc import Sequence
from typing import Any

from sparsetile.bench._plot_style import FAINT, INK, block_style, panels
from sparsetile.bench.minilm._contenders import DENSE
from sparsetile.bench.minilm._joined import Row

_MARKS = {
    "magnitude": ("v", "white"),
    "magnitude+solve": ("v", None),
    "wanda": ("s", "white"),
    "wanda+solve": ("s", None),
    "sparsegpt": ("o", "white"),
    "sparsegpt+solve": ("o", None),
}
_DASHES = ("-", "--", ":")


def quality_figure(points: Sequence[Row], times: Sequence[Row], title: str) -> Any:
    """Cosine against milliseconds, a panel for each batch; dense models are vertical lines.

    Args:
        points: Rows of `joined`.
        times: Rows of `timing.csv`.
        title: What came out.

    Returns:
        The matplotlib Figure.
    """
    batches = sorted({row["batch"] for row in points})

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, batch in zip(axes, batches, strict=True):
            dense = [r for r in times if r["batch"] == batch and r["density"] is None and r["ms"]]
            for row, dash in zip(dense, _DASHES, strict=False):
                strong = INK if row["name"] == DENSE else FAINT
                ax.axvline(row["ms"], color=strong, linestyle=dash, linewidth=1, label=row["name"])
            for row in (r for r in points if r["batch"] == batch):
                _point(ax, row)
            ax.set_xscale("log")
            ax.set_xlabel("ms a batch")
            ax.set_ylim(None, 1.02)
            ax.set_title(f"batch {batch}", fontsize=10)
        axes[0].set_ylabel("mean cosine to the dense embedding")
        _keys(axes[-1], points)

    note = "numbers are densities; models of one density and block size store as many blocks"
    return panels(len(batches), 4.6, paint, titles=(title, note), sharex=False)


def _point(ax: Any, row: Row) -> None:
    b = row["blocksize"]
    color = block_style((b, b))["color"]
    marker, face = _MARKS.get(row["method"], ("D", None))
    if row["recovery"]:
        marker, face = "*", None
    look = {"marker": marker, "color": color, "markersize": 10 if row["recovery"] else 5}
    look |= {"markerfacecolor": face} if face else {}
    ax.plot([row["ms"]], [row["cosine"]], linestyle="", **look)
    if row["recovery"] or row["method"] == "sparsegpt":
        ax.annotate(
            f"{row['density']:g}", (row["ms"], row["cosine"]), xytext=(4, 2),
            textcoords="offset points", fontsize=7, color=FAINT,
        )  # fmt: skip


def _keys(ax: Any, points: Sequence[Row]) -> None:
    """What colours and marks mean, drawn where there is nothing."""
    for b in sorted({row["blocksize"] for row in points}):
        color = block_style((b, b))["color"]
        ax.plot([], [], color=color, linewidth=4, label=f"blocks {b}×{b}")
    for name in dict.fromkeys(row["method"] for row in points):
        marker, face = _MARKS.get(name, ("D", None))
        look = {"markerfacecolor": face} if face else {}
        ax.plot([], [], color=INK, marker=marker, linestyle="", markersize=5, label=name, **look)
    if any(row["recovery"] for row in points):
        ax.plot([], [], color=INK, marker="*", linestyle="", markersize=10, label="recovered")
    ax.legend(fontsize=7, frameon=False, loc="lower right")
