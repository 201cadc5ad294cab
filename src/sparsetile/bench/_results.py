"""What a demo measured, free of models: all that its report is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool
from numpy import ndarray

from sparsetile.bench._complete import Completion
from sparsetile.bench._measure import Measurement
from sparsetile.bench._race import Judged, Run, Step


@dataclass(frozen=True)
class Shot:
    """A layer's pattern at one moment.

    Args:
        step: Steps done.
        seconds: Training seconds done.
        blocks: True where a block is stored.
    """

    step: int
    seconds: float
    blocks: Bool[ndarray, "mb kb"]


@dataclass(frozen=True)
class Outcome:
    """What one training run showed."""

    name: str
    trained: Sequence[Step]
    judged: Sequence[Judged]
    tokens_per_step: int
    parameters: int
    rates: Sequence[float]
    memory: Sequence[dict[str, Any]]

    @property
    def step_seconds(self) -> float:
        """Median seconds of a step."""
        ordered = sorted(step.step_seconds for step in self.trained)
        return ordered[len(ordered) // 2] if ordered else float("nan")

    def bytes_of(self, part: str | None = None) -> int:
        """Bytes of one part (`blocks` or `rest`), or of all."""
        return sum(row["bytes"] for row in self.memory if part in (None, row["part"]))


@dataclass
class Results:
    """Everything one `sparsetile demo` found.

    Args:
        settings: Names and values of what was asked.
        facts: The machine and its software.
        timings: The table of layers.
        busy: Why those numbers are rough; empty when they are not.
        text: Where the text comes from, and how much.
        outcomes: Training runs, in order.
        shots: The pattern of `layer` at several moments.
        layer: Name of the layer whose pattern is shown.
        schedule: How the pattern was changed, in words.
        schedule_share: Steps that DynSparse did over steps its schedule was laid out for.
        coverage: Share of the places in `layer` that held a block at any time of the run.
        finisher: Which model finished the lines, after how many steps.
        completions: Lines finished by the saved model.
        reloaded: True when the model read back gives the same numbers, bit for bit.
        stages: Seconds of each stage.
        stopped: True when Ctrl-C ended it early.
    """

    settings: dict[str, Any]
    facts: dict[str, str] = field(default_factory=dict)
    timings: list[Measurement] = field(default_factory=list)
    busy: str = ""
    text: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    shots: list[Shot] = field(default_factory=list)
    layer: str = ""
    schedule: str = ""
    schedule_share: float | None = None
    coverage: float | None = None
    finisher: str = ""
    completions: list[Completion] = field(default_factory=list)
    reloaded: bool | None = None
    stages: dict[str, float] = field(default_factory=dict)
    stopped: bool = False


def outcome_of(run: Run, memory: Sequence[dict[str, Any]]) -> Outcome:
    """Take from a run what the report needs."""
    return Outcome(
        name=run.name,
        trained=tuple(run.trained),
        judged=tuple(run.judged),
        tokens_per_step=run.tokens_per_step,
        parameters=sum(p.numel() for p in run.model.parameters()),
        rates=tuple(run.peaks),
        memory=memory,
    )


def shot_of(layer: torch.nn.Module, run: Run) -> Shot:
    """Picture a sparse layer's pattern now."""
    blocks = layer.pattern.block_mask().numpy()  # type: ignore[operator,union-attr]
    return Shot(len(run.trained), run.seconds, blocks)
