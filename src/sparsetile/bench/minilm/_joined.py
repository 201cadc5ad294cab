"""Cells beside the times of their models: what the picture shows and the page tells."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
COLUMNS = ("density", "blocksize", "method", "recovery", "batch", "cosine", "overlap", "ms",
           "dense_ratio")  # fmt: skip


def joined(cells: Sequence[Row], times: Sequence[Row]) -> list[dict[str, Any]]:
    """One row for each cell and batch that has a time.

    Models of one density and block size store equally many blocks; those that were not timed
    themselves take the time of the one that was.

    Args:
        cells: Rows of `cells.csv`.
        times: Rows of `timing.csv`.

    Returns:
        Rows with `COLUMNS`.
    """
    made = []
    for cell in cells:
        for batch in dict.fromkeys(row["batch"] for row in times):
            time = time_of(cell, times, batch)
            if time is not None:
                made.append(
                    {name: cell.get(name) for name in COLUMNS}
                    | {"batch": batch, "ms": time["ms"], "dense_ratio": time["dense_ratio"]}
                )
    return made


def time_of(cell: Row, times: Sequence[Row], batch: int) -> Row | None:
    """The time of a cell's own model, or of one with as many blocks."""
    alike = [
        row
        for row in times
        if row["batch"] == batch
        and row["ms"] is not None
        and (row["density"], row["blocksize"]) == (cell["density"], cell["blocksize"])
    ]
    own = [row for row in alike if row["name"] == model_name(cell)]
    return next(iter(own or alike), None)


def model_name(cell: Row) -> str:
    """The name of a cell's model in the folder of the proof."""
    recovery = f"-{cell['recovery']}" if cell["recovery"] else ""
    return f"{cell['density']:g}-{cell['blocksize']}-{cell['method']}{recovery}"
