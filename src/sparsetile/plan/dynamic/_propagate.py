"""How buckets of non-zeros travel from tile to tile, as far as their meta-information asks for."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsetile.machine import (
    Branch,
    Codelet,
    Compute,
    Exchange,
    Memory,
    Repeat,
    Step,
    Variable,
)
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._layout import BITS_PER_WORD, overflow_words
from sparsetile.plan.dynamic._plan import DynamicPlan

# Instructions of the two small control programs; one worker issues one every sixth cycle.
_CONTROL_CYCLES = 6 * 30


@dataclass(frozen=True, eq=False)
class Control:
    """What one tile, the last that has no part if there is one, knows of the steps to come.

    Attributes:
        overflow: The overflow triplet and its bits; an input.
        any: Whether anything travels.
        y_turns: Shifts by a column partition before the first shift by a row partition.
        x_turns: Shifts by a row partition.
        distance: Row partitions that buckets have travelled.
        visit: Whether some bucket holds non-zeros of tiles at that distance.
        y_home: Shifts by a column partition that bring buckets back.
        x_home: Shifts by a row partition that bring buckets back.
    """

    overflow: Variable
    any: Variable
    y_turns: Variable
    x_turns: Variable
    distance: Variable
    visit: Variable
    y_home: Variable
    x_home: Variable


def control(plan: DynamicPlan) -> Control:
    """Variables of the control tile."""
    tile = plan.machine.tiles - 1

    def scalar(name: str, elements: int = 1) -> Variable:
        counts = np.zeros(plan.machine.tiles, np.int64)
        counts[tile] = elements
        return Variable(name, np.dtype("uint16"), counts)

    return Control(
        overflow=scalar("overflow", overflow_words(plan)),
        any=scalar("whether buckets travel"),
        y_turns=scalar("shifts by y"),
        x_turns=scalar("shifts by x"),
        distance=scalar("distance in x"),
        visit=scalar("whether to visit"),
        y_home=scalar("shifts by y to come back"),
        x_home=scalar("shifts by x to come back"),
    )


def read_overflow(
    overflow: npt.NDArray[np.generic], plan: DynamicPlan
) -> tuple[int, int, list[bool]]:
    """Ends of the loops over row and column partitions, and which row distances are visited."""
    words = [int(word) for word in overflow]
    per = BITS_PER_WORD
    bits = [bool(words[3 + at // per] >> at % per & 1) for at in range(plan.x)]
    return words[0], words[1], bits


def propagation_steps(encoded: Encoded) -> int:
    """How often the tiles compute on buckets that travelled.

    After the distribution, in which each tile computes on all buckets of its row and column
    partition, buckets travel to the other tiles that they hold non-zeros of. This counts the
    computations in which that happens; the profile of a run shows it too, as how often the phase
    "Propagation compute" ran.

    Args:
        encoded: What the buckets hold.

    Returns:
        0 if every bucket holds only what belongs to its own row and column partition.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> propagation_steps(encode(small_plan(), small_matrix()))
        0
    """
    plan = encoded.plan
    x_end, y_end, bits = read_overflow(encoded.meta[: overflow_words(plan)], plan)
    return (_first_turns(y_end, bits) + plan.y * sum(bits[1:x_end])) * plan.z


def _first_turns(y_end: int, bits: list[bool]) -> int:
    """Shifts by a column partition while nothing has been shifted by a row partition."""
    return y_end - 1 if bits[0] else 0


def _start(plan: DynamicPlan, c: Control) -> Compute:
    """Read the overflow triplet."""

    def run(memory: Memory) -> None:
        x_end, y_end, bits = read_overflow(memory[c.overflow], plan)
        turns = _first_turns(y_end, bits)
        memory[c.any][:] = x_end > 1 or turns > 0
        memory[c.y_turns][:] = turns
        memory[c.x_turns][:] = x_end - 1
        memory[c.y_home][:] = -turns % plan.y
        memory[c.x_home][:] = (1 - x_end) % plan.x
        memory[c.distance][:] = 0

    writes = (c.any, c.y_turns, c.x_turns, c.y_home, c.x_home, c.distance)
    return Compute(
        "Propagation control",
        (Codelet("Propagation control", run, _cycles(plan), (c.overflow,), writes),),
    )


def _next(plan: DynamicPlan, c: Control) -> Compute:
    """Count a shift by a row partition and look up its bit."""

    def run(memory: Memory) -> None:
        distance = int(memory[c.distance][0]) + 1
        _, _, bits = read_overflow(memory[c.overflow], plan)
        memory[c.distance][:] = distance
        memory[c.visit][:] = bits[distance]

    reads, writes = (c.overflow, c.distance), (c.distance, c.visit)
    return Compute(
        "Propagation control",
        (Codelet("Propagation control", run, _cycles(plan), reads, writes),),
    )


def _cycles(plan: DynamicPlan) -> npt.NDArray[np.int64]:
    cycles = np.zeros(plan.machine.tiles, np.int64)
    cycles[-1] = _CONTROL_CYCLES
    return cycles


def propagate(
    plan: DynamicPlan,
    c: Control,
    begin: tuple[Step, ...],
    compute: Compute,
    shift: Callable[[str], Exchange],
    come_back: bool = False,
) -> tuple[Step, ...]:
    """Steps after the distribution; none if no bucket could be elsewhere.

    Args:
        plan: The plan.
        c: Variables of the control tile.
        begin: What is done before the first shift.
        compute: What tiles do with what has come.
        shift: The exchange that moves all that travels by one partition along an axis.
        come_back: Whether all that travels must end where it began.

    Returns:
        Loops over row, column and batch partitions, whose counts the control tile holds.
    """
    if plan.x * plan.y == 1:
        return ()
    by = {axis: shift(axis) for axis in "xyz"}
    inner: tuple[Step, ...] = (compute,)
    if plan.z > 1:
        inner = (Repeat(plan.z, (compute, by["z"])),)
    turn = (by["y"], *inner) if plan.y > 1 else inner
    steps: list[Step] = [*begin]
    if plan.y > 1:
        steps.append(Repeat(c.y_turns, turn))
    if plan.x > 1:
        visit = Branch(c.visit, (Repeat(plan.y, turn),))
        steps.append(Repeat(c.x_turns, (by["x"], _next(plan, c), visit)))
    if come_back and plan.y > 1:
        steps.append(Repeat(c.y_home, (by["y"],)))
    if come_back and plan.x > 1:
        steps.append(Repeat(c.x_home, (by["x"],)))
    return (_start(plan, c), Branch(c.any, tuple(steps)))
