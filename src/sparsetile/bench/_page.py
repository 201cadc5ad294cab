"""The look of the report: one page of HTML that needs nothing else."""

from collections.abc import Sequence
from html import escape

_CSS = """
:root { color-scheme: light dark; --ink: #1d2126; --paper: #fdfdfc; --faint: #8a8f96;
  --line: #d9dce0; --soft: #f2f3f1; --accent: #e0701b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --paper: #16181b; --faint: #868c94;
  --line: #34383d; --soft: #1f2226; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1080px; padding: 2rem 1.2rem 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .4rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
p { margin: .4rem 0; max-width: 46rem; }
.lead, figcaption, .note { color: var(--faint); }
.verdict { margin: 1.2rem 0; padding: .9rem 1.2rem .9rem 2.2rem; background: var(--soft);
  border-left: 4px solid var(--accent); border-radius: 4px; }
.verdict li { margin: .3rem 0; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr));
  gap: 1rem 1.6rem; }
figure { margin: .6rem 0; }
figure svg { width: 100%; height: auto; }
figure svg image { image-rendering: pixelated; }
figcaption { font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  margin: .8rem 0; }
th, td { padding: .28rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.lost { color: #c0392b; font-weight: 600; }
table.facts td { text-align: left; white-space: normal; vertical-align: top; }
table.facts td:first-child { color: var(--faint); white-space: nowrap; }
code, pre { font: .88rem/1.5 ui-monospace, monospace; }
pre { background: var(--soft); padding: .7rem .9rem; border-radius: 4px; margin: .5rem 0;
  white-space: pre-wrap; overflow-wrap: anywhere; }
pre .made { color: var(--accent); font-weight: 600; }
pre .truth { color: var(--faint); }
a { color: inherit; }
"""


def page(title: str, body: Sequence[str]) -> str:
    """A whole page with this title and these elements."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A heading and what stands under it."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    name = f' class="{kind}"' if kind else ""
    return f"<p{name}>{escape(text)}</p>"


def figure(svg: str, caption: str, csv: str = "") -> str:
    """A picture, what it shows, and the file of its numbers."""
    link = f' Numbers: <a href="{escape(csv)}">{escape(csv)}</a>.' if csv else ""
    return f"<figure>{svg}<figcaption>{escape(caption)}{link}</figcaption></figure>"


def numbers(text: str, csv: str) -> str:
    """A note that leads to a file of numbers."""
    return f'<p class="note">{escape(text)}<a href="{escape(csv)}">{escape(csv)}</a></p>'


def side_by_side(*parts: str) -> str:
    """Elements beside each other where the window is wide enough."""
    return f'<div class="row">{"".join(parts)}</div>'


def items(lines: Sequence[str], kind: str) -> str:
    """A list of plain sentences."""
    return f'<ul class="{kind}">' + "".join(f"<li>{escape(x)}</li>" for x in lines) + "</ul>"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "", lost: str = ""
) -> str:
    """A table of plain text; cells ending in `lost` are marked.

    Args:
        head: Column titles; none for a table without.
        rows: Cells.
        kind: CSS class.
        lost: Mark at a cell's end that says dense won it; empty for none.

    Returns:
        The table in a box that scrolls on narrow screens.
    """
    top = "<tr>" + "".join(f"<th>{escape(h)}</th>" for h in head) + "</tr>" if head else ""
    lines = []
    for row in rows:
        cells = [
            f'<td class="lost">{escape(c)}</td>'
            if lost and c.endswith(lost)
            else f"<td>{escape(c)}</td>"
            for c in row
        ]
        lines.append("<tr>" + "".join(cells) + "</tr>")
    return f'<div class="scroll"><table class="{kind}">{top}{"".join(lines)}</table></div>'


def completion(given: str, made: str, truth: str) -> str:
    """A line with what the model added, and what the text says."""
    return (
        f'<pre>{escape(given)}<span class="made">{escape(made)}</span>\n'
        f'<span class="truth">text: {escape(truth.strip())}</span></pre>'
    )
