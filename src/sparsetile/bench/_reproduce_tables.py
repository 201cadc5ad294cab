"""The tables of a reproduction's page, made of its CSVs and of nothing else."""

from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from sparsetile.bench._pages import Table
from sparsetile.bench._reproduce_summary import regions_differ, said_regions

Row = dict[str, Any]
_PHASES = 3  # of a product that are named


def tables(rows: Mapping[str, Sequence[Row]]) -> dict[str, Table]:
    """Every table of the page.

    Args:
        rows: Of the CSVs, by name.

    Returns:
        By name, the tables.
    """
    return {
        "agreement": _agreement(rows["agreement"]),
        "worst": _worst(rows["worst"]),
        "speed-ups": _speedups(rows["table"]),
        "laws": _laws(rows["laws"]),
        "density": _density(rows["density"]),
        "blocks": _curve(
            [row for row in rows["blocks-and-sizes"] if row["m"] == 4096], "blocksize", "block size"
        ),
        "sizes": _curve(
            [row for row in rows["blocks-and-sizes"] if row["blocksize"] == 16], "m", "m = k"
        ),
        "regions": _regions(rows["regions"]),
        "phases": _phases(rows["phases"]),
        "what-if": _what_if(rows["what-if"]),
    }


def _agreement(rows: Sequence[Row]) -> Table:
    head = ["what", "points", "log rms", "mean ratio", "least … most", "within 10 %",
            "within 25 %", "same side of 1", "refused: both, we, they"]  # fmt: skip
    lines = []
    for row in rows:
        refused = [row[f"refused_by_{who}"] for who in ("both", "us_only", "them_only")]
        lines.append(
            [row["of"], str(row["points"]), f"{row['log_rms']:.3f}", f"{row['mean_ratio']:.2f}",
             f"{row['least']:.2f} … {row['most']:.2f}", _share(row["within_10"]),
             _share(row["within_25"]), _share(row["sign"]),
             ", ".join(map(str, refused)) if any(refused) else "–"]
        )  # fmt: skip
    return Table(head, lines)


def _worst(rows: Sequence[Row]) -> Table:
    head = ["of", "what", "published", "ours", "ours / published"]
    lines = [
        [row["of"], row["what"], *(_plain(row[c]) for c in ("published", "ours")), _ratio(row)]
        for row in rows
    ]
    return Table(head, lines)


def _speedups(rows: Sequence[Row]) -> Table:
    head = ["block", "dtype", "mode", "PopSparse", "model", "best n", "model / PopSparse"]
    lines = [
        [str(row["blocksize"]), row["dtype"], row["mode"], _plain(row["published"]),
         _plain(row["ours"]), _plain(row["n"]), _ratio(row)]
        for row in rows
    ]  # fmt: skip
    return Table(head, lines)


def _laws(rows: Sequence[Row]) -> Table:
    head = ["of", "factor", "exponent of m", "of density", "of block size", "within a factor of 2"]
    lines = [
        [row["of"], f"{row['factor']:.2g}", f"{row['m']:.2f}", f"{row['density']:.2f}",
         f"{row['blocksize']:.2f}", _share(row["within_factor_2"])]
        for row in rows
    ]  # fmt: skip
    return Table(head, lines)


def _density(rows: Sequence[Row]) -> Table:
    ipu = [row for row in rows if row["device"] == "ipu"]
    densities = list(dict.fromkeys(row["density"] for row in ipu))
    lines: dict[str, dict[str, str]] = {}
    for row in ipu:
        name = row["mode"] + (f", b = {row['blocksize']}" if row["blocksize"] else "")
        lines.setdefault(name, {})[row["density"]] = _pair(row)
    return Table(
        ["series", *densities],
        [[name, *(line.get(d, "–") for d in densities)] for name, line in lines.items()],
    )


def _curve(rows: Sequence[Row], column: str, label: str) -> Table:
    places = sorted({row[column] for row in rows})
    lines: dict[str, dict[int, str]] = {}
    for row in rows:
        lines.setdefault(row["mode"], {})[row[column]] = _pair(row)
    return Table(
        [label, *map(str, places)],
        [[mode, *(line.get(p, "–") for p in places)] for mode, line in lines.items()],
    )


def _regions(rows: Sequence[Row]) -> Table:
    lines = [["the authors say that sparse wins", *region] for region in said_regions()]
    for what, found in regions_differ(rows).items():
        kinds: dict[tuple[str, int], list[str]] = {}
        for row in found:
            of = f"{row['m']} at {row['density']} ({_plain(row['speedup'])})"
            kinds.setdefault((row["mode"], row["blocksize"]), []).append(of)
        for (mode, b), cells in kinds.items():
            lines.append([what, f"{mode}, blocks of {b}", ", ".join(cells)])
    return Table(["", "which", "m = k, density (the model's speed-up)"], lines)


def _phases(rows: Sequence[Row]) -> Table:
    cells: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        where = tuple(row[c] for c in ("mode", "blocksize", "density", "m", "n"))
        cells.setdefault(where, []).append(row)
    lines = []
    for (mode, b, density, m, n), part in cells.items():
        total = sum(row["cycles"] for row in part)
        most = sorted(part, key=lambda row: -row["cycles"])[:_PHASES]
        said = ", ".join(f"{row['phase']} {_share(row['cycles'] / total)}" for row in most)
        lines.append([mode, str(b), density, str(m), str(n), f"{total:,.0f}", said])
    return Table(["mode", "block", "density", "m = k", "n", "cycles", "most of it"], lines)


def _what_if(rows: Sequence[Row]) -> Table:
    def place(row: Row) -> tuple[Any, ...]:
        return row["mode"], row["blocksize"], row["density"], row["m"]

    machines = list(dict.fromkeys(row["machine"] for row in rows))
    base = {place(row): row for row in rows if row["machine"] == machines[0]}
    lines = []
    for machine in machines[1:]:
        for mode in dict.fromkeys(row["mode"] for row in rows):
            part = [r for r in rows if r["machine"] == machine and r["mode"] == mode]
            both = [(r, base[place(r)]) for r in part if r["tflops"] and base[place(r)]["tflops"]]
            if not both:
                continue
            cells = [machine, mode]
            for column in ("tflops", "speedup"):
                ratios = [row[column] / other[column] for row, other in both]
                mean = exp(sum(map(log, ratios)) / len(ratios))
                cells.append(f"{mean:.2f} ({min(ratios):.2f} … {max(ratios):.2f})")
            fits = sum(row["tflops"] is not None for row in part)
            lines.append([*cells, f"{fits} of {len(part)}"])
    head = ["machine", "mode", "TFLOP/s, times Bow's: mean (least … most)",
            "speed-up over its own dense, times Bow's", "cells that fit at some n"]  # fmt: skip
    return Table(head, lines)


def _pair(row: Row) -> str:
    return f"{_plain(row['published'])} → {_plain(row['ours'])}"


def _ratio(row: Row) -> str:
    return "–" if row["ratio"] is None else f"{row['ratio']:.2f}"


def _plain(value: float | int | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"
