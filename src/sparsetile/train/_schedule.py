"""When a pattern is updated, and how many blocks move."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from sparsetile.train._check import checked_int, checked_share


@runtime_checkable
class Clock(Protocol):
    """Says after which optimizer steps the pattern is updated."""

    def due(self, step: int) -> bool:
        """Whether an update follows step `step`, counted from 1."""
        ...


@runtime_checkable
class Amount(Protocol):
    """Says how many of a layer's blocks an update moves."""

    def count(self, step: int, nnzb: int) -> int:
        """Blocks to move after step `step`, of `nnzb` stored ones."""
        ...


@dataclass(frozen=True)
class Never:
    """No update at all.

    Examples:
        >>> Never().due(100)
        False
    """

    def due(self, step: int) -> bool:
        """Whether an update follows step `step`: no."""
        return False


@dataclass(frozen=True)
class Every:
    """An update every so many steps, none at or after the last step.

    Examples:
        >>> [step for step in range(1, 12) if Every(3, total_steps=9).due(step)]
        [3, 6]
    """

    steps: int
    total_steps: int

    def __post_init__(self) -> None:
        checked_int("steps", self.steps, least=1)
        checked_int("total_steps", self.total_steps, least=1)

    def due(self, step: int) -> bool:
        """Whether an update follows step `step`."""
        return step < self.total_steps and step % self.steps == 0


@dataclass(frozen=True)
class Evenly:
    """A run cut into equal pieces, with an update between each two.

    Examples:
        >>> [step for step in range(1, 12) if Evenly(3, total_steps=10).due(step)]
        [4, 7]
    """

    pieces: int
    total_steps: int

    def __post_init__(self) -> None:
        checked_int("pieces", self.pieces, least=1)
        checked_int("total_steps", self.total_steps, least=1)

    def due(self, step: int) -> bool:
        """Whether an update follows step `step`."""
        done, before = (s * self.pieces // self.total_steps for s in (step, step - 1))
        return step < self.total_steps and done > before


@dataclass(frozen=True)
class Cosine:
    """A share of the stored blocks that falls from `ratio` to 0 as half a cosine.

    With M = ceil(ratio · nnzb), step t of T moves ceil(M · (1 + cos(π t / T)) / 2) blocks.

    Examples:
        >>> [Cosine(0.5, total_steps=100).count(step, nnzb=80) for step in (1, 50, 99)]
        [40, 20, 1]
    """

    ratio: float
    total_steps: int

    def __post_init__(self) -> None:
        checked_share("ratio", self.ratio)
        checked_int("total_steps", self.total_steps, least=1)

    def count(self, step: int, nnzb: int) -> int:
        """Blocks to move after step `step`."""
        if step >= self.total_steps:
            return 0
        most = share_of(self.ratio, nnzb)
        return math.ceil(0.5 * most * (1 + math.cos(math.pi * step / self.total_steps)))


@dataclass(frozen=True)
class Constant:
    """The same share of the stored blocks at every update.

    Examples:
        >>> Constant(0.25).count(step=7, nnzb=10)
        3
    """

    ratio: float

    def __post_init__(self) -> None:
        checked_share("ratio", self.ratio)

    def count(self, step: int, nnzb: int) -> int:
        """Blocks to move after step `step`."""
        return share_of(self.ratio, nnzb)


@dataclass(frozen=True)
class Within:
    """An update every so many steps after `start`, and one at `stop`.

    Examples:
        >>> [step for step in range(1, 20) if Within(3, start=5, stop=12).due(step)]
        [8, 11, 12]
    """

    steps: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        checked_int("steps", self.steps, least=1)
        checked_int("start", self.start, least=0)
        checked_int("stop", self.stop, least=self.start + 1)

    def due(self, step: int) -> bool:
        """Whether an update follows step `step`."""
        inside = self.start < step < self.stop
        return step == self.stop or (inside and (step - self.start) % self.steps == 0)


@dataclass(frozen=True)
class Stepped:
    """A share of the stored blocks that is another in each of equal parts of the run.

    Examples:
        >>> amount = Stepped((0.02, 0.01, 0.0), total_steps=300)
        >>> [amount.count(step, nnzb=1000) for step in (100, 101, 300)]
        [20, 10, 0]
    """

    ratios: tuple[float, ...]
    total_steps: int

    def __post_init__(self) -> None:
        if not self.ratios:
            raise ValueError("ratios must have one share for each part of the run, got none")
        for ratio in self.ratios:
            checked_share("ratios", ratio)
        checked_int("total_steps", self.total_steps, least=1)

    def count(self, step: int, nnzb: int) -> int:
        """Blocks to move after step `step`."""
        part = (step - 1) * len(self.ratios) // self.total_steps
        return share_of(self.ratios[min(part, len(self.ratios) - 1)], nnzb)


def share_of(ratio: float, nnzb: int) -> int:
    """Count the blocks of a share, rounded up; 7 % of 100 are 7, though 0.07 * 100 is above 7.

    Examples:
        >>> share_of(0.07, 100), share_of(0.071, 100)
        (7, 8)
    """
    return math.ceil(round(ratio * nnzb, 6))
