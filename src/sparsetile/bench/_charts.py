"""The pictures of the report: SVG text whose ink follows the page, dark or light."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

COLORS = {"dense": "#7a7f87", "static": "#2f7fc1", "dynsparse": "#e0701b"}
LABELS = {"dense": "dense", "static": "static sparse", "dynsparse": "DynSparse"}
# matplotlib wants a colour; these two are swapped for the page's own afterwards.
INK, FAINT = "#010203", "#040506"


def style() -> Any:
    """Settings shared by all pictures."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": "sparsetile",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": FAINT,
        "grid.alpha": 0.35,
        "grid.linewidth": 0.6,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "figure.facecolor": "none",
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.solid_capstyle": "round",
    }


def draw(
    size: tuple[float, float], columns: int, paint: Callable[[Any, Sequence[Any]], None]
) -> str:
    """Make one figure of axes side by side and give its SVG.

    Args:
        size: Inches, wide and high.
        columns: Number of axes.
        paint: Called with the figure and the axes.

    Returns:
        An `<svg>` element whose text and lines take the page's colours.

    Examples:
        >>> draw((2, 1), 1, lambda figure, axes: axes[0].plot([0, 1])).startswith("<svg")
        True
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(style()):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False)[0]
        paint(figure, list(axes))
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = svg.replace(INK, "currentColor").replace(FAINT, "var(--faint, #8a8a8a)")
    # The page says how wide the picture is; the viewBox keeps its shape.
    return re.sub(
        r'(<svg[^>]*?) height="[^"]*"',
        r"\1",
        re.sub(r' width="[\d.]+pt"', "", svg, count=1),
        count=1,
    )


def loss_chart(
    judged: Mapping[str, Sequence[tuple[float, float]]],
    trained: Mapping[str, Sequence[tuple[float, float]]],
    across: str,
) -> str:
    """Held-out loss as lines with marks, training loss (smoothed) as faint lines behind.

    Args:
        judged: For each run, (place, held-out loss).
        trained: For each run, (place, training loss).
        across: What the places are: label of the horizontal axis.

    Returns:
        The SVG.
    """

    def paint(figure: Any, axes: Sequence[Any]) -> None:
        ax = axes[0]
        for name, points in trained.items():
            if len(points) > 1:
                x, y = np.array(points).T
                ax.plot(x, smooth(y), color=COLORS[name], alpha=0.35, linewidth=1.0)
        tops = []
        for name, points in judged.items():
            if points:
                x, y = np.array(points).T
                ax.plot(x, y, "o-", color=COLORS[name], label=LABELS[name], markersize=3.5)
                tops.append(np.nanmax(y))
        if tops:
            # The first steps fall from ln(vocabulary): they would flatten all that follows.
            ax.set_ylim(top=max(tops) * 1.03)
            ax.legend()
        ax.set_xlabel(across)
        ax.set_ylabel("loss (nats per token)")
        ax.set_xlim(left=0)

    return draw((5.2, 3.5), 1, paint)


def smooth(values: Float[ndarray, " s"], span: int = 25) -> Float[ndarray, " s"]:
    """Running mean over the last `span` values, or fewer at the start."""
    total = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(0, ends - span)
    return (total[ends] - total[starts]) / (ends - starts)


def bar_chart(values: Mapping[str, float], label: str, show: Callable[[float], str]) -> str:
    """One bar for each run, its value beside it."""

    def paint(figure: Any, axes: Sequence[Any]) -> None:
        ax = axes[0]
        names = list(values)
        bars = ax.barh(
            [LABELS[n] for n in names], list(values.values()), color=[COLORS[n] for n in names]
        )
        ax.bar_label(bars, [show(v) for v in values.values()], padding=4)
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.margins(x=0.25)
        ax.set_xlabel(label)

    return draw((5.2, 1.7), 1, paint)


def memory_chart(parts: Mapping[str, Mapping[str, float]]) -> str:
    """Stacked bars of megabytes: kinds within runs."""
    shades = {"weights": 1.0, "indices": 0.8, "gradients": 0.6, "optimizer": 0.35}

    def paint(figure: Any, axes: Sequence[Any]) -> None:
        ax = axes[0]
        names = list(parts)
        left = np.zeros(len(names))
        for kind, alpha in shades.items():
            width = np.array([parts[n].get(kind, 0.0) / 1e6 for n in names])
            ax.barh(
                [LABELS[n] for n in names],
                width,
                left=left,
                color=[COLORS[n] for n in names],
                alpha=alpha,
            )
            left += width
        for row, total in enumerate(left):
            ax.text(total, row, f"  {total:.1f} MB", va="center")
        ax.invert_yaxis()
        ax.grid(axis="y", visible=False)
        ax.margins(x=0.25)
        ax.set_xlabel("MB")

    return draw((5.2, 1.7), 1, paint)


def pattern_chart(pictures: Sequence[tuple[str, Bool[ndarray, "mb kb"]]]) -> str:
    """Small multiples of one pattern; blocks that were not there at the start are orange."""
    from matplotlib.colors import ListedColormap

    colors = ListedColormap(["#00000000", COLORS["static"], COLORS["dynsparse"]])
    start = pictures[0][1]

    def paint(figure: Any, axes: Sequence[Any]) -> None:
        for ax, (title, mask) in zip(axes, pictures, strict=True):
            ax.imshow(
                mask * np.where(start, 1, 2), cmap=colors, vmin=0, vmax=2, interpolation="none"
            )
            ax.set_title(title, fontsize=9)
            ax.set_xticks([])
            ax.set_yticks([])
            ax.grid(visible=False)
            for spine in ax.spines.values():
                spine.set_visible(True)

    height, width = start.shape
    return draw((2.1 * len(pictures), 2.1 * min(2.5, height / width) + 0.3), len(pictures), paint)
