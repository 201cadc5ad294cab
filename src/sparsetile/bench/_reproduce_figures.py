"""The pictures of curves of `sparsetile reproduce popsparse`: hollow marks are published."""

from collections.abc import Iterable, Sequence
from typing import Any

from sparsetile.bench._plot_style import FAINT, INK, LOSS, block_style, panels

Row = dict[str, Any]
_COLORS = {"dense": FAINT, "static": "#2f7fc1", "dynamic": "#e0701b"}
_GPU = {("dense", "float16"): ":", ("dense", "float32"): "-.", ("csr", "float16"): "--",
        ("csr", "float32"): (0, (1, 3)), ("bsr", "float32"): (0, (5, 1, 1, 1))}  # fmt: skip
NOTE = "hollow marks: PopSparse (arXiv 2303.16999); lines: the model"


def density_figure(rows: Sequence[Row]) -> Any:
    """TFLOP/s on stored values against density."""

    def paint(figure: Any, axes: list[Any]) -> None:
        ours, gpu = axes
        for (mode, b), line in split(of(rows, device="ipu"), "mode", "blocksize"):
            _both(ours, line, "density", _name(mode, b), _COLORS[mode], _mark(b))
        for (mode, dtype, b), line in split(of(rows, device="gpu"), "mode", "dtype", "blocksize"):
            x, y = _xy(line, "density", "published")
            gpu.plot(
                x, y, marker=_mark(b), mfc="white", ls=_GPU[mode, dtype], color=INK, ms=5,
                label=f"{mode} {dtype}{f', b = {b}' if b else ''}",
            )  # fmt: skip
        for ax, title in ((ours, "IPU"), (gpu, "GPU, published only")):
            _log(ax, "density", "TFLOP/s on stored values")
            ax.set_title(title, fontsize=10)
            ax.set_ylim(0.2, 200)
            ax.legend(fontsize=7.5, ncols=2, loc="lower right" if ax is ours else "upper left")

    return panels(2, 3.9, paint, titles=("TFLOP/s against density, m = k = 4096, best n", NOTE))


def blocks_figure(rows: Sequence[Row]) -> Any:
    """TFLOP/s on stored values against block size and against size."""

    def paint(figure: Any, axes: list[Any]) -> None:
        parts = (
            ([row for row in rows if row["m"] == 4096], "blocksize", "block size, m = k = 4096"),
            ([row for row in rows if row["blocksize"] == 16], "m", "m = k, blocks of 16"),
        )
        for ax, (part, x, label) in zip(axes, parts, strict=True):
            for (mode,), line in split(part, "mode"):
                unique = list({row[x]: row for row in line}.values())
                _both(ax, sorted(unique, key=lambda r: r[x]), x, mode, _COLORS[mode], "o")
            _log(ax, label, "TFLOP/s on stored values", sharing=False)
            ax.legend(fontsize=8)

    titles = ("TFLOP/s against block size and size, float16, density 1/16, best n", NOTE)
    return panels(2, 3.6, paint, titles=titles, sharex=False)


def dense_figure(rows: Sequence[Row]) -> Any:
    """Dense TFLOP/s against n."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    colors = dict(zip(sorted({row["m"] for row in rows}), _ramp(), strict=False))

    def paint(figure: Any, axes: list[Any]) -> None:
        for ax, dtype in zip(axes, dtypes, strict=True):
            for (m,), line in split(of(rows, device="ipu", dtype=dtype), "m"):
                _both(ax, line, "n", f"m = {m}", colors[m], "o")
            for (m,), line in split(of(rows, device="gpu", dtype=dtype), "m"):
                x, y = _xy(line, "n", "published")
                ax.plot(x, y, ls=":", lw=1, marker="x", ms=4, color=colors[m], label="_")
            _log(ax, "n", "TFLOP/s")
            ax.set_title(dtype, fontsize=10)
            ax.legend(fontsize=8, loc="lower right")

    note = f"{NOTE}, its four fitted phases alone; dotted crosses: GPU, published"
    return panels(len(dtypes), 3.8, paint, titles=("Dense TFLOP/s against n", note))


def law_figure(points: Sequence[Row], laws: Sequence[Row]) -> Any:
    """Speed-up at best n against the power law, theirs and ours."""
    powers = (("m", "m"), ("d", "density"), ("b", "blocksize"))
    texts = [
        " · ".join([f"{law['factor']:.2g}", *(f"{x}^{law[name]:.2f}" for x, name in powers)])
        for law in laws
    ]

    def paint(figure: Any, axes: list[Any]) -> None:
        names = (("published_law", "PopSparse's law"), ("own_law", "the same law fitted to ours"))
        for ax, (law, title), text in zip(axes, names, texts, strict=True):
            for (b,), part in split(points, "blocksize"):
                style = block_style((b, b)) | {"linestyle": "none"}
                ax.plot(*_xy(part, law, "speedup"), label=f"b = {b}", **style)
            ends = [0.1, 16]
            for factor, dash in ((1, "-"), (2, ":"), (0.5, ":")):
                ax.plot(ends, [factor * x for x in ends], dash, color=FAINT, lw=1)
            _log(ax, title, "speed-up of the model")
            ax.set_title(text, fontsize=9)
            ax.legend(fontsize=8)

    titles = ("Static over dense follows a power law, float16, best n",
              "dotted: twice and half the law")  # fmt: skip
    return panels(2, 3.9, paint, titles=titles, sharex=False)


def table_figure(rows: Sequence[Row]) -> Any:
    """The table of speed-ups as bars."""

    def paint(figure: Any, axes: list[Any]) -> None:
        (ax,) = axes
        names = [f"b = {row['blocksize']}, {row['dtype']}\n{row['mode']}" for row in rows]
        at = range(len(rows))
        told = [row["published"] for row in rows]
        ours = [row["ours"] or 0.0 for row in rows]
        ax.bar([x - 0.2 for x in at], told, 0.38, color="white", edgecolor=INK, label="PopSparse")
        bars = ax.bar([x + 0.2 for x in at], ours, 0.38, color=_COLORS["static"], label="model")
        ax.bar_label(bars, [f"{height:.1f}" for height in ours], fontsize=8)
        ax.axhline(1, color=LOSS, lw=0.8)
        ax.set_xticks(list(at), names, fontsize=7.5)
        ax.set_ylabel("times faster than dense")
        ax.grid(axis="x", visible=False)
        ax.legend(fontsize=8)

    title = "Speed-up over dense, m = k = 4096, density 1/16, best n"
    return panels(1, 3.2, paint, titles=(title, "beside what PopSparse (arXiv 2303.16999) prints"))


def of(rows: Iterable[Row], **where: object) -> list[Row]:
    """Rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def split(rows: Sequence[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """Rows by the values of some columns, in the order in which they come."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return list(groups.items())


def _both(ax: Any, rows: Sequence[Row], x: str, label: str, color: str, mark: str) -> None:
    ax.plot(*_xy(rows, x, "ours"), "-", color=color, lw=1.6, marker=mark, ms=3, label=label)
    hollow = {"mfc": "none", "mec": color, "ms": 8, "label": "_"}
    ax.plot(*_xy(rows, x, "published"), marker=mark, ls="none", **hollow)


def _xy(rows: Iterable[Row], x: str, y: str) -> tuple[list[float], list[float]]:
    points = [(at(row[x]), row[y]) for row in rows if row[y] is not None]
    return [p[0] for p in points], [p[1] for p in points]


def at(value: Any) -> float:
    """A place on an axis: `1/16` is 0.0625."""
    text = str(value)
    return 1 / float(text[2:]) if text.startswith("1/") else float(text)


def _log(ax: Any, x: str, y: str, *, sharing: bool = True) -> None:
    from matplotlib.ticker import FuncFormatter

    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}" if v >= 1 else f"1/{1 / v:g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.minorticks_off()
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if sharing:
        ax.label_outer()


def _name(mode: str, b: int | None) -> str:
    return f"{mode}, b = {b}" if b else mode


def _mark(b: object) -> str:
    return {"1": "s", "16": "o"}.get(str(b), "D")


def _ramp() -> list[str]:
    return ["#d4a800", "#e0701b", "#d55e9b", "#8c6bb1", "#1f5fa8", "#3b3f45"]
