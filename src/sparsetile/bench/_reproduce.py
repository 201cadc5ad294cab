"""`sparsetile reproduce popsparse`: published figures beside the model's, with their numbers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsetile.bench import _reproduce_figures as figures
from sparsetile.bench import _reproduce_maps as maps
from sparsetile.bench._files import read_csv, write_csv, write_text
from sparsetile.bench._plot_style import on_white, save_small_svg
from sparsetile.bench._reproduce_cells import predict_cells
from sparsetile.bench._reproduce_page import markdown, page_html
from sparsetile.bench._reproduce_rows import COLUMNS, rows_of
from sparsetile.bench._reproduce_scope import Scope, wanted
from sparsetile.bench._reproduce_summary import COLUMNS as AGREEMENT
from sparsetile.bench._reproduce_summary import WORST, agreement, worst

Row = dict[str, Any]
Rows = Mapping[str, Sequence[Row]]

#: How each picture is drawn from the rows of the CSVs.
PICTURES: dict[str, Callable[[Rows], Any]] = {
    "table": lambda rows: figures.table_figure(rows["table"]),
    "power-law": lambda rows: figures.law_figure(rows["power-law"], rows["laws"]),
    "density": lambda rows: figures.density_figure(rows["density"]),
    "blocks-and-sizes": lambda rows: figures.blocks_figure(rows["blocks-and-sizes"]),
    "dense": lambda rows: figures.dense_figure(rows["dense"]),
    "grid": lambda rows: maps.grid_figure(rows["grid"]),
    "regions": lambda rows: maps.regions_figure(rows["regions"]),
    "phases": lambda rows: maps.phases_figure(rows["phases"]),
    "what-if": lambda rows: maps.what_if_figure(rows["what-if"]),
}
_CSVS = (*COLUMNS, "agreement", "worst")


def reproduce(
    folder: Path, scope: Scope | None = None, stop: Callable[[], bool] = lambda: False
) -> list[Path]:
    """Ask the model for every published point, and write what it says beside it.

    Args:
        folder: Where CSVs, pictures and page go; it exists.
        scope: What is looked at; all of it if not given.
        stop: Asked between products; true ends the work, and nothing is written.

    Returns:
        The files written.

    Raises:
        KeyboardInterrupt: If `stop` said so.
    """
    scope = Scope() if scope is None else scope
    rows = rows_of(predict_cells(wanted(scope), stop), scope)
    for name, columns in COLUMNS.items():
        write_csv(folder / f"{name}.csv", columns, rows[name])
    write_csv(folder / "agreement.csv", AGREEMENT, agreement(rows))
    write_csv(folder / "worst.csv", WORST, worst(rows))
    return [folder / f"{name}.csv" for name in _CSVS] + draw(folder)


def draw(folder: Path) -> list[Path]:
    """Draw the pictures and write the page, from the CSVs alone.

    Args:
        folder: Holds the CSVs; pictures and page go there too.

    Returns:
        The files written.
    """
    rows = read(folder)
    written = []
    with on_white():
        for name, figure in PICTURES.items():
            written.append(folder / f"{name}.svg")
            save_small_svg(figure(rows), written[-1])
    for end, text in ((".md", markdown(rows)), (".html", page_html(rows))):
        written.append(folder / f"index{end}")
        write_text(written[-1], text)
    return written


def read(folder: Path) -> dict[str, list[Row]]:
    """The rows of a reproduction's CSVs.

    Args:
        folder: Holds them.

    Returns:
        By name, the rows; numbers as numbers, empty cells as None.
    """
    return {name: read_csv(folder / f"{name}.csv") for name in _CSVS}
