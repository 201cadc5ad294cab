"""From when to when each variable of a program takes memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from sparsetile.machine._program import Branch, Compute, Exchange, Program, Repeat, Step, Variable


@dataclass(frozen=True, eq=False)
class Slot:
    """A place in a program: a superstep, or where a loop or a branch begins or ends."""

    name: str
    reads: tuple[Variable, ...] = ()
    writes: tuple[Variable, ...] = ()
    step: Exchange | Compute | None = None


@dataclass(frozen=True, eq=False)
class _Span:
    """Slots of a loop's body or a branch's arm, between where that begins and ends."""

    enter: int
    first: int
    last: int
    leave: int
    loop: bool
    certain: bool  # done at least once


@dataclass(frozen=True, eq=False)
class Timeline:
    """The slots of a program in order, and the first and last in which a variable is alive."""

    slots: tuple[Slot, ...]
    alive: dict[Variable, tuple[int, int]]


def width(steps: tuple[Step, ...]) -> int:
    """Slots that steps take."""
    return sum(
        2 + width(step.body)
        if isinstance(step, Repeat)
        else 2 + width(step.then) + width(step.otherwise)
        if isinstance(step, Branch)
        else 1
        for step in steps
    )


def timeline(program: Program) -> Timeline:
    """Number the places of a program and find the life of each variable.

    What is used within a loop and outside it, or is carried from one turn to the next, lives all
    through the loop. What is used in an arm of a branch and outside it lives all through the
    branch.
    """
    slots = [Slot("the start")]
    spans: list[_Span] = []
    _lay_out(program.steps, slots, spans)
    slots.append(Slot("the end"))
    uses: dict[Variable, list[int]] = {}
    for at, slot in enumerate(slots):
        for variable in {**dict.fromkeys(slot.reads), **dict.fromkeys(slot.writes)}:
            uses.setdefault(variable, []).append(at)
    end = len(slots) - 1
    for variable in program.inputs:
        uses[variable] = [0, *uses.get(variable, [])]
    for variable in program.outputs:
        uses[variable] = [*uses.get(variable, []), end]
    return Timeline(tuple(slots), {v: _life(v, at, slots, spans) for v, at in uses.items()})


def _lay_out(steps: tuple[Step, ...], slots: list[Slot], spans: list[_Span]) -> None:
    """Append the slots of steps, and their spans with inner ones first."""
    for step in steps:
        enter = len(slots)
        if isinstance(step, Exchange):
            reads = tuple(copy.source for copy in step.copies)
            writes = tuple(copy.target for copy in step.copies)
            slots.append(Slot(step.name, reads, writes, step))
        elif isinstance(step, Compute):
            read = tuple(v for codelet in step.codelets for v in codelet.reads)
            write = tuple(v for codelet in step.codelets for v in codelet.writes)
            slots.append(Slot(step.name, _before_written(step), write + read, step))
        elif isinstance(step, Repeat):
            counted = isinstance(step.count, Variable)
            slots.append(Slot("a loop", (step.count,) if isinstance(step.count, Variable) else ()))
            _lay_out(step.body, slots, spans)
            leave = len(slots)
            certain = not counted and step.count != 0
            spans.append(_Span(enter, enter + 1, leave - 1, leave, True, certain))
            slots.append(Slot("the end of a loop"))
        elif not isinstance(step, Branch):
            raise TypeError(
                f"a step of the program is {step!r:.80}; it may be an Exchange, a Compute, a "
                f"Repeat or a Branch: give one of these"
            )
        else:
            slots.append(Slot("a branch", (step.condition,)))
            _lay_out(step.then, slots, spans)
            other = len(slots)
            _lay_out(step.otherwise, slots, spans)
            leave = len(slots)
            spans.append(_Span(enter, enter + 1, other - 1, leave, False, False))
            spans.append(_Span(enter, other, leave - 1, leave, False, False))
            slots.append(Slot("the end of a branch"))


def _before_written(step: Compute) -> tuple[Variable, ...]:
    """What a computation reads that none of its own codelets wrote before."""
    return tuple(_unwritten(step))


def _unwritten(step: Compute) -> Iterator[Variable]:
    written: set[Variable] = set()
    for codelet in step.codelets:
        yield from (variable for variable in codelet.reads if variable not in written)
        written.update(codelet.writes)


def _life(
    variable: Variable, uses: list[int], slots: list[Slot], spans: list[_Span]
) -> tuple[int, int]:
    if variable.persistent:
        return 0, len(slots) - 1
    first, last = uses[0], uses[-1]
    for span in spans:
        inside = [at for at in uses if span.first <= at <= span.last]
        if not inside:
            continue
        outside = first < span.first or last > span.last
        if outside or (span.loop and _carried(variable, inside, slots, spans)):
            first, last = min(first, span.enter), max(last, span.leave)
    return first, last


def _carried(variable: Variable, inside: list[int], slots: list[Slot], spans: list[_Span]) -> bool:
    """Whether a turn of a loop may read what an earlier one left."""
    if variable in slots[inside[0]].reads:
        return True
    # The first write may be skipped, and what comes after it is done all the same.
    return any(
        not span.certain and span.first <= inside[0] <= span.last < inside[-1] for span in spans
    )
