"""The pictures of areas of `sparsetile reproduce popsparse`: heat maps and stacked bars."""

from collections.abc import Sequence
from math import log2
from typing import Any

import numpy as np

from sparsetile.bench._plot_style import FAINT, LOSS, block_style, panels
from sparsetile.bench._reproduce_figures import at, of, split

Row = dict[str, Any]
_MISSING = "#e9eaec"
_OFF = 0.25  # ratios further from 1 are written out
_HATCHED = 12  # phases of more colours than eyes tell apart


def grid_figure(rows: Sequence[Row]) -> Any:
    """Static over dense: published, ours, and ours over published."""
    blocks = [b for (b,), _ in split(rows, "blocksize")]
    lines = [key for key, _ in split(rows, "density", "m")]
    batches = sorted({row["n"] for row in rows})
    kinds = (("published", "PopSparse"), ("ours", "model"), ("ratio", "model / PopSparse"))
    first = {density: m for density, m in reversed(lines)}
    labels = [f"{d}, {m}" if first[d] == m else str(m) for d, m in lines]

    def paint(figure: Any, axes: list[Any]) -> None:
        for i, ax in enumerate(axes):
            kind, title = kinds[i // len(blocks)]
            cells = np.full((len(lines), len(batches)), np.nan)
            for row in of(rows, blocksize=blocks[i % len(blocks)]):
                if row[kind] is not None:
                    place = lines.index((row["density"], row["m"])), batches.index(row["n"])
                    cells[place] = row[kind]
            top = 1.0 if kind == "ratio" else 3.3
            shown = ax.imshow(np.log2(cells), aspect="auto", cmap=_colors(), vmin=-top, vmax=top)
            for (y, x), value in np.ndenumerate(cells):
                if np.isnan(value) or (kind == "ratio" and abs(value - 1) > _OFF):
                    text = "–" if np.isnan(value) else f"{value:.2f}"
                    ax.text(x, y, text, ha="center", va="center", fontsize=6.5)
            if (i + 1) % len(blocks) == 0:
                ticks = (-1, 0, 1) if kind == "ratio" else (-3, -2, -1, 0, 1, 2, 3)
                bar = figure.colorbar(shown, ax=ax, pad=0.03, aspect=30)
                bar.set_ticks(ticks, labels=[f"{2.0**t:g}×" for t in ticks])
                bar.ax.tick_params(labelsize=7)
                bar.outline.set_visible(False)
            ax.set_xticks(range(len(batches)), [str(n) for n in batches], fontsize=6.5)
            ax.set_yticks(range(len(lines)), labels, fontsize=6.5)
            ax.grid(visible=False)
            ax.tick_params(length=0)
            ax.set(xlabel="n", ylabel="density, m = k")
            ax.set_title(f"{title}, b = {blocks[i % len(blocks)]}", fontsize=8.5)
            ax.label_outer()

    titles = (
        "Static over dense, float16: published, ours, and the ratio of the two",
        "blue: sparse wins, or the model is too fast; –: no room; ratios beyond 25 % in digits",
    )
    return panels(3 * len(blocks), 2.9, paint, titles=titles, across=len(blocks))


def regions_figure(rows: Sequence[Row]) -> Any:
    """Where sparse wins at best n, with the regions that the authors name."""
    kinds = split(rows, "mode", "blocksize")
    sizes = sorted({row["m"] for row in rows})
    densities = sorted({row["density"] for row in rows}, key=at)

    def paint(figure: Any, axes: list[Any]) -> None:
        from matplotlib.patches import Rectangle

        for ax, ((mode, b), part) in zip(axes, kinds, strict=True):
            cells = np.full((len(sizes), len(densities)), np.nan)
            for row in part:
                y, x = sizes.index(row["m"]), densities.index(row["density"])
                if row["speedup"]:
                    cells[y, x] = log2(row["speedup"])
                text = f"{row['speedup']:.1f}" if row["speedup"] else "–"
                ax.text(x, y, text, ha="center", va="center", fontsize=7)
                if row["said_to_win"] == "yes":
                    ax.add_patch(
                        Rectangle((x - 0.47, y - 0.46), 0.94, 0.92, fill=False, lw=1.4, ec="black")
                    )
            ax.imshow(cells, aspect="auto", cmap=_colors(), vmin=-3.3, vmax=3.3)
            ax.set_xticks(range(len(densities)), densities, fontsize=7)
            ax.set_yticks(range(len(sizes)), [str(m) for m in sizes], fontsize=7)
            ax.grid(visible=False)
            ax.tick_params(length=0)
            ax.set(xlabel="density", ylabel="m = k")
            ax.set_title(f"{mode}, b = {b}", fontsize=9)
            ax.label_outer()

    titles = ("Where sparse beats dense, float16, best n: the model's speed-up",
              "framed: where the authors of PopSparse say that it does")  # fmt: skip
    return panels(len(kinds), 2.3, paint, titles=titles, across=max(1, len(kinds) // 2))


def phases_figure(rows: Sequence[Row]) -> Any:
    """Cycles of each phase, as shares."""
    modes = list(dict.fromkeys(row["mode"] for row in rows))

    def paint(figure: Any, axes: list[Any]) -> None:
        from matplotlib import colormaps

        palette = colormaps["tab20"](range(20))
        for ax, mode in zip(axes, modes, strict=True):
            part = of(rows, mode=mode)
            names = list(dict.fromkeys(row["phase"] for row in part))
            bars = split(part, "blocksize", "density", "m", "n")
            left = np.zeros(len(bars))
            for i, name in enumerate(names):
                widths = [sum(r["cycles"] for r in of(cell, phase=name)) for _, cell in bars]
                whole = [sum(r["cycles"] for r in cell) for _, cell in bars]
                shares = np.array(widths) / whole
                hatch = "///" if i >= _HATCHED else ""
                ax.barh(range(len(bars)), shares, left=left, color=palette[i % 20], hatch=hatch,
                        label=name, ec="white", lw=0.4)  # fmt: skip
                left += shares
            for y, (_, cell) in enumerate(bars):
                total = sum(row["cycles"] for row in cell)
                ax.text(1.01, y, f"{total:,.0f}", va="center", fontsize=7.5)
            labels = [f"b = {b}, {d}\nm = {m}, n = {n}" for (b, d, m, n), _ in bars]
            ax.set_yticks(range(len(bars)), labels, fontsize=7)
            ax.invert_yaxis()
            ax.set(xlim=(0, 1.16), xlabel="share of the cycles; their number on the right")
            ax.set_title(mode, fontsize=10)
            ax.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.45, -0.16))

    titles = ("Where the cycles go, phase by phase", "the model's; PopSparse prints none of these")
    return panels(len(modes), 4.6, paint, titles=titles, across=1, sharey=False)


def what_if_figure(rows: Sequence[Row]) -> Any:
    """TFLOP/s on other machines, over those on the first, against density."""
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    base = {_place(row): row["tflops"] for row in of(rows, machine=machines[0])}
    kinds = split(rows, "mode", "m")

    def paint(figure: Any, axes: list[Any]) -> None:
        names = machines[1:]
        for ax, ((mode, m), part) in zip(axes, kinds, strict=True):
            for (b,), line in split([r for r in part if r["tflops"]], "blocksize"):
                for i, machine in enumerate(names):
                    gains = [
                        (i + (at_place - 1.5) * 0.18, row["tflops"] / base[_place(row)])
                        for at_place, row in enumerate(of(line, machine=machine))
                        if base[_place(row)]
                    ]
                    style = block_style((b, b)) | {"linestyle": "-", "linewidth": 0.8}
                    label = f"b = {b}" if i == 0 else "_"
                    ax.plot([g[0] for g in gains], [g[1] for g in gains], label=label, **style)
            ax.axhline(1, color=FAINT, lw=1)
            ax.set_yscale("log", base=2)
            ax.set_yticks([0.5, 0.71, 1, 1.41, 2], ["0.5", "0.7", "1", "1.4", "2"])
            ax.minorticks_off()
            ax.set_xticks(range(len(names)), [n.replace(" the ", "\n") for n in names], fontsize=8)
            ax.set(xlabel="", ylabel="times the TFLOP/s of a Bow IPU")
            ax.set_title(f"{mode}, m = k = {m}", fontsize=9)
            ax.label_outer()
        axes[0].legend(fontsize=7.5, ncols=2)

    titles = ("What if the machine were another? TFLOP/s on stored values, best n",
              "four marks of a line: densities 1/4, 1/8, 1/16, 1/32")  # fmt: skip
    return panels(len(kinds), 2.6, paint, titles=titles, across=2)


def _place(row: Row) -> tuple[Any, ...]:
    return row["mode"], row["blocksize"], row["density"], row["m"]


def _colors() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    colors = LinearSegmentedColormap.from_list(
        "sides", [(0, LOSS), (0.3, "#e8806f"), (0.5, "#fdf6f0"), (0.7, "#8fc1e3"), (1, "#0b4a86")]
    )
    return colors.with_extremes(bad=_MISSING)
