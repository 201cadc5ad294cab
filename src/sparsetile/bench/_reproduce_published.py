"""The numbers that PopSparse (arXiv 2303.16999) published; published/README.md tells of them."""

import csv
from functools import cache
from importlib.resources import files


@cache
def published(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one table of published numbers.

    Args:
        name: Of the file, without its ending; `"ipu_dense"` for the dense rates of the IPU.

    Returns:
        The rows, as text.

    Examples:
        >>> published("power_law")[0]["density"]
        '-0.54'
    """
    room, file = "sparsetile.bench", f"published/{name}.csv"
    if name == "ipu_dense":  # stands where the dense model is fitted to it
        room, file = "sparsetile.plan.dense", "published.csv"
    text = files(room).joinpath(file).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def parts_of(density: str) -> int:
    """A density's denominator: 16 for `1/16`."""
    return int(density.removeprefix("1/"))


def number(text: str) -> float | None:
    """A number of a table, or None for an empty cell."""
    return float(text) if text else None
