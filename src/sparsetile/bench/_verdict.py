"""What the numbers of one demo say, in plain words, whoever wins."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from sparsetile.bench._files import human_bytes
from sparsetile.bench._layers import FORWARD, LAYERS, grouped
from sparsetile.bench._measure import Measurement
from sparsetile.bench._results import Outcome, Results

NAMES = {"dense": "the dense model", "static": "the static sparse model", "dynsparse": "DynSparse"}
# One run of each: smaller differences change sign with the seed.
_CLOSE = 0.05


def verdicts(results: Results) -> list[str]:
    """Sentences about who won what, from this run's numbers alone.

    Args:
        results: What the demo found.

    Returns:
        One sentence or two a line; empty when nothing was measured.
    """
    lines: list[str] = []
    runs = [o for o in results.outcomes if o.judged]
    if len(runs) > 1:
        lines += _equal_seconds(runs)
        lines += _equal_steps(runs)
        lines += _time_to_dense(runs)
    if len(runs) > 1 and runs[0].name == "dense":
        lines += _memory(runs[0], runs[-1])
    lines += _layers(results.timings)
    return lines


def common_turn(runs: Sequence[Outcome]) -> int:
    """The last turn that all runs reached; 0 when there is none."""
    turns = [{judged.turn for judged in o.judged} for o in runs]
    return max(set.intersection(*turns), default=0)


def _steps(count: int) -> str:
    return f"{count:,} step" + ("" if count == 1 else "s")


def _equal_seconds(runs: Sequence[Outcome]) -> list[str]:
    turn = common_turn(runs)
    if not turn:
        return ["Stopped before every run had its turn: nothing can be compared yet."]
    ends = {o.name: next(j for j in o.judged if j.turn == turn) for o in runs}
    ranked = sorted(ends, key=lambda n: ends[n].loss if isfinite(ends[n].loss) else np.inf)
    seconds = max(j.seconds for j in ends.values())
    said = ", ".join(f"{NAMES[n]} {ends[n].loss:.3f} ({_steps(ends[n].step)})" for n in ranked)
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


def _equal_steps(runs: Sequence[Outcome]) -> list[str]:
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
    if dense is None:
        return []
    lines = []
    goal, end = dense.judged[-1].loss, dense.judged[-1].seconds
    for run in runs:
        if run is dense:
            continue
        mine, theirs = run.step_seconds * 1e3, dense.step_seconds * 1e3
        how = f"{theirs / mine:.1f} times faster" if mine < theirs else "slower"
        line = (
            f"A step of {NAMES[run.name]} takes {mine:.0f} ms, {how} than dense ({theirs:.0f} ms)"
        )
        reached = next((j.seconds for j in run.judged if j.loss <= goal), None)
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
        f"{name} blocks {block}×{block} at density {density:g}"
        + ("" if op == FORWARD else " with gradients")
        for name, block, ops in grouped(timings, LAYERS)
        for op, (_, speedups) in ops.items()
        for density, speedup in speedups.items()
        if speedup < 1
    ]
    if lost:
        lines.append(f"Dense wins {len(lost)} of {len(sparse)} cells: {'; '.join(lost)}.")
    return lines
