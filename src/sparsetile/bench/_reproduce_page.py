"""The page that walks through a reproduction: Markdown and HTML, from its CSVs alone."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparsetile.bench._reproduce_tables import Table, tables

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
    made = tables(rows)
    parts = [f"# {_TITLE}", _INTRO]
    for heading, picture, names in PARTS:
        parts.append(f"## {heading}")
        if picture:
            parts.append(f"![{heading}]({picture}.svg)\n\n[{picture}.csv]({picture}.csv)")
        parts += [made[name].markdown() for name in names]
    return "\n\n".join(parts) + "\n"


def page_html(rows: Mapping[str, Sequence[Row]]) -> str:
    """The page in HTML."""
    made = tables(rows)
    parts = [f"<h1>{_TITLE}</h1>\n<p>{html.escape(_INTRO)}</p>"]
    for heading, picture, names in PARTS:
        parts.append(f"<h2>{html.escape(heading)}</h2>")
        if picture:
            alt = html.escape(heading, quote=True)
            parts.append(
                f'<p><img src="{picture}.svg" alt="{alt}"><br>'
                f'<a href="{picture}.csv">{picture}.csv</a></p>'
            )
        parts += [_html_table(made[name]) for name in names]
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
        "td,th{border-bottom:1px solid #ddd;padding:.2rem .6rem;text-align:left}img{max-width:100%}"
    )
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{_TITLE}</title>\n'
        f"<style>{style}</style>\n" + "\n".join(parts) + "\n</html>\n"
    )


def _html_table(table: Table) -> str:
    lines = [("th", table.head), *(("td", line) for line in table.lines)]
    return "\n".join(
        [
            "<table>",
            *(
                "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in line) + "</tr>"
                for tag, line in lines
            ),
            "</table>",
        ]
    )


def filled(text: str, rows: Mapping[str, Sequence[Row]]) -> str:
    """A page whose tables are renewed; its prose stays.

    Args:
        text: A page with `<!-- table: NAME -->` and `<!-- end -->` around each table.
        rows: Of the CSVs.

    Returns:
        The page.

    Raises:
        ValueError: If it names a table that does not exist.
    """
    made = tables(rows)

    def renew(found: re.Match[str]) -> str:
        if found[1] not in made:
            raise ValueError(
                f"the page asks for a table {found[1]!r}; there are {', '.join(made)}: name one"
            )
        return f"<!-- table: {found[1]} -->\n{made[found[1]].markdown()}\n<!-- end -->"

    return re.sub(r"(?s)<!-- table: ([^>]*?) -->\n.*?<!-- end -->", renew, text)
