"""The picture of a plan, drawn with matplotlib, which is imported on the first call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sparsetile.matrix import Pattern
from sparsetile.plan._cost import Cost
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.static._plan import StaticPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png", ".pdf")
COLORS = {"exchange": "#e0701b", "compute": "#2f7fc1", "other": "#7a7f87"}
_EXCHANGED = ("xchange", "Placement", "Propagation")
_OTHER = ("Uneven", "Order", "Rearrangement", "Sync")


def draw_plan(
    plan: StaticPlan | DynamicPlan, path: str | Path, pattern: Pattern | None = None
) -> None:
    """Write a picture of a plan: what each tile has, how full tiles are, and what costs how much.

    Args:
        plan: The plan.
        path: A file that ends in `.svg`, `.png` or `.pdf`.
        pattern: For a dynamic plan, a pattern of its shape and blocks, to show how it lies in the
            plan's parts; a static plan has its own.

    Raises:
        ValueError: If the file ends otherwise, or the pattern is not one that was planned for.
        ImportError: If matplotlib is missing; `pip install 'sparsetile[plot]'` brings it.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> with TemporaryDirectory() as folder:
        ...     draw_plan(small_plan(), Path(folder, "plan.svg"), small_matrix().pattern)
        ...     Path(folder, "plan.svg").stat().st_size > 1000
        True
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"a picture of the plan was asked for as {path.name!r}; it can be written as "
            f"{', '.join(SUFFIXES)}: end the name in one of these"
        )
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as missing:
        raise ImportError(
            "draw needs matplotlib, which is not installed; 3.9 or newer will do: "
            "pip install 'sparsetile[plot]'"
        ) from missing
    from sparsetile.plan._picture_dynamic import paint_dynamic
    from sparsetile.plan._picture_static import paint_static

    with matplotlib.rc_context(
        {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "sparsetile"}
    ):
        figure = Figure(figsize=(10.5, 6.6), layout="constrained")
        axes = figure.subplot_mosaic(
            [["matrix", "load"], ["matrix", "cost"]], width_ratios=[1.35, 1], height_ratios=[1, 1.5]
        )
        for name in ("load", "cost"):
            axes[name].spines[["top", "right"]].set_visible(False)
            axes[name].set_axisbelow(True)
        if isinstance(plan, StaticPlan):
            figure.suptitle(paint_static(plan, axes["matrix"], axes["load"]))
            paint_cost(axes["cost"], plan.cost, "Cycles")
        else:
            figure.suptitle(paint_dynamic(plan, pattern, axes["matrix"], axes["load"]))
            if plan.costs:
                paint_cost(axes["cost"], plan.costs[0][1], "Cycles of the forward product")
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure.savefig(path, dpi=150, metadata=metadata)


def paint_cost(ax: Axes, cost: Cost, title: str) -> None:
    """Bars of the phases that take any time, one under the other.

    Args:
        ax: Where.
        cost: What to show.
        title: Of the bars; the sum is added.
    """
    from matplotlib.patches import Patch

    terms = [term for term in cost.terms if round(term.cycles)]
    kinds = [_kind(term.name) for term in terms]
    for row, (term, kind) in enumerate(zip(terms, kinds, strict=True)):
        ax.barh(row, term.cycles, height=0.7, color=COLORS[kind], linewidth=0)
        ax.annotate(
            f"{term.cycles:,.0f}  ({100 * term.cycles / cost.cycles:.0f} %)",
            (term.cycles, row),
            xytext=(4, 0),
            textcoords="offset points",
            va="center_baseline",
        )
    ax.set_yticks(range(len(terms)), [_wrapped(term.name) for term in terms])
    ax.set_ylim(len(terms) - 0.4, -0.6)
    ax.set_xlim(0, 1.4 * max((term.cycles for term in terms), default=1.0))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.locator_params(axis="x", nbins=4)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color="#d8d8d8", linewidth=0.6)
    ax.set_title(f"{title}: {cost.cycles:,.0f}", loc="left", fontsize="medium")
    names = {"exchange": "exchange", "compute": "compute", "other": "beyond the planner's formulas"}
    ax.legend(
        handles=[Patch(color=COLORS[k], label=n) for k, n in names.items() if k in kinds],
        loc="upper left",
        frameon=False,
        ncols=3,
        fontsize="small",
        bbox_to_anchor=(-0.45, -0.08),
        handlelength=1.0,
        columnspacing=1.0,
    )


def _kind(name: str) -> str:
    if name.startswith(_OTHER):
        return "other"
    return "exchange" if any(word in name for word in _EXCHANGED) else "compute"


def _wrapped(name: str) -> str:
    """Long names on two lines."""
    if len(name) < 24:
        return name
    cut = name.find(" ", len(name) // 2 - 4)
    return f"{name[:cut]}\n{name[cut + 1 :]}"
