"""The comparison: each line's mean over seeds, and each block's methods beside matched dense."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from sparsetile.bench.dynsparse._chosen import Family, Row, by_family
from sparsetile.bench.dynsparse._curve import cost_at, loss_at, within

#: What a run costs, by the name of its column; `seconds` need the timing.
COSTS = ("flops", "all_flops", "seconds", "block_bytes", "all_bytes")
LINES = (
    "method", "blocksize", "width", "objective", "lr", "seeds", "loss", "sd", "stuck", "steps",
    *COSTS, "step_ms", "coverage", "wasted", "empty_rows", "empty_rows_end", "block_rows",
    "attention_share",
)  # fmt: skip
COMPARISON = (
    "objective", "blocksize", "seeds", "static", "static_sd", "dynamic", "dynamic_sd", "rigl",
    "rigl_sd", "difference", "difference_sd", "matched", "flops_ratio", "all_flops_ratio",
    "seconds_ratio", "bytes_ratio", "until_matched", "extrapolated", "static_flops_ratio",
    "published_base", "published_medium",
)  # fmt: skip
# Operations of the dynamic model over those of a dense one of its loss: Dietrich et al. (2021),
# computed from the losses of their BERT-Base and BERT-Medium.
_PUBLISHED = {1: (0.49, 0.43), 4: (0.73, 0.79), 8: (0.79, 0.95), 16: (0.83, 1.08)}
_MEANS = ("coverage", "wasted", "empty_rows", "empty_rows_end")
_SAME = ("steps", "lr", "flops", "all_flops", "block_bytes", "all_bytes", "block_rows",
         "attention_share")  # fmt: skip


def lines(main: Sequence[Row], timing: Sequence[Row]) -> list[Row]:
    """One row for each line of the comparison, over its seeds.

    Args:
        main: Runs of the part `main`.
        timing: Rows of `timing.csv`; without them there are no seconds.

    Returns:
        Rows with `LINES`.
    """
    clock = {_key(row): row for row in timing}
    made = []
    for family, runs in by_family(main).items():
        losses = [row["loss"] for row in runs]
        every = runs[0]["every"]
        time = clock.get(family)
        step = None
        if time is not None:
            step = time["step_ms"] + (time["update_ms"] / every if every else 0.0)
        made.append(
            dict(zip(("method", "blocksize", "width", "objective"), family, strict=True))
            | {name: runs[0][name] for name in _SAME}
            | {name: mean(row[name] for row in runs) for name in _MEANS}
            | {
                "seeds": len(runs),
                "loss": mean(losses),
                "sd": stdev(losses) if len(losses) > 1 else None,
                "stuck": sum(row["stuck"] for row in runs),
                "step_ms": step,
                "seconds": None if step is None else step * runs[0]["steps"] / 1e3,
            }
        )
    return made


def compare(main: Sequence[Row], line_rows: Sequence[Row], curves: Sequence[Row]) -> list[Row]:
    """One row for each block: the methods, their paired difference, and what dense would need.

    Args:
        main: Runs of the part `main`.
        line_rows: Rows of `lines`.
        curves: Rows of `curves.csv`.

    Returns:
        Rows with `COMPARISON`; a ratio is the cost of the dynamic model over that of a dense one
        of the same final loss, so below 1 the sparse model is cheaper.
    """
    by_line = {_key(row): row for row in line_rows}
    families = by_family(main)
    made = []
    for objective in dict.fromkeys(row["objective"] for row in line_rows):
        ours = [row for row in line_rows if row["objective"] == objective]
        dense = [row for row in ours if row["method"] == "dense"]
        for blocksize in sorted({row["blocksize"] for row in ours} - {0}):
            of = {
                family[0]: family
                for family in by_line
                if family[1] == blocksize and family[3] == objective
            }
            row = _methods(of, by_line) | _paired(of, families)
            row |= _against_dense(of, by_line, dense, families, curves)
            base, medium = _PUBLISHED.get(blocksize, (None, None))
            row |= {"objective": objective, "blocksize": blocksize}
            row |= {"published_base": base, "published_medium": medium}
            made.append({name: row.get(name) for name in COMPARISON})
    return made


def _methods(of: Mapping[str, Family], by_line: Mapping[Family, Row]) -> Row:
    row: Row = {}
    for method, name in (("static", "static"), ("dynsparse", "dynamic"), ("rigl", "rigl")):
        line = by_line.get(of.get(method, ("", 0, 0, "")))
        row |= {name: line and line["loss"], f"{name}_sd": line and line["sd"]}
    return row


def _paired(of: Mapping[str, Family], families: Mapping[Family, Sequence[Row]]) -> Row:
    """Dynamic minus static, seed by seed."""
    losses = {
        method: {row["seed"]: row["loss"] for row in families[of[method]]}
        for method in ("static", "dynsparse")
        if method in of
    }
    if len(losses) < 2:
        return {}
    both = sorted(losses["static"].keys() & losses["dynsparse"].keys())
    apart = [losses["dynsparse"][seed] - losses["static"][seed] for seed in both]
    if not apart:
        return {}
    spread = stdev(apart) if len(apart) > 1 else None
    return {"seeds": len(apart), "difference": mean(apart), "difference_sd": spread}


def _against_dense(
    of: Mapping[str, Family],
    by_line: Mapping[Family, Row],
    dense: Sequence[Row],
    families: Mapping[Family, Sequence[Row]],
    curves: Sequence[Row],
) -> Row:
    if "dynsparse" not in of or len(dense) < 2:
        return {}
    line = by_line[of["dynsparse"]]
    row: Row = {"matched": loss_at(_points(dense, "flops"), line["flops"])}
    for cost, name in (("flops", "flops_ratio"), ("all_flops", "all_flops_ratio"),
                       ("seconds", "seconds_ratio"), ("block_bytes", "bytes_ratio")):  # fmt: skip
        if line[cost] is not None and all(one[cost] is not None for one in dense):
            row[name] = line[cost] / cost_at(_points(dense, cost), line["loss"])
    row["extrapolated"] = int(not within(_points(dense, "flops"), line["loss"]))
    if "static" in of:
        static = by_line[of["static"]]
        row["static_flops_ratio"] = static["flops"] / cost_at(
            _points(dense, "flops"), static["loss"]
        )
    if line["seconds"] is not None and all(one["seconds"] is not None for one in dense):
        steps = _steps_until(row["matched"], families[of["dynsparse"]], curves)
        same = cost_at(_points(dense, "seconds"), row["matched"])
        if steps is not None:
            row["until_matched"] = steps * line["step_ms"] / 1e3 / same
    return row


def _points(dense: Sequence[Row], cost: str) -> list[tuple[float, float]]:
    return [(float(row[cost]), float(row["loss"])) for row in dense]


def _steps_until(loss: float, runs: Sequence[Row], curves: Sequence[Row]) -> float | None:
    """Steps after which the mean curve of some runs falls to a loss; None if it never does."""
    names = {row["run"] for row in runs}
    by_step: dict[int, list[float]] = {}
    for point in curves:
        if point["run"] in names:
            by_step.setdefault(point["step"], []).append(point["loss"])
    before: tuple[float, float] | None = None
    for step, values in sorted(by_step.items()):
        at = (float(step), mean(values))
        if at[1] <= loss:
            if before is None:
                return at[0]
            share = (before[1] - loss) / (before[1] - at[1])
            return before[0] + share * (at[0] - before[0])
        before = at
    return None


def _key(row: Mapping[str, Any]) -> Family:
    return row["method"], row["blocksize"], row["width"], row["objective"]
