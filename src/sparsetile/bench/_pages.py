"""Pages of headings, pictures and tables: Markdown, HTML, and tables inside a page of prose."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: A part of a page: heading, picture (and CSV) if any, tables.
Part = tuple[str, str | None, tuple[str, ...]]


class Table(NamedTuple):
    """A table of text."""

    head: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As GitHub and MyST read it."""
        ruled = [self.head, ["---"] * len(self.head), *self.lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


def markdown(title: str, intro: str, parts: Sequence[Part], tables: Mapping[str, Table]) -> str:
    """A page in Markdown, for the folder in which its pictures are.

    Args:
        title: Its heading.
        intro: The first paragraph.
        parts: What follows.
        tables: By name.

    Returns:
        The text.
    """
    blocks = [f"# {title}", intro]
    for heading, picture, names in parts:
        blocks.append(f"## {heading}")
        if picture:
            blocks.append(f"![{heading}]({picture}.svg)\n\n[{picture}.csv]({picture}.csv)")
        blocks += [tables[name].markdown() for name in names]
    return "\n\n".join(blocks) + "\n"


def page_html(title: str, intro: str, parts: Sequence[Part], tables: Mapping[str, Table]) -> str:
    """The same page in HTML."""
    blocks = [f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(intro)}</p>"]
    for heading, picture, names in parts:
        blocks.append(f"<h2>{html.escape(heading)}</h2>")
        if picture:
            alt = html.escape(heading, quote=True)
            blocks.append(
                f'<p><img src="{picture}.svg" alt="{alt}"><br>'
                f'<a href="{picture}.csv">{picture}.csv</a></p>'
            )
        blocks += [_html_table(tables[name]) for name in names]
    style = (
        "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;font-size:13px;display:block;overflow-x:auto}"
        "td,th{border-bottom:1px solid #ddd;padding:.2rem .6rem;text-align:left}img{max-width:100%}"
    )
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}'
        f"</title>\n<style>{style}</style>\n" + "\n".join(blocks) + "\n</html>\n"
    )


def filled(text: str, tables: Mapping[str, Table]) -> str:
    """A page whose tables are renewed; its prose stays.

    Args:
        text: A page with `<!-- table: NAME -->` and `<!-- end -->` around each table.
        tables: By name.

    Returns:
        The page.

    Raises:
        ValueError: If it names a table that does not exist.
    """

    def renew(found: re.Match[str]) -> str:
        if found[1] not in tables:
            raise ValueError(
                f"the page asks for a table {found[1]!r}; there are {', '.join(tables)}: name one"
            )
        return f"<!-- table: {found[1]} -->\n{tables[found[1]].markdown()}\n<!-- end -->"

    return re.sub(r"(?s)<!-- table: ([^>]*?) -->\n.*?<!-- end -->", renew, text)


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
