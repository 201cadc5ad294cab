"""The picture of the README: a pattern beside the speed of products with such patterns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import write_csv
from sparsetile.bench._layers import FORWARD, Layer, threads_text, time_layers
from sparsetile.bench._machine import cpu_name
from sparsetile.bench._measure import COLUMNS, Measurement
from sparsetile.bench._plot_speed import scales, speed_curves
from sparsetile.bench._plot_style import block_style, on_white
from sparsetile.matrix import Pattern, random_pattern

DENSITIES = (0.5, 0.25, 0.125, 0.0625, 0.03125)
_SHOWN = 1024  # side of the corner that is drawn: larger ones are a grey mist


def measure(
    size: int,
    rows: int,
    *,
    densities: Sequence[float],
    blocksizes: Sequence[int],
    seconds: float,
    seed: int,
    stop: Callable[[], bool],
) -> list[Measurement]:
    """Time the forward product of one square layer at several densities and block sizes."""
    timed = time_layers(
        [Layer(f"Linear {size}×{size}", size, size)],
        densities=densities,
        blocksizes=blocksizes,
        rows=rows,
        seconds=seconds,
        seed=seed,
        ops=(FORWARD,),
        stop=stop,
    )
    return list(timed)


def write_picture(path: Path, rows: Sequence[Measurement], *, seed: int) -> list[Path]:
    """Draw the picture and write the numbers behind it.

    Args:
        path: Where the picture goes; its ending, `.svg`, `.png` or `.pdf`, decides the format.
        rows: Measurements of `measure`.
        seed: The seed they were made with.

    Returns:
        The picture and the CSV beside it.

    Raises:
        CommandError: If there is nothing to draw.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    sparse = [row for row in rows if row.blocksize]
    if not sparse:
        raise CommandError("nothing was measured, so there is no picture; let it run to its end")
    shown = _shown(sparse)
    size = shown.m
    pattern = random_pattern(
        size, size, blocksize=shown.blocksize, density=shown.density, seed=seed
    )
    with on_white():
        figure = Figure(figsize=(9.6, 4.1), layout=ConstrainedLayoutEngine(w_pad=0.12))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
        _draw_pattern(left, pattern)
        blocks = sorted({row.blocksize for row in sparse}, reverse=True)
        speed_curves(
            right,
            {
                (b, b): [(row.density, row.speedup) for row in sparse if row.blocksize == b]
                for b in blocks
            },
        )
        scales([right], [(row.density, row.speedup) for row in sparse])
        right.legend(fontsize=9)
        right.set_title(
            f"y = W x, W {size}×{size}, {shown.n} rows, fp32\n"
            f"{cpu_name()}, {threads_text(shown.threads)}",
            fontsize=9,
        )
        # A picture without a date is the same file when nothing in it has changed.
        plain = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, metadata=plain, dpi=160)
    numbers = path.with_suffix(".csv")
    write_csv(numbers, COLUMNS, (row.row() for row in rows))
    return [path, numbers]


def _shown(sparse: Sequence[Measurement]) -> Measurement:
    # The pattern nearest to one that shows well: blocks of 16, an eighth of them.
    return min(sparse, key=lambda r: (abs(r.blocksize - 16), abs(r.density - 0.125)))


def _draw_pattern(ax: Any, pattern: Pattern) -> None:
    r, c = pattern.blocksize
    corner = pattern.block_mask()[: max(1, _SHOWN // r), : max(1, _SHOWN // c)].numpy()
    height, width = corner.shape[0] * r, corner.shape[1] * c
    ax.imshow(corner, cmap=_two_colors(), interpolation="none", extent=(0, width, height, 0))
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.set_yticks([])
    for spine in ax.spines.values():
        spine.set_visible(True)
    whole = (height, width) == pattern.shape
    part = "" if whole else f" ({height}×{width} corner)"
    ax.set_title(
        f"W: blocks {r}×{c}, density {pattern.density:.3g}{part}\n"
        f"{pattern.nnzb:,} of {pattern.grid[0] * pattern.grid[1]:,} blocks stored",
        fontsize=9,
    )


def _two_colors() -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap(["#ffffff00", block_style((16, 16))["color"]])
