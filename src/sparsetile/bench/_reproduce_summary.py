"""How far the model is from what was published."""

from collections.abc import Mapping, Sequence
from math import exp, log, sqrt
from typing import Any

from sparsetile.bench._reproduce_published import parts_of, published

Row = dict[str, Any]
COLUMNS = (
    "of", "points", "log_rms", "mean_ratio", "least", "most", "within_10", "within_25", "sign",
    "refused_by_both", "refused_by_us_only", "refused_by_them_only",
)  # fmt: skip
WORST = ("of", "what", "published", "ours", "ratio")
_WORST = 12


def agreement(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """One line for each group of published numbers.

    Args:
        rows: Of `rows_of`.

    Returns:
        The lines; `ratio` is ours over published, `sign` the share on the same side of 1.
    """
    grid = rows["grid"]
    lines = [_line("static over dense, every cell of the grid", grid, sign=True)]
    lines += [
        _line(f"… blocks of {b}", [row for row in grid if row["blocksize"] == b], sign=True)
        for b in sorted({row["blocksize"] for row in grid})
    ]
    ipu = [row for row in rows["density"] if row["device"] == "ipu"]
    curves = rows["blocks-and-sizes"]
    for mode in ("static", "dynamic", "dense"):
        points = [row for row in (*ipu, *curves) if row["mode"] == mode]
        lines.append(_line(f"TFLOP/s at best n, {mode}", points))
    lines.append(_line("speed-ups of the table", rows["table"], sign=True))
    for dtype in ("float16", "float32"):
        points = [r for r in rows["dense"] if r["device"] == "ipu" and r["dtype"] == dtype]
        lines.append(_line(f"dense TFLOP/s against n, {dtype}, four phases alone", points))
    return [line for line in lines if line["points"]]


def _line(of: str, rows: Sequence[Row], *, sign: bool = False) -> Row:
    ratios = [row["ratio"] for row in rows if row["ratio"] is not None]
    count = len(ratios)
    blank = {name: None for name in COLUMNS[2:]}
    if not ratios:
        return {**blank, "of": of, "points": 0}
    sides = [(r["published"] - 1) * (r["ours"] - 1) >= 0 for r in rows if r["ratio"] is not None]
    told = [row["published"] is not None for row in rows]
    ours = [row["ours"] is not None for row in rows]
    pairs = list(zip(told, ours, strict=True))
    return {
        "of": of,
        "points": count,
        "log_rms": sqrt(sum(log(ratio) ** 2 for ratio in ratios) / count),
        "mean_ratio": exp(sum(map(log, ratios)) / count),
        "least": min(ratios),
        "most": max(ratios),
        "within_10": sum(0.9 <= ratio <= 1.1 for ratio in ratios) / count,
        "within_25": sum(0.75 <= ratio <= 1.25 for ratio in ratios) / count,
        "sign": sum(sides) / count if sign else None,
        "refused_by_both": pairs.count((False, False)),
        "refused_by_us_only": pairs.count((True, False)),
        "refused_by_them_only": pairs.count((False, True)),
    }


def worst(rows: Mapping[str, Sequence[Row]]) -> list[Row]:
    """The points where the model differs most.

    Args:
        rows: Of `rows_of`.

    Returns:
        The worst of the grid, then the worst of all other points.
    """
    others = [
        *(("best n", row) for row in rows["density"] if row["mode"] != "dense"),
        *(("best n", row | {"density": "1/16"}) for row in rows["blocks-and-sizes"]),
        *(("table", row | {"density": "1/16"}) for row in rows["table"]),
    ]
    found = []
    for points in ([("grid", row | {"mode": "static"}) for row in rows["grid"]], others):
        known = [(of, row) for of, row in points if row["ratio"] is not None]
        found += sorted(known, key=lambda pair: -abs(log(pair[1]["ratio"])))[:_WORST]
    return [{"of": of, "what": _what(row), **{c: row[c] for c in WORST[2:]}} for of, row in found]


def _what(row: Row) -> str:
    parts = [str(row["mode"]), str(row.get("dtype", "float16")), f"block {row['blocksize']}"]
    parts += [f"density {row['density']}", f"m {row.get('m', 4096)}", f"n {row['n']}"]
    return ", ".join(parts)


def regions_differ(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Where the model and the authors disagree on whether sparse wins at best n.

    Args:
        rows: Of the regions.

    Returns:
        Under "wins here, not said to" and "said to win, does not", the rows.
    """
    won = [(row, row["speedup"] is not None and row["speedup"] > 1) for row in rows]
    return {
        "wins here, not said to": [r for r, wins in won if wins and r["said_to_win"] == "no"],
        "said to win, does not": [r for r, wins in won if not wins and r["said_to_win"] == "yes"],
    }


def said_regions() -> list[tuple[str, str]]:
    """The authors' regions, in words."""
    return [
        (
            f"{row['mode']}, blocks of {', '.join(row['blocksizes'].split())}",
            f"m = k ≥ {row['least_m']} and density ≤ 1/{parts_of(row['most_density'])}",
        )
        for row in published("regions")
    ]
