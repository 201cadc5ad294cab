"""What was expected before the runs, and whether it came."""

from collections.abc import Mapping, Sequence
from typing import Any

from sparsetile.bench.dynsparse._chosen import Row

COLUMNS = ("expected", "found", "holds")
_NEAR = 0.03  # nats: what counts as level with the matched dense model
_NOT_YET = "not measured yet"


def verdicts(
    comparison: Sequence[Row], lines: Sequence[Row], ablations: Mapping[str, Sequence[Row]]
) -> list[Row]:
    """Put each expectation beside what came out.

    Args:
        comparison: Rows of the comparison, one for each block.
        lines: Rows of its lines.
        ablations: Runs of the parts `updates`, `ratio` and `norm`.

    Returns:
        Rows with `COLUMNS`; `holds` is yes, no or open.
    """
    causal = [row for row in comparison if row["objective"] == "clm"]
    made: list[Row] = []
    for row in causal:
        b = f"{row['blocksize']}×{row['blocksize']}"
        made.append(_judged(f"{b}: dynamic ends below static", row["difference"], below=0.0,
                            spread=row["difference_sd"]))  # fmt: skip
    for row in causal:
        gap = _gap(row)
        b = f"{row['blocksize']}×{row['blocksize']}"
        if row["blocksize"] <= 4:
            made.append(_judged(f"{b}: dynamic ends below matched dense", gap, below=0.0))
        else:
            made.append(_level(f"{b}: dynamic ends within ±{_NEAR} of matched dense", gap))
    for row in causal:
        if row["blocksize"] <= 4:
            b = f"{row['blocksize']}×{row['blocksize']}"
            made.append(
                _judged(
                    f"{b}: fewer seconds than the dense model of the same loss",
                    row["seconds_ratio"],
                    below=1.0,
                    unit=" of its seconds",
                )
            )
    for row in causal:
        b = f"{row['blocksize']}×{row['blocksize']}"
        made.append(_order(f"{b}: the paper's order, dynamic, matched dense, static", row))
    made += _ablated(ablations)
    made.append(_stuck(lines))
    return made


def _gap(row: Row) -> float | None:
    if row["dynamic"] is None or row["matched"] is None:
        return None
    return float(row["dynamic"] - row["matched"])


def _judged(
    expected: str,
    value: float | None,
    *,
    below: float,
    spread: float | None = None,
    unit: str = " nats",
) -> Row:
    if value is None:
        return {"expected": expected, "found": _NOT_YET, "holds": "open"}
    found = f"{value:+.3f}{unit}" if below == 0 else f"{value:.2f}{unit}"
    if spread is not None:
        found += f" (± {spread:.3f} over seeds)"
    return {"expected": expected, "found": found, "holds": "yes" if value < below else "no"}


def _level(expected: str, gap: float | None) -> Row:
    row = _judged(expected, gap, below=0.0)
    if gap is not None:
        row["holds"] = "yes" if abs(gap) <= _NEAR else "no, better" if gap < 0 else "no"
    return row


def _order(expected: str, row: Row) -> Row:
    losses = {
        "dynamic": row["dynamic"], "matched dense": row["matched"], "static": row["static"]
    }  # fmt: skip
    if any(loss is None for loss in losses.values()):
        return {"expected": expected, "found": _NOT_YET, "holds": "open"}
    ranked = sorted(losses, key=lambda name: float(losses[name]))
    return {
        "expected": expected,
        "found": ", ".join(f"{name} {losses[name]:.3f}" for name in ranked),
        "holds": "yes" if ranked == list(losses) else "no",
    }


def _ablated(ablations: Mapping[str, Sequence[Row]]) -> list[Row]:
    made: list[Row] = []
    moving = {
        part: [row for row in rows if row["method"] != "static"] for part, rows in ablations.items()
    }
    for part, column, expected, told in (
        ("updates", "every", "a few dozen updates beat a few and very many", "every {} steps"),
        ("ratio", "prune_ratio", "moving half at first beats a quarter and all", "a share of {}"),
        ("norm", "drop", "the sum of magnitudes scores blocks best", "{}"),
    ):
        for b in dict.fromkeys(row["blocksize"] for row in moving[part]):
            rows = [row for row in moving[part] if row["blocksize"] == b]
            best = min(rows, key=lambda row: float(row["loss"]))
            worst = max(rows, key=lambda row: float(row["loss"]))
            found = ", ".join(
                f"{name} {told.format(row[column])}: {row['loss']:.3f}"
                for name, row in (("best", best), ("worst", worst))
            )
            inner = sorted({row[column] for row in rows})
            wanted: dict[str, Any] = {"updates": inner[1:-1], "ratio": [0.5, 0.75], "norm": ["l1"]}
            done = len(rows) > 2
            holds = "yes" if best[column] in wanted[part] else "no"
            made.append(
                {"expected": f"{b}×{b}: {expected}", "found": found,
                 "holds": holds if done else "open"}
            )  # fmt: skip
    return made


def _stuck(lines: Sequence[Row]) -> Row:
    stuck = sum(line["stuck"] for line in lines)
    return {
        "expected": "no compared run is stuck at the unigram loss",
        "found": f"{stuck} of {sum(line['seeds'] for line in lines)} runs",
        "holds": "yes" if not stuck else "no",
    }
