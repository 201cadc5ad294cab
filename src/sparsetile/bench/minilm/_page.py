"""The page of the proof: its tables and what stands between them."""

from collections.abc import Mapping, Sequence
from typing import Any

from sparsetile.bench._files import human_bytes
from sparsetile.bench._pages import Part, Table
from sparsetile.bench.minilm._joined import Row, time_of

TITLE = "A sentence encoder, pruned"
PARTS: tuple[Part, ...] = (
    ("What was aimed at, and what came", None, ("verdicts",)),
    ("Quality against latency", "quality-latency", ()),
    ("Every cell", None, ("cells",)),
    ("Latency and memory", None, ("timing",)),
    ("Recovery by distillation", None, ("recovery",)),
)


def intro(about: Mapping[str, Any]) -> str:
    """The first paragraph, from `about.json`."""
    return (
        f"The linear layers of {about['model']}, pruned after training. Judged on "
        f"{about['held_out']} held-out sentences by the cosine between the dense and the pruned "
        "embedding (“worst tenth”: a tenth of the sentences are below) and by how many of a "
        "sentence's ten nearest neighbours stay. Pruning looked at "
        f"{about['calibration']} other sentences, recovery at {about['training']} more, all of "
        f"them {about['source']}. Sizes are of whole folders, embeddings of tokens included, "
        f"beside {human_bytes(int(about['dense_bytes']))} of the dense model in float32. Times are "
        "medians of models called in turns on the same tokens; ratios are dense float32 by torch "
        "over the model, turn by turn."
    )


def tables(made: Mapping[str, Sequence[Row]]) -> dict[str, Table]:
    """Every table of the page.

    Args:
        made: Rows by name: `verdicts`, `cells`, `timing`, `recovery`.

    Returns:
        By name, the tables.
    """
    return {
        "verdicts": Table(
            ("expected", "found", "holds"),
            [[row["expected"], row["found"], row["holds"]] for row in made["verdicts"]],
        ),
        "cells": _cells(made["cells"], made["timing"]),
        "timing": _timing(made["timing"]),
        "recovery": _recovery(made["recovery"]),
    }


def _cells(cells: Sequence[Row], times: Sequence[Row]) -> Table:
    batches = list(dict.fromkeys(row["batch"] for row in times))
    head = ["density", "block", "method", "cosine", "worst tenth", "neighbours", "file", "÷ dense",
            "in bfloat16", "÷ dense", "cosine"]  # fmt: skip
    head += [f"× dense fp32, batch {batch}" for batch in batches]
    order = sorted(cells, key=lambda r: (-r["density"], r["blocksize"], bool(r["recovery"])))
    lines = []
    for row in order:
        recovery = f", recovered ({row['recovery']})" if row["recovery"] else ""
        timed = [time_of(row, times, batch) for batch in batches]
        lines.append(
            [
                f"{row['density']:g}",
                f"{row['blocksize']}×{row['blocksize']}",
                row["method"] + recovery,
                f"{row['cosine']:.4f}",
                f"{row['worst']:.4f}",
                f"{row['overlap']:.3f}",
                human_bytes(row["bytes"]),
                f"{row['bytes_ratio']:.2f}",
                human_bytes(row["bf16_bytes"]),
                f"{row['bf16_bytes_ratio']:.2f}",
                f"{row['bf16_cosine']:.4f}",
                *(_number(time and time["dense_ratio"], "{:.2f}") for time in timed),
            ]
        )
    return Table(head, lines)


def _timing(times: Sequence[Row]) -> Table:
    head = ["model", "batch", "tokens", "ms", "least – most", "× dense fp32", "threads", "turns",
            "peak memory beside the libraries", "÷ dense", "CPUs busy for others"]  # fmt: skip
    lines = []
    for row in times:
        ms = row["why_not"] if row["ms"] is None else f"{row['ms']:.1f}"
        spread = "–" if row["ms"] is None else f"{row['least_ms']:.1f} – {row['most_ms']:.1f}"
        peak = row["peak_bytes"]
        lines.append(
            [
                row["name"],
                str(row["batch"]),
                str(row["sequence"]),
                ms,
                spread,
                _number(row["dense_ratio"], "{:.2f}"),
                str(row["threads"]),
                _number(row["rounds"], "{}"),
                "–" if peak is None else human_bytes(int(peak)),
                _number(row["peak_ratio"], "{:.2f}"),
                _number(row["others"], "{:.1f}"),
            ]
        )
    return Table(head, lines)


def _recovery(points: Sequence[Row]) -> Table:
    head = ["run", "steps", "minutes", "cosine before", "after", "neighbours before", "after"]
    lines = []
    for name in dict.fromkeys(row["run"] for row in points):
        mine = [row for row in points if row["run"] == name]
        first, last = mine[0], mine[-1]
        lines.append(
            [
                name,
                str(last["step"]),
                f"{last['seconds'] / 60:.1f}",
                f"{first['cosine']:.4f}",
                f"{last['cosine']:.4f}",
                f"{first['overlap']:.3f}",
                f"{last['overlap']:.3f}",
            ]
        )
    return Table(head, lines)


def _number(value: Any, how: str) -> str:
    return "–" if value is None else how.format(value)
