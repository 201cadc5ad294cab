"""The page "When does sparse win?", written from a benchmark's rows and from nothing else."""

from collections.abc import Iterable, Sequence
from math import isnan

from sparsetile.bench._breakeven import (
    against,
    best_peer,
    crossing,
    geometric_mean,
    has_sparse_peers,
    lost,
    outcome,
    ratio_text,
)
from sparsetile.bench._plot_rows import (
    Row,
    Setting,
    block_text,
    by_setting,
    compared,
    count,
    density_text,
    file_name,
    split,
)

_INTRO = """# When does sparse win?

<!-- Written by `sparsetile breakeven`: measure again and run it, do not edit this page. -->

A sparse product skips work, but each stored value costs more than a dense one. So there is a
**break-even density**: below it sparse is faster than torch's dense product of the same dtype,
above it dense is. Every ratio on this page was measured, the losses too: they are **bold and end
in ✗**. A ratio that ends in ≈ is too close to 1 for the noise of that run. A *cell* is one block,
density and number of rows, n. How it was measured stands [at the end](#how-it-was-measured)."""

_BREAK_EVEN = """Sparse wins below the density in the table, which lies on a straight line between
the two measured densities beside it, both axes logarithmic. `all`: it loses at no density, 1
included. `> 1/2`: it does not lose up to 1/2, the highest density measured. **< 1/32 ✗**: it loses
even at 1/32, the lowest. A cell within the noise counts as equal to dense."""

_RATIOS = "The time of torch's dense product over ours, in the same rounds; columns are densities."

_PEERS = """Our speed-up over dense, divided by that of the other library, in every cell that it can
do. `best sparse` takes each cell's fastest sparse library. A least ratio to dense below 1 may be a
cell that the tables above mark ≈."""


def page(rows: Sequence[Row], files: Sequence[str], pictures: str = "") -> str:
    """Write the page.

    Args:
        rows: Rows of `read_rows`.
        files: Names of the CSVs they come from.
        pictures: Folder, seen from the page, of the pictures of `sparsetile plot`; empty for none.

    Returns:
        Markdown that GitHub and MyST both read.
    """
    settings = by_setting(rows)
    kept = [row for part in settings.values() for row in part]
    parts = [
        _INTRO,
        "\n".join(_said(_of(s, settings), outcome(part)) for s, part in settings.items()),
        f"## Break-even density\n\n{_BREAK_EVEN}\n\n{_break_even_table(settings)}",
        f"## Where dense wins\n\n{_loss_table(settings)}",
        f"## Times faster than dense\n\n{_RATIOS}",
        *(_ratio_part(s, part, settings, pictures) for s, part in settings.items()),
    ]
    if has_sparse_peers(row for part in settings.values() for row in part):
        parts.append(f"## Against other libraries\n\n{_PEERS}\n\n{_peer_table(settings)}")
    parts.append(_method(kept, files))
    return "\n\n".join(parts) + "\n"


def _said(product: str, result: str) -> str:
    return f"- {product}: {result[0].lower()}{result[1:]}."


def _of(setting: Setting, among: Iterable[Setting]) -> str:
    where = [setting.isa] if len({s.isa for s in among}) > 1 else []
    if len({s.cpu for s in among}) > 1:
        where.append(setting.cpu)
    return ", ".join([str(setting), *where])


def _break_even_table(settings: dict[Setting, list[Row]]) -> str:
    batches = sorted({row.n for part in settings.values() for row in compared(part)})
    lines = []
    for setting, part in settings.items():
        for block, line in split(compared(part), lambda row: row.block).items():
            found = {n: crossing(cells) for n, cells in split(line, lambda row: row.n).items()}
            cells = [
                "–" if n not in found else str(found[n]) if found[n].wins else f"**{found[n]} ✗**"
                for n in batches
            ]
            lines.append([_of(setting, settings), block_text(block), *cells])
    return _table(["product", "block", *(f"n = {n}" for n in batches)], lines)


def _loss_table(settings: dict[Setting, list[Row]]) -> str:
    lines = []
    for setting, part in settings.items():
        losses = [row for row in compared(part) if lost(row)]
        for (block, n), cells in split(losses, lambda row: (row.block, row.n)).items():
            said = ", ".join(f"{density_text(r.density)}: **{ratio_text(r)}**" for r in cells)
            lines.append([_of(setting, settings), block_text(block), str(n), said])
    if not lines:
        return "In no cell that was measured."
    return _table(["product", "block", "n", "density: times faster than dense"], lines)


def _ratio_part(
    setting: Setting, rows: Sequence[Row], among: dict[Setting, list[Row]], pictures: str
) -> str:
    title = _of(setting, among)
    parts = [f"### {title}"]
    if pictures:
        name = file_name(setting, list(among))
        parts.append(f"![{outcome(rows)}]({pictures}/speedup-{name}.svg)")
    ours = compared(rows)
    densities = sorted({row.density for row in ours})
    lines = []
    for (n, block), cells in split(ours, lambda row: (row.n, row.block)).items():
        found = {row.density: _marked(row) for row in cells}
        lines.append([str(n), block_text(block), *(found.get(d, "–") for d in densities)])
    parts.append(_table(["n", "block", *map(density_text, densities)], lines))
    return "\n\n".join(parts)


def _marked(row: Row) -> str:
    return f"**{ratio_text(row)}**" if lost(row) else ratio_text(row)


def _peer_table(settings: dict[Setting, list[Row]]) -> str:
    lines = []
    for setting, part in settings.items():
        best = best_peer(part)
        groups = [("best sparse", best, list[str]())] if best else []
        for peer, cells in against(part).items():
            done = [ratio for _, ratio in cells if not isnan(ratio)]
            groups.append((peer, done, [row.verdict for row, ratio in cells if isnan(ratio)]))
        for peer, ratios, failed in groups:
            numbers = [geometric_mean(ratios), min(ratios), max(ratios)] if ratios else []
            shown = [_plain(ratio) for ratio in numbers] or ["–"] * 3
            of = f"{len(ratios)} of {len(ratios) + len(failed)}"
            why = "; ".join(dict.fromkeys(failed))
            lines.append([_of(setting, settings), peer, of, *shown, why])
    head = ["product", "library", "cells", "geometric mean", "least", "most", "why not all"]
    return _table(head, lines)


def _plain(ratio: float) -> str:
    if ratio < 1:
        return f"**{min(ratio, 0.99):.2f} ✗**"
    return f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.1f}"


def _method(rows: Sequence[Row], files: Sequence[str]) -> str:
    def each(values: Iterable[str]) -> list[str]:
        return [value for value in dict.fromkeys(values) if value]

    threads = sorted({row.threads for row in rows})
    versions = each(one for row in rows for one in row.versions.split(", "))
    facts = {
        "processor": each(row.cpu for row in rows),
        "instruction set": each(row.isa for row in rows),
        "threads": [str(number) for number in threads],
        "versions": [", ".join(versions)],
        "commit": each(row.commit for row in rows),
        "rows": [f"{count(len(rows), 'row')} of {', '.join(f'`{name}`' for name in files)}"],
    }
    lines = [[name, "; ".join(values)] for name, values in facts.items()]
    commands = "\n".join(each(row.command for row in rows))
    return (
        "## How it was measured\n\n"
        f"{_table(['what', 'value'], lines)}\n\n"
        "The libraries take turns, so that whatever else the machine does slows all alike; every\n"
        "result is checked against ours before it is timed. The commands:\n\n"
        f"```text\n{commands}\n```"
    )


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    ruled = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in ruled)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
