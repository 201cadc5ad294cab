"""A program executed on real numbers, and its cycles counted."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparsetile.machine._check import check_cycles, check_data, check_program
from sparsetile.machine._copy import move
from sparsetile.machine._exchange import Traffic, traffic
from sparsetile.machine._lifetime import Timeline, timeline, width
from sparsetile.machine._memory import Footprint, footprint, refuse_overflow
from sparsetile.machine._profile import Profile
from sparsetile.machine._program import (
    Branch,
    Codelet,
    Compute,
    Exchange,
    Program,
    Repeat,
    Step,
    Variable,
)
from sparsetile.machine._recorder import Recorder

_Array = npt.NDArray[np.generic]


@dataclass(frozen=True, eq=False)
class Result:
    """What a program computed and what it took.

    Attributes:
        values: The flat array of each output.
        profile: Cycles, bytes and memory.

    Examples:
        >>> from sparsetile.machine import preset
        >>> nothing = run(Program("nothing", preset("bow-ipu"), (), (), ()), {})
        >>> nothing.values, nothing.profile.cycles
        ({}, 0)
    """

    values: Mapping[Variable, _Array]
    profile: Profile


def run(program: Program, data: Mapping[Variable, _Array]) -> Result:
    """Execute a program.

    Memory that nothing wrote reads as NaN, or as the largest integer.

    Args:
        program: What to execute.
        data: A flat array for each input of the program.

    Returns:
        The outputs and a profile.

    Raises:
        ValueError: If inputs or steps are malformed.
        OutOfTileMemory: If the program does not fit; nothing is executed then.

    Examples:
        >>> from sparsetile.machine import Codelet, Compute, even_counts, preset
        >>> x = Variable("x", np.dtype(np.int32), even_counts(3000, 1472))
        >>> def double(memory):
        ...     memory[x] *= 2
        >>> step = Compute("double", (Codelet("double", double, x.counts, (x,), (x,)),))
        >>> program = Program("double", preset("bow-ipu"), (step,), inputs=(x,), outputs=(x,))
        >>> result = run(program, {x: np.arange(3000, dtype=np.int32)})
        >>> result.values[x][:4].tolist(), int(result.profile.tile_cycles.max())
        ([0, 2, 4, 6], 3)
    """
    traffics, line, taken = _prepared(program)
    check_data(program, data)
    return _Execution(program, traffics, line, taken).result(data)


def check_memory(program: Program) -> None:
    """Find out whether a program fits, without data.

    Args:
        program: What to check.

    Raises:
        ValueError: If steps are malformed.
        OutOfTileMemory: If it does not fit.

    Examples:
        >>> from sparsetile.machine import OutOfTileMemory, even_counts, preset
        >>> x = Variable("x", np.dtype(np.int8), even_counts(10**9, 1472))
        >>> try:
        ...     check_memory(Program("hold", preset("bow-ipu"), (), inputs=(x,), outputs=()))
        ... except OutOfTileMemory as error:
        ...     print(error.needed, error.available)
        679348 638976
    """
    _prepared(program)


def _prepared(program: Program) -> tuple[dict[Exchange, Traffic], Timeline, Footprint]:
    line = timeline(program)
    check_program(program, line)
    exchanges = {slot.step: None for slot in line.slots if isinstance(slot.step, Exchange)}
    traffics = {exchange: traffic(exchange, program.machine) for exchange in exchanges}
    taken = footprint(line, program.machine, traffics)
    refuse_overflow(line, taken, program.machine, program.name)
    return traffics, line, taken


class _Execution:
    """The state of one run."""

    def __init__(
        self,
        program: Program,
        traffics: dict[Exchange, Traffic],
        line: Timeline,
        taken: Footprint,
    ) -> None:
        self.program = program
        self.traffics = traffics
        self.recorder = Recorder(program, line, taken)
        self.memory: dict[Variable, _Array] = {}
        self.born: dict[int, list[Variable]] = {}
        self.dies: dict[int, list[Variable]] = {}
        for variable, (first, last) in line.alive.items():
            self.born.setdefault(first, []).append(variable)
            self.dies.setdefault(last, []).append(variable)
        self.end = len(line.slots) - 1

    def result(self, data: Mapping[Variable, _Array]) -> Result:
        self.begin(0)
        for variable in self.program.inputs:
            self.memory[variable][:] = data[variable]
        self.finish(0)
        self.steps(self.program.steps, 1)
        self.begin(self.end)
        values = {variable: self.memory[variable] for variable in self.program.outputs}
        return Result(values, self.recorder.profile())

    def begin(self, slot: int) -> None:
        for variable in self.born.get(slot, ()):
            self.memory[variable] = _poisoned(variable)

    def finish(self, slot: int) -> None:
        for variable in self.dies.get(slot, ()):
            self.memory.pop(variable, None)

    def steps(self, steps: tuple[Step, ...], slot: int) -> None:
        """Do steps that begin at a slot."""
        for step in steps:
            self.begin(slot)
            if isinstance(step, Exchange):
                self.exchange(step, slot)
            elif isinstance(step, Compute):
                self.compute(step, slot)
            elif isinstance(step, Repeat):
                for _ in range(self.count(step)):
                    self.steps(step.body, slot + 1)
            elif self.memory[step.condition][0]:
                self.steps(step.then, slot + 1)
            else:
                self.steps(step.otherwise, slot + 1 + width(step.then))
            self.finish(slot)
            slot += width((step,))
            if isinstance(step, Repeat | Branch):
                self.begin(slot - 1)
                self.finish(slot - 1)

    def count(self, step: Repeat) -> int:
        if isinstance(step.count, Variable):
            count, where = int(self.memory[step.count][0]), f"in {step.count.name!r}"
        else:
            if not isinstance(step.count, (int, np.integer)):
                raise ValueError(
                    f"a loop of program {self.program.name!r} has the count {step.count!r}; it "
                    f"runs a whole number of times: give an int, or a variable of one integer"
                )
            count, where = int(step.count), "in the program"
        if count < 0:
            raise ValueError(
                f"a loop of program {self.program.name!r} has the count {count} {where}; "
                f"it can run 0 times or more: check what computes the count"
            )
        return count

    def exchange(self, step: Exchange, slot: int) -> None:
        read = {copy.source for copy in step.copies}
        # All is read before anything is written.
        sources = {
            variable: self.memory[variable].copy()
            for variable in {copy.target for copy in step.copies} & read
        }
        for copy in step.copies:
            source = sources.get(copy.source, self.memory[copy.source])
            target = self.memory[copy.target]
            move(source, target, copy.source_start, copy.target_start, copy.length)
        self.recorder.exchange(step.name, slot, self.traffics[step])

    def compute(self, step: Compute, slot: int) -> None:
        cycles = np.zeros(self.program.machine.tiles, np.int64)
        for codelet in step.codelets:
            seen = _Seen(step.name, codelet, self.memory)
            if callable(codelet.cycles):
                counted = codelet.cycles(seen)
                check_cycles(codelet.name, counted, self.program.machine)
                cycles += counted
            else:
                cycles += codelet.cycles
            # What overflows is infinite, and what that leads to NaN, as on any machine.
            with np.errstate(over="ignore", invalid="ignore"):
                codelet.run(seen)
        self.recorder.compute(step.name, slot, cycles)


class _Seen(dict[Variable, _Array]):
    """The memory as a codelet sees it: what it declared, and what it only reads is read-only."""

    def __init__(self, step: str, codelet: Codelet, memory: dict[Variable, _Array]) -> None:
        self._who = f"codelet {codelet.name!r} of {step!r}"
        for variable in codelet.reads:
            self[variable] = memory[variable].view()
            self[variable].flags.writeable = False
        self.update((variable, memory[variable]) for variable in codelet.writes)

    def __missing__(self, variable: Variable) -> _Array:
        raise ValueError(
            f"{self._who} uses {variable.name!r}; it declares "
            f"{', '.join(repr(known.name) for known in self) or 'nothing'}: "
            f"add it to what the codelet reads or writes"
        )


def _poisoned(variable: Variable) -> _Array:
    """Memory that nobody wrote yet."""
    dtype = variable.dtype
    if dtype.kind in "iu":
        return np.full(variable.size, np.iinfo(dtype.name).max, dtype)
    return np.full(variable.size, np.nan, dtype)  # NaN is true
