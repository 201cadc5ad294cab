"""How the pictures of a benchmark look, and how one is kept: PNG, SVG and its numbers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil, log2
from pathlib import Path
from typing import Any

from sparsetile.bench import _charts as charts
from sparsetile.bench._files import write_csv, write_text

INK, FAINT, LOSS = "#24292f", "#8a9099", "#b3261e"
_WIDTH, _TITLE = 9.6, 0.62  # inches: the picture, and the room of its title
# Of many lightnesses, so that people who see few colours tell them apart.
_SIDES = ("#8c6bb1", "#d55e9b", "#e0701b", "#d4a800", "#2a9d8f", "#56b4e9", "#1f5fa8", "#3b3f45")
_MARKERS = "osD^vPXp"


@contextmanager
def on_white() -> Iterator[None]:
    """The charts' style with ink of its own on white, for pictures that stand in any page."""
    import matplotlib

    settings: Any = {
        key: {charts.INK: INK, charts.FAINT: FAINT}.get(value, value)
        for key, value in charts.style().items()
    }
    with matplotlib.rc_context(settings | {"figure.facecolor": "white", "svg.fonttype": "path"}):
        yield


def block_style(block: tuple[int, int]) -> dict[str, Any]:
    """The line of a block: colour by its smaller side, mark by its larger, dashes by its direction.

    Args:
        block: Rows and columns.

    Returns:
        Keywords of matplotlib's `plot`.

    Examples:
        >>> block_style((1, 4))["color"] == block_style((1, 1))["color"]
        True
    """
    r, c = block
    return {
        "color": _SIDES[_step(min(block))],
        "marker": _MARKERS[_step(max(block))],
        "linestyle": "-" if r == c else ("--" if r < c else ":"),
        "markersize": 4.5,
        "linewidth": 1.5,
    }


def _step(side: int) -> int:
    return min(round(log2(side)), len(_SIDES) - 1)


def panels(
    count: int,
    height: float,
    paint: Callable[[Any, list[Any]], None],
    *,
    titles: tuple[str, str],
    across: int = 3,
    sharex: bool = True,
    sharey: bool = True,
) -> Any:
    """Make a figure of panels with common axes under a title that says the result.

    Args:
        count: Panels.
        height: Inches of one row of panels.
        paint: Called with the figure and its axes, one for each panel.
        titles: What came out, and of what.
        across: Panels side by side at most; four are too small to read in a README.
        sharex: All panels have one horizontal axis.
        sharey: All panels have one vertical axis.

    Returns:
        The matplotlib Figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    down = ceil(count / across)
    across = ceil(count / down)
    high = height * down + _TITLE + 0.4
    below = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, rect=(0, 0, 1, 1 - _TITLE / high))
    figure = Figure(figsize=(_WIDTH, high), layout=below)
    grid = figure.subplots(down, across, squeeze=False, sharex=sharex, sharey=sharey)
    axes = list(grid.flat)
    for spare in axes[count:]:
        spare.remove()
    left = 0.12 / _WIDTH
    figure.text(left, 1 - 0.3 / high, titles[0], fontsize=12, fontweight="bold")
    figure.text(left, 1 - 0.53 / high, titles[1], fontsize=9, color=FAINT)
    paint(figure, axes[:count])
    below = axes[count - 1].get_xlabel()
    for place, ax in enumerate(axes[:count]):
        ax.tick_params(labelbottom=True)
        if sharex:  # also above a gap in the last row
            ax.set_xlabel(below if place >= count - across else "")
    return figure


def keep(
    folder: Path, name: str, figure: Any, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> list[Path]:
    """Write a picture as PNG and SVG, and what it shows as CSV.

    Args:
        folder: Where; it exists.
        name: Of the files, without their endings.
        figure: The picture.
        columns: Of the CSV.
        rows: Its rows.

    Returns:
        The three files.
    """
    paths = [folder / f"{name}{end}" for end in (".png", ".svg", ".csv")]
    figure.savefig(paths[0], dpi=160)
    save_svg(figure, paths[1])
    write_csv(paths[2], columns, rows)
    return paths


def save_svg(figure: Any, path: Path) -> None:
    """Write a picture as SVG; without a date it is the same file when nothing has changed."""
    figure.savefig(path, metadata={"Date": None})


def save_small_svg(figure: Any, path: Path) -> None:
    """Write a picture as SVG for a page: two thirds of the size, and nobody sees a difference."""
    save_svg(figure, path)
    text = path.read_text(encoding="utf-8").replace("DejaVuSans-", "g-")
    # Comments, and digits of a coordinate beyond the third.
    short = re.sub(r"(?s)<!--.*?-->|(?<=\.\d\d\d)\d+", "", text)
    lines = (line.strip() for line in short.splitlines())
    write_text(path, "\n".join(line for line in lines if line) + "\n")
