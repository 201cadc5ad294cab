"""What the numbers of one demo say, in plain words, whoever wins."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from sparsetile.bench._files import human_bytes
from sparsetile.bench._layers import FORWARD, LAYERS, grouped, times_text
from sparsetile.bench._measure import Measurement
from sparsetile.bench._results import Outcome, Results

NAMES = {"dense": "the dense model", "static": "the static sparse model", "dynsparse": "DynSparse"}
# One run of each: smaller differences change sign with the seed.
_CLOSE = 0.05
_WORST = 3  # cells named among those that dense wins


def verdicts(results: Results) -> list[str]:
    """Sentences about who won what, from this run's numbers alone.

    Args:
        results: What the demo found.

    Returns:
        One sentence or two a line; empty when nothing was measured.
    """
    lines: list[str] = []
    runs = [o for o in results.outcomes if o.judged]
    lines += _schedule(results.schedule_share)
    if len(runs) > 1:
        lines += _equal_seconds(runs)
        lines += _equalsteps_text(runs)
        lines += _time_to_dense(runs)
    if len(runs) > 1 and runs[0].name == "dense":
        lines += _memory(runs[0], runs[-1])
    lines += _layers(results.timings)
    return lines


def common_turn(runs: Sequence[Outcome]) -> int:
    """The last turn that all runs reached; 0 when there is none."""
    turns = [{judged.turn for judged in o.judged} for o in runs]
    return max(set.intersection(*turns), default=0)


def _together(runs: Sequence[Outcome]) -> float:
    """Seconds of training that all runs had; of the longest, as a last step may run over."""
    turn = common_turn(runs)
    return max(j.seconds for o in runs for j in o.judged if j.turn == turn)


def steps_text(count: int) -> str:
    """`1 step`, `1,234 steps`."""
    return f"{count:,} step" + ("" if count == 1 else "s")


def _schedule(share: float | None) -> list[str]:
    if share is None or 0.8 <= share <= 1.2:
        return []
    return [f"DynSparse ended at {share:.0%} of its schedule: read its result with that in mind."]


def _equal_seconds(runs: Sequence[Outcome]) -> list[str]:
    turn = common_turn(runs)
    if not turn:
        return ["Stopped before every run had its turn: nothing can be compared yet."]
    ends = {o.name: next(j for j in o.judged if j.turn == turn) for o in runs}
    ranked = sorted(ends, key=lambda n: ends[n].loss if isfinite(ends[n].loss) else np.inf)
    seconds = _together(runs)
    said = ", ".join(f"{NAMES[n]} {ends[n].loss:.3f} ({steps_text(ends[n].step)})" for n in ranked)
    lines = [f"After {seconds:.0f} s of training each, held-out loss: {said}."]
    first, second = ranked[0], ranked[1]
    gap = ends[second].loss - ends[first].loss
    if gap < _CLOSE:
        lines.append(
            f"Between {NAMES[first]} and {NAMES[second]} that is a draw: a gap of {gap:.3f} is "
            "within what another seed would change."
        )
    else:
        lines.append(f"In equal time {NAMES[first]} learned most, by {gap:.3f} nats per token.")
    if "dense" in ends and not isfinite(ends["dense"].loss):
        lines.append("The dense run diverged: its learning rate is too high for this text.")
    return lines


def _equalsteps_text(runs: Sequence[Outcome]) -> list[str]:
    step = min(o.judged[-1].step for o in runs)
    # Before its first judgement a curve is not known.
    if any(o.judged[0].step > step for o in runs):
        return []
    losses = {
        o.name: float(np.interp(step, [j.step for j in o.judged], [j.loss for j in o.judged]))
        for o in runs
    }
    ranked = sorted(losses, key=lambda n: losses[n])
    said = ", ".join(f"{NAMES[n]} {losses[n]:.3f}" for n in ranked)
    return [f"Step for step, at step {step:,}: {said}."]


def _time_to_dense(runs: Sequence[Outcome]) -> list[str]:
    dense = next((o for o in runs if o.name == "dense"), None)
    turn = common_turn(runs)
    if dense is None or not turn:
        return []
    lines = []
    goal = next(j.loss for j in dense.judged if j.turn == turn)
    end = _together(runs)
    for run in runs:
        if run is dense:
            continue
        mine, theirs = run.step_seconds * 1e3, dense.step_seconds * 1e3
        how = f"{theirs / mine:.1f} times faster" if mine < theirs else "slower"
        line = (
            f"A step of {NAMES[run.name]} takes {mine:.0f} ms, {how} than dense ({theirs:.0f} ms)"
        )
        reached = next((j.seconds for j in run.judged if j.turn <= turn and j.loss <= goal), None)
        if reached is None:
            line += f"; it did not reach the dense model's last loss of {goal:.3f}."
        else:
            line += f"; it was at the dense model's last loss by {reached:.0f} s of {end:.0f} s."
        lines.append(line)
    return lines


def _memory(dense: Outcome, sparse: Outcome) -> list[str]:
    mine, theirs = sparse.bytes_of("blocks"), dense.bytes_of("blocks")
    return [
        f"Weights, indices, gradients and optimizer state of the transformer blocks: "
        f"{human_bytes(mine)} sparse, {human_bytes(theirs)} dense ({mine / theirs:.3f} of it); "
        f"whole model: {human_bytes(sparse.bytes_of())} and {human_bytes(dense.bytes_of())}."
    ]


def _layers(timings: Sequence[Measurement]) -> list[str]:
    sparse = [row for row in timings if row.blocksize]
    if not sparse:
        return []
    best = max(sparse, key=lambda row: row.speedup)
    lines = [
        f"Fastest of the timed layers against dense: {best.m}×{best.k}, blocks "
        f"{best.blocksize}×{best.blocksize}, density {best.density:.2g}: {best.speedup:.1f} times."
    ]
    lost = [
        (
            speedup,
            f"{name} blocks {block}×{block} at density {density:g}"
            + ("" if op == FORWARD else " with gradients")
            + f" ({times_text(speedup).removesuffix(' ✗')})",
        )
        for name, block, ops in grouped(timings, LAYERS)
        for op, (_, speedups) in ops.items()
        for density, speedup in speedups.items()
        if speedup < 1
    ]
    if lost:
        worst = "; ".join(cell for _, cell in sorted(lost)[:_WORST])
        how = "; the worst" if len(lost) > _WORST else ""
        lines.append(
            f"Dense wins {len(lost)} of {len(sparse)} cells of the table, marked ✗{how}: {worst}."
        )
    return lines
