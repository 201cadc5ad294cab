"""A demo's results as a folder: one page for the eyes, a CSV behind each of its pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparsetile.bench import _charts as charts
from sparsetile.bench import _page as html
from sparsetile.bench._files import human_bytes, write_csv, write_text
from sparsetile.bench._layers import FORWARD, WITH_GRAD, grouped, threads_text, times_text
from sparsetile.bench._measure import COLUMNS
from sparsetile.bench._results import Outcome, Results, Shot
from sparsetile.bench._verdict import verdicts

_LOSS = ("run", "text", "step", "seconds", "tokens", "loss", "step_seconds", "tokens_per_second")
_MEMORY = ("run", "part", "kind", "bytes")
_PATTERNS = ("layer", "step", "seconds", "block_row", "block_column")
_PICTURES = 6  # of the pattern, beside each other
_NEW = 0.05  # share of blocks that must have moved for another picture


def write_report(folder: Path, results: Results) -> Path:
    """Write `report.html` and its CSV files.

    Args:
        folder: An existing folder.
        results: What the demo found; any part of it may be missing.

    Returns:
        The page's path.
    """
    write_csv(folder / "timings.csv", COLUMNS, (row.row() for row in results.timings))
    write_csv(folder / "loss.csv", _LOSS, _loss_rows(results))
    write_csv(
        folder / "memory.csv",
        _MEMORY,
        ({"run": o.name, **row} for o in results.outcomes for row in o.memory),
    )
    write_csv(folder / "patterns.csv", _PATTERNS, _pattern_rows(results))
    write_text(folder / "report.html", html.page("sparsetile demo", _body(results)))
    return folder / "report.html"


def _body(results: Results) -> list[str]:
    said = verdicts(results)
    body = [
        "<h1>Dense, sparse and DynSparse, given the same seconds</h1>",
        html.paragraph(
            "Everything on this page was measured in one run of sparsetile demo on the machine "
            "named below.",
            "lead",
        ),
    ]
    if results.stopped:
        body.append(html.paragraph("Stopped with Ctrl-C: the page shows what there was by then."))
    if said:
        body.append(html.items(said, "verdict"))
    outcomes = [o for o in results.outcomes if o.trained]
    if outcomes:
        body += [_loss(results, outcomes), _speed(outcomes)]
    if any(o.memory for o in outcomes):
        body.append(_memory([o for o in outcomes if o.memory]))
    if results.shots:
        body.append(_patterns(results))
    if results.timings:
        body.append(_timings(results))
    if results.completions:
        body.append(_completions(results))
    body.append(_machine(results))
    return body


def _loss(results: Results, outcomes: list[Outcome]) -> str:
    def judged(of: str) -> dict[str, list[tuple[float, float]]]:
        return {o.name: [(getattr(j, of), j.loss) for j in o.judged] for o in outcomes}

    def trained(of: str) -> dict[str, list[tuple[float, float]]]:
        return {o.name: [(getattr(s, of), s.loss) for s in o.trained] for o in outcomes}

    # The first group of `groups_of` are the block layers.
    rates = ", ".join(f"{charts.LABELS[o.name]} {o.rates[0]:.2g}" for o in outcomes)
    rest = f"{outcomes[0].rates[-1]:.2g}"
    return html.section(
        "Loss",
        html.paragraph(results.text),
        html.side_by_side(
            html.figure(
                charts.loss_chart(judged("seconds"), trained("seconds"), "seconds of training"),
                "Marks: held-out text. Faint: training batches, mean of the last 25 steps.",
                "loss.csv",
            ),
            html.figure(
                charts.loss_chart(judged("step"), trained("step"), "steps"),
                "The same against steps: how much is learned from each batch.",
                "loss.csv",
            ),
        ),
        html.paragraph(
            f"The runs took turns on the machine and saw the same batches in the same order. "
            f"Highest learning rates of the block layers: {rates}; of embedding, norms and biases "
            f"in every run: {rest}. {results.schedule}",
            "note",
        ),
    )


def _speed(outcomes: list[Outcome]) -> str:
    steps = {o.name: o.step_seconds * 1e3 for o in outcomes}
    tokens = {o.name: o.tokens_per_step / o.step_seconds for o in outcomes}
    return html.section(
        "Speed of a training step",
        html.side_by_side(
            html.figure(
                charts.bar_chart(steps, "milliseconds per step (median)", lambda v: f"{v:.0f} ms"),
                "Forward, backward, clipping, optimizer and pattern updates.",
                "loss.csv",
            ),
            html.figure(
                charts.bar_chart(tokens, "tokens per second", lambda v: f"{v:,.0f}"),
                f"{outcomes[0].tokens_per_step:,} tokens a step.",
                "loss.csv",
            ),
        ),
    )


def _memory(outcomes: list[Outcome]) -> str:
    def by_kind(part: str | None) -> dict[str, dict[str, float]]:
        parts: dict[str, dict[str, float]] = {}
        for o in outcomes:
            kinds = parts.setdefault(o.name, {})
            for row in o.memory:
                if part in (None, row["part"]):
                    kinds[row["kind"]] = kinds.get(row["kind"], 0.0) + row["bytes"]
        return parts

    rows = [
        [
            charts.LABELS[o.name],
            f"{o.parameters:,}",
            *(human_bytes(o.bytes_of(part)) for part in ("blocks", "rest", None)),
        ]
        for o in outcomes
    ]
    return html.section(
        "Memory of weights, gradients and optimizer state",
        html.side_by_side(
            html.figure(
                charts.memory_chart(by_kind("blocks")),
                "The fully connected layers of the transformer blocks. From strong to faint: "
                "weights, indices, gradients, optimizer state.",
                "memory.csv",
            ),
            html.figure(
                charts.memory_chart(by_kind(None)),
                "The whole model, with embedding and norms, dense in every run.",
                "memory.csv",
            ),
        ),
        html.table(["run", "parameters", "blocks", "rest", "together"], rows),
    )


def _patterns(results: Results) -> str:
    shots = distinct(results.shots)
    if len(shots) > _PICTURES:
        last = len(shots) - 1
        shots = [shots[round(i * last / (_PICTURES - 1))] for i in range(_PICTURES)]
    pictures = [(f"step {shot.step:,}", shot.blocks) for shot in shots]
    first, final = shots[0].blocks, shots[-1].blocks
    moved = int((final & ~first).sum())
    ever = ""
    if results.coverage is not None:
        ever = f"; {results.coverage:.0%} of all its places held a block at some time of the run"
    return html.section(
        "A pattern as it evolves",
        html.figure(
            charts.pattern_chart(pictures),
            f"Stored blocks of {results.layer} in the DynSparse run: blue since the start, orange "
            "grown later.",
            "patterns.csv",
        ),
        html.paragraph(f"{moved:,} of {int(final.sum()):,} blocks are not where they began{ever}."),
    )


def distinct(shots: Sequence[Shot]) -> list[Shot]:
    """Leave out pictures that look like the one before; the first and the last stay.

    Args:
        shots: Pictures of one layer, in order.

    Returns:
        Those in which a share of the blocks moved since the one before.
    """
    kept = [shots[0]]
    for shot in shots[1:]:
        if int((shot.blocks & ~kept[-1].blocks).sum()) >= _NEW * int(shot.blocks.sum()):
            kept.append(shot)
    if kept[-1] is not shots[-1]:
        # The end is shown in any case, in place of its near duplicate.
        kept = [*kept[: max(1, len(kept) - 1)], shots[-1]]
    return kept


def _timings(results: Results) -> str:
    densities = sorted({round(r.density, 2) for r in results.timings if r.blocksize}, reverse=True)
    head = ["layer", "blocks"]
    for op in ("forward", "with gradients"):
        head += [f"{op}: dense ms", *(f"d={d:g}" for d in densities)]
    rows = []
    for layer, block, ops in grouped(results.timings):
        line = [layer, f"{block}×{block}"]
        for op in (FORWARD, WITH_GRAD):
            dense, speedups = ops.get(op, (None, {}))
            line.append("" if dense is None else f"{dense * 1e3:.3g}")
            line += [times_text(speedups.get(d)) for d in densities]
        rows.append(line)
    one = results.timings[0]
    return html.section(
        "Layers, dense against sparse",
        html.paragraph(
            f"Times faster than dense (best time over best time, measured in turns), {one.n} rows, "
            f"fp32, {threads_text(one.threads)}. Red: dense wins."
        ),
        html.table(head, rows, lost=" ✗"),
        *([html.paragraph(f"Beware: {results.busy}.")] if results.busy else []),
        html.numbers("Numbers of every cell: ", "timings.csv"),
    )


def _completions(results: Results) -> str:
    checked = (
        "Read back from model.safetensors, it gives the same numbers bit for bit. "
        if results.reloaded
        else "Read back from model.safetensors, it does NOT give the same numbers. "
    )
    return html.section(
        "The saved model finishes five lines",
        html.paragraph(
            f"{checked}By {results.finisher or 'the sparse model'}. Lines of held-out text: plain "
            "is what it was shown, orange what it made of the rest, grey what the text has there."
        ),
        *(html.completion(c.given, c.made, c.truth) for c in results.completions),
    )


def _machine(results: Results) -> str:
    rows = [*results.facts.items(), *results.settings.items()]
    rows += [(f"seconds, {name}", f"{spent:.1f}") for name, spent in results.stages.items()]
    return html.section(
        "Machine, command and settings",
        html.table([], [[name, str(value)] for name, value in rows], kind="facts"),
    )


def _loss_rows(results: Results) -> Iterator[dict[str, Any]]:
    for o in results.outcomes:
        for step in o.trained:
            yield {
                "run": o.name,
                "text": "train",
                "step": step.step,
                "seconds": step.seconds,
                "tokens": step.step * o.tokens_per_step,
                "loss": step.loss,
                "step_seconds": step.step_seconds,
                "tokens_per_second": o.tokens_per_step / step.step_seconds,
            }
        for judged in o.judged:
            yield {
                "run": o.name,
                "text": "held out",
                "step": judged.step,
                "seconds": judged.seconds,
                "tokens": judged.step * o.tokens_per_step,
                "loss": judged.loss,
                "step_seconds": "",
                "tokens_per_second": "",
            }


def _pattern_rows(results: Results) -> Iterator[dict[str, Any]]:
    for shot in results.shots:
        for row, column in zip(*shot.blocks.nonzero(), strict=True):
            yield {
                "layer": results.layer,
                "step": shot.step,
                "seconds": shot.seconds,
                "block_row": int(row),
                "block_column": int(column),
            }
