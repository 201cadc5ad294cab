"""`sparsetile plot`: every picture of a benchmark's CSV."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sparsetile.bench import _plot_heat as heat
from sparsetile.bench import _plot_peers as peers
from sparsetile.bench import _plot_roofline as roofline
from sparsetile.bench import _plot_speed as speed
from sparsetile.bench._breakeven import has_sparse_peers
from sparsetile.bench._plot_rows import Row, Setting, by_setting, file_name
from sparsetile.bench._plot_style import keep, on_white, save_svg

Figure = Callable[[Sequence[Row], str], Any]
Numbers = Callable[[Sequence[Row]], list[dict[str, Any]]]


def plot(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw every picture that the rows can give.

    Args:
        rows: Rows of `read_rows`.
        folder: Where the pictures go; it exists.

    Returns:
        The files written: for each picture a PNG, an SVG and a CSV.
    """
    settings = by_setting(rows)
    written: list[Path] = []
    with on_white():
        for setting, part in settings.items():
            name, subtitle = file_name(setting, list(settings)), subtitle_of(setting)
            for kind, (figure, columns, numbers) in _kinds(part).items():
                drawn = figure(part, subtitle)
                written += keep(folder, f"{kind}-{name}", drawn, columns, numbers(part))
    return written


def plot_speedups(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw only the speed-ups against density, as SVG, for a page.

    Args:
        rows: Rows of `read_rows`.
        folder: Where the pictures go; it exists.

    Returns:
        The pictures.
    """
    settings = by_setting(rows)
    written = []
    with on_white():
        for setting, part in settings.items():
            figure = speed.speed_figure(part, subtitle_of(setting))
            written.append(folder / f"speedup-{file_name(setting, list(settings))}.svg")
            save_svg(figure, written[-1])
    return written


def subtitle_of(setting: Setting) -> str:
    """What was measured, and where."""
    return f"{setting}; {setting.cpu}, {setting.isa}"


def _kinds(rows: Sequence[Row]) -> dict[str, tuple[Figure, Sequence[str], Numbers]]:
    kinds: dict[str, tuple[Figure, Sequence[str], Numbers]] = {
        "speedup": (speed.speed_figure, speed.COLUMNS, speed.speed_numbers),
        "heat": (heat.heat_figure, heat.COLUMNS, heat.heat_numbers),
    }
    if roofline.has_roofline(rows):
        kinds["roofline"] = (
            roofline.roofline_figure,
            roofline.COLUMNS,
            roofline.roofline_numbers,
        )
    if has_sparse_peers(rows):
        kinds["peers"] = (peers.peer_figure, peers.COLUMNS, peers.peer_numbers)
    return kinds
