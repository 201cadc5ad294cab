"""Several training runs that take turns, so that each gets the same seconds of the machine."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sparsetile.bench._model import loss_of
from sparsetile.bench._progress import Progress
from sparsetile.bench._tokens import Batches

WARMUP = 0.05  # of the time: the learning rate rises over this part, then falls to the floor
FLOOR = 0.05
CLIP = 1.0


@dataclass(frozen=True)
class Step:
    """One training step: its number, the seconds of training up to its end, its own, its loss."""

    step: int
    seconds: float
    step_seconds: float
    loss: float


@dataclass(frozen=True)
class Judged:
    """Loss on the held-out text at the end of a turn."""

    turn: int
    step: int
    seconds: float
    loss: float


@dataclass
class Run:
    """A model being trained, and what was seen on the way.

    Args:
        name: `dense`, `static` or `dynsparse`.
        model: The model.
        optimizer: Its optimizer; the learning rates it has now are the highest of the run.
        batches: Training batches; equal objects give equal data order.
        prepare: Called before each turn with the steps to expect of the whole run.
    """

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    prepare: Callable[[int], None] = lambda steps: None
    seconds: float = 0.0
    trained: list[Step] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pass_seconds = 1.0
        self.peaks = [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one batch."""
        inputs, _ = self.batches[0]
        return inputs.numel()

    def warm_up(self) -> None:
        """Run forward and backward outside the run's time, so that all kernels exist."""
        for _ in range(2):
            start = time.perf_counter()
            loss_of(self.model, *self.batches[0]).backward()
            self.pass_seconds = time.perf_counter() - start
            self.optimizer.zero_grad(set_to_none=True)

    def step(self, fraction: float) -> Step:
        """Train on the next batch; `fraction` of the run's time is over."""
        start = time.perf_counter()
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = peak * rate_at(fraction)
        loss = loss_of(self.model, *self.batches[len(self.trained)])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        value = loss.item()
        spent = time.perf_counter() - start
        self.seconds += spent
        self.trained.append(Step(len(self.trained) + 1, self.seconds, spent, value))
        return self.trained[-1]

    def judge(self, turn: int, held_out: Sequence[tuple[Tensor, Tensor]]) -> Judged:
        """Measure the loss on the held-out batches; this time is not the run's."""
        if self.judged and self.judged[-1].step == len(self.trained):  # steps longer than a turn
            self.judged.append(replace(self.judged[-1], turn=turn))
            return self.judged[-1]
        with torch.no_grad():
            losses = [loss_of(self.model, *batch).item() for batch in held_out]
        mean = sum(losses) / len(losses)
        self.judged.append(Judged(turn, len(self.trained), self.seconds, mean))
        return self.judged[-1]

    @property
    def step_seconds(self) -> float:
        """Median seconds of a step."""
        if not self.trained:
            return 0.0
        ordered = sorted(step.step_seconds for step in self.trained)
        return ordered[len(ordered) // 2]


def rate_at(fraction: float, *, warmup: float = WARMUP, decay: str = "cosine") -> float:
    """Share of the highest learning rate when this fraction of the time is over.

    Args:
        fraction: Time spent over time given.
        warmup: The part over which the rate rises.
        decay: How it falls then: `cosine` or `linear`.

    Returns:
        A line up over the first part, then a cosine or a line down to a small floor.

    Examples:
        >>> rate_at(0.0) < rate_at(WARMUP / 2) < rate_at(WARMUP)
        True
        >>> rate_at(1.0) == FLOOR
        True
    """
    if fraction < warmup:
        return max(fraction / warmup, 1e-2)
    done = min(1.0, (fraction - warmup) / (1 - warmup))
    left = 1 - done if decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return FLOOR + (1 - FLOOR) * left


def race(
    runs: Sequence[Run],
    *,
    seconds: float,
    turns: int,
    held_out: Sequence[tuple[Tensor, Tensor]],
    progress: Progress,
    stop: Callable[[], bool],
    after_turn: Callable[[Run], None] = lambda run: None,
) -> bool:
    """Train all runs for the same seconds each, turn by turn.

    Taking turns spreads what else the machine does over all runs alike, and leaves curves of
    equal length whenever the work is stopped.

    Args:
        runs: What to train, in the order of the turns.
        seconds: Training seconds each run gets; judging is not counted.
        turns: Number of turns; each ends with a judgement.
        held_out: Batches to judge on, the same for all.
        progress: Shows every step.
        stop: Asked before each step; true ends the race after the step in hand.
        after_turn: Called with the run at the end of each of its turns.

    Returns:
        True when the race went to its end.
    """
    for run in runs:
        progress.add(run.name, seconds)
    for turn in range(1, turns + 1):
        for run in runs:
            run.prepare(_steps_to_expect(runs, run, seconds))
            _take_turn(run, seconds * turn / turns, seconds, progress, stop)
            if run.trained:
                run.judge(turn, held_out)
                after_turn(run)
            if stop():
                return turn == turns and run is runs[-1]
    return True


def _take_turn(
    run: Run, goal: float, seconds: float, progress: Progress, stop: Callable[[], bool]
) -> None:
    # Half a step of slack: over the race, a slow run neither gains nor loses by its long steps.
    while run.seconds + run.trained[-1].step_seconds / 2 < goal if run.trained else True:
        if stop():
            return
        last = run.step(run.seconds / seconds)
        speed = run.tokens_per_step * len(run.trained) / max(run.seconds, 1e-9)
        progress.update(run.name, run.seconds, last.loss, speed)


def _steps_to_expect(runs: Sequence[Run], run: Run, seconds: float) -> int:
    # The speed of the run that went just before (static before DynSparse: the same layers) is
    # the best guess; the first run has only its warm-up.
    if run.trained:  # its own speed so far tells better
        done = len(run.trained)
        left = max(0.0, seconds - run.seconds)
        return max(done + 1, done + round(left * done / max(run.seconds, 1e-9)))
    before = runs[: list(runs).index(run)]
    step = before[-1].step_seconds if before and before[-1].trained else run.pass_seconds
    return max(1, round(seconds / max(step, 1e-9)))
