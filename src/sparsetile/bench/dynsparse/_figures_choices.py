"""The pictures of single choices: learning rate, time between updates, share moved, score."""

from collections.abc import Sequence
from typing import Any

from sparsetile.bench._plot_style import block_style, panels
from sparsetile.bench.dynsparse._chosen import Row
from sparsetile.bench.dynsparse._figures import LABELS, legend

_GREYS = ("#b5bac1", "#7a7f87", "#24292f")


def sweeps_figure(rows: Sequence[Row]) -> Any:
    """Final loss of short runs against the learning rate."""
    methods = list(dict.fromkeys(row["method"] for row in rows))

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, method in zip(axes, methods, strict=True):
            mine = [row for row in rows if row["method"] == method]
            for place, line in enumerate(dict.fromkeys((r["blocksize"], r["width"]) for r in mine)):
                part = sorted(
                    (r for r in mine if (r["blocksize"], r["width"]) == line),
                    key=lambda row: float(row["lr"]),
                )
                if method == "dense":
                    look = {"color": _GREYS[place % len(_GREYS)], "label": f"width {line[1]}"}
                else:
                    color = block_style((line[0], line[0]))["color"]
                    look = {"color": color, "label": f"{line[0]}×{line[0]}"}
                x = [row["lr"] for row in part]
                ax.plot(x, [row["loss"] for row in part], marker="o", markersize=4, **look)
                best = min(part, key=lambda row: float(row["loss"]))
                ax.plot(best["lr"], best["loss"], "o", markersize=9, mfc="none", mec=look["color"])
            ax.set_xscale("log", base=2)
            ticks = sorted({row["lr"] for row in rows})
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.set_title(LABELS[method], fontsize=10)
            ax.set_xlabel("highest learning rate")
            legend(ax, 1)
        axes[0].set_ylabel("held-out loss, nats a token")

    titles = (
        "Every line has a learning rate of its own",
        f"seed 0, {max((row['steps'] for row in rows), default=0):,} steps; rings: what is used",
    )
    return panels(len(methods), 3.6, paint, titles=titles)


def updates_figure(rows: Sequence[Row]) -> Any:
    """Final loss and coverage against the steps between updates."""
    return _choice(rows, "every", "steps between updates", "How often to move blocks", log=True)


def ratio_figure(rows: Sequence[Row]) -> Any:
    """Final loss and coverage against the share that is moved at first."""
    return _choice(rows, "prune_ratio", "share moved at first", "How many blocks to move")


def norm_figure(rows: Sequence[Row]) -> Any:
    """Final loss by how blocks are scored."""
    labels = {"l1": "sum of magnitudes", "l2": "root of squares", "max": "largest magnitude"}

    def paint(figure: Any, axes: list[Any]) -> None:
        (ax,) = axes
        for place, row in enumerate(rows):
            color = block_style((row["blocksize"],) * 2)["color"]
            ax.plot(place, row["loss"], "o", color=color, markersize=9)
            ax.annotate(
                f"{row['loss']:.3f}",
                (place, row["loss"]),
                xytext=(9, -3),
                textcoords="offset points",
                fontsize=9,
            )
        ax.set_xticks(range(len(rows)), [labels[row["drop"]] for row in rows])
        ax.set_xlim(-0.5, len(rows) - 0.3)
        ax.margins(y=0.3)
        ax.set_ylabel("held-out loss, nats a token")

    return panels(1, 3.0, paint, titles=("Which blocks are weak", _told(rows)))


def _choice(rows: Sequence[Row], x: str, label: str, title: str, log: bool = False) -> Any:
    def paint(figure: Any, axes: list[Any]) -> None:
        for b in dict.fromkeys(row["blocksize"] for row in rows):
            mine = sorted(
                (row for row in rows if row["blocksize"] == b and row["method"] != "static"),
                key=lambda row: float(row[x]),
            )
            look = {"color": block_style((b, b))["color"], "label": f"dynamic {b}×{b}"}
            for ax, column in zip(axes, ("loss", "coverage"), strict=True):
                at = [row[x] for row in mine]
                ax.plot(at, [row[column] for row in mine], marker="o", markersize=4.5, **look)
            for row in rows:
                if row["blocksize"] == b and row["method"] == "static":
                    axes[0].axhline(row["loss"], color=look["color"], linestyle=":", linewidth=1.2)
        for ax in axes:
            if log:
                ax.set_xscale("log")
            ticks = sorted({row[x] for row in rows if row["method"] != "static"})
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
            ax.set_xlabel(label)
            legend(ax, 1)
        axes[0].set_title("held-out loss, nats a token; dotted: static", fontsize=9.5)
        axes[1].set_title("share of the positions ever stored", fontsize=9.5)
        axes[1].set_ylim(0, 1.02)

    return panels(2, 3.4, paint, titles=(title, _told(rows)), sharey=False)


def _told(rows: Sequence[Row]) -> str:
    return f"{max((row['steps'] for row in rows), default=0):,} steps, seed 0"
