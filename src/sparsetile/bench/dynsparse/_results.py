"""From the CSVs of runs to the CSVs behind the pictures and tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from sparsetile.bench._files import write_csv
from sparsetile.bench.dynsparse import _compare
from sparsetile.bench.dynsparse._chosen import Row, by_family, chosen
from sparsetile.bench.dynsparse._store import rows_in
from sparsetile.bench.dynsparse._tiers import Tier
from sparsetile.bench.dynsparse._verdict import COLUMNS as VERDICTS
from sparsetile.bench.dynsparse._verdict import verdicts

Results = Mapping[str, Sequence[Row]]
_POINTS = ("method", "blocksize", "width", "objective", "step", "seconds", "loss", "coverage",
           "wasted")  # fmt: skip
_CHOICE = ("method", "blocksize", "every", "prune_ratio", "drop", "steps", "updates", "lr",
           "loss", "coverage", "wasted")  # fmt: skip

#: Columns of each CSV that is made of the runs; those of the pictures have the pictures' names.
COLUMNS: dict[str, Sequence[str]] = {
    "comparison": _compare.COMPARISON,
    "verdicts": VERDICTS,
    "loss-flops": ("method", "blocksize", "width", "objective", "seeds", "loss", "sd", "steps",
                   "flops", "all_flops", "attention_share"),
    "loss-seconds": _POINTS,
    "loss-bytes": ("method", "blocksize", "width", "objective", "seeds", "loss", "sd", "steps",
                   "block_bytes", "all_bytes"),
    "coverage": _POINTS,
    "lines": _compare.LINES,
    "sweeps": ("method", "blocksize", "width", "objective", "lr", "steps", "loss", "stuck"),
    "updates": _CHOICE,
    "ratio": _CHOICE,
    "norm": _CHOICE,
}  # fmt: skip


def results(tier: Tier, folder: Path) -> dict[str, list[Row]]:
    """Sort, average and compare what a folder holds.

    Args:
        tier: Says which runs belong together.
        folder: Holds `runs.csv`, `curves.csv` and, for seconds, `timing.csv`.

    Returns:
        By name, the rows of `COLUMNS`; a part without finished runs has none.
    """
    parts = chosen(tier, rows_in(folder / "runs.csv"))
    curves, timing = rows_in(folder / "curves.csv"), rows_in(folder / "timing.csv")
    main = parts.get("main", [])
    lines = _compare.lines(main, timing)
    comparison = _compare.compare(main, lines, curves)
    points = _points(main, lines, curves)
    made: dict[str, list[Row]] = {
        "comparison": comparison,
        "verdicts": verdicts(comparison, lines, {part: parts.get(part, []) for part in _ABLATED}),
        "loss-flops": lines,
        "loss-seconds": [point for point in points if point["seconds"] is not None],
        "loss-bytes": lines,
        "coverage": [point for point in points if point["method"] != "dense"],
        "lines": lines,
        "sweeps": parts.get("sweep", []),
    }
    return made | {part: parts.get(part, []) for part in _ABLATED}


_ABLATED = ("updates", "ratio", "norm")


def keep(made: Results, folder: Path) -> list[Path]:
    """Write one CSV for each kind of rows; returns the files."""
    written = []
    for name, columns in COLUMNS.items():
        written.append(folder / f"{name}.csv")
        write_csv(written[-1], columns, made[name])
    return written


def _points(main: Sequence[Row], lines: Sequence[Row], curves: Sequence[Row]) -> list[Row]:
    """The curve of each line: the mean over its seeds, with the seconds of the quiet timing."""
    step_ms = {tuple(line[k] for k in _POINTS[:4]): line["step_ms"] for line in lines}
    made: list[Row] = []
    for family, runs in by_family(main).items():
        names = {row["run"] for row in runs}
        by_step: dict[int, list[Row]] = {}
        for point in curves:
            if point["run"] in names:
                by_step.setdefault(point["step"], []).append(point)
        for step, of in sorted(by_step.items()):
            values: dict[str, Any] = {
                name: mean(point[name] for point in of) for name in ("loss", "coverage", "wasted")
            }
            each = step_ms[family]
            seconds = None if each is None else each * step / 1e3
            head = dict(zip(_POINTS[:4], family, strict=True))
            made.append(head | {"step": step, "seconds": seconds} | values)
    return made
