"""The page that walks through a reproduction: Markdown and HTML, from its CSVs alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from sparsetile.bench import _pages
from sparsetile.bench._reproduce_tables import tables

Row = dict[str, Any]
_TITLE = "PopSparse on a modelled machine of tiles"
_INTRO = (
    "Published numbers are those of PopSparse (arXiv 2303.16999), read from its table and figures; "
    "ours are the model's. A ratio is ours over published. Every picture has its numbers beside it."
)

#: Parts of the page: heading, picture (and CSV), tables.
PARTS: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
    ("How well does the model agree?", None, ("agreement",)),
    ("Where does it differ most?", None, ("worst",)),
    ("Speed-up over dense", "table", ("speed-ups",)),
    ("Power law", "power-law", ("laws",)),
    ("Against density (published → ours, TFLOP/s)", "density", ("density",)),
    ("Against block size and size (published → ours)", "blocks-and-sizes", ("blocks", "sizes")),
    ("Dense against n", "dense", ()),
    ("Static over dense, cell by cell", "grid", ()),
    ("Where sparse wins", "regions", ("regions",)),
    ("Where the cycles go", "phases", ("phases",)),
    ("What if?", "what-if", ("what-if",)),
)


def markdown(rows: Mapping[str, Sequence[Row]]) -> str:
    """The page in Markdown."""
    return _pages.markdown(_TITLE, _INTRO, PARTS, tables(rows))


def page_html(rows: Mapping[str, Sequence[Row]]) -> str:
    """The page in HTML."""
    return _pages.page_html(_TITLE, _INTRO, PARTS, tables(rows))


def filled(text: str, rows: Mapping[str, Sequence[Row]]) -> str:
    """A page whose marked tables are renewed from the rows of the CSVs; its prose stays."""
    return _pages.filled(text, tables(rows))
