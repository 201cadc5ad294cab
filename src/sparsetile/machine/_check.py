"""Whether a program and its data hold together, before anything runs."""

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from sparsetile.machine._lifetime import Timeline
from sparsetile.machine._program import Compute, Copy, Cycles, Exchange, Program, Variable
from sparsetile.machine._spec import MachineSpec

_ARRAYS = ("source_start", "target_start", "length")


def check_program(program: Program, line: Timeline) -> None:
    """Raise ValueError if a part of a program does not fit the machine or another part."""
    for variable in line.alive:
        _check_variable(variable, program.machine)
    for slot in line.slots:
        if slot.step is None:
            for variable in slot.reads:
                _check_control(variable, program.name)
    steps = {slot.step: None for slot in line.slots}
    for step in steps:
        if isinstance(step, Exchange):
            for copy in step.copies:
                _check_copy(copy, step.name)
        elif isinstance(step, Compute):
            _check_compute(step, program.machine)


def check_data(program: Program, data: Mapping[Variable, npt.NDArray[np.generic]]) -> None:
    """Raise ValueError unless there is a fitting array for each input, and no other."""
    if set(data) != set(program.inputs):
        raise ValueError(
            f"program {program.name!r} was given data for {_names(data)}; its inputs are "
            f"{_names(program.inputs)}: give one array for each of them, and no other"
        )
    for variable, array in data.items():
        flat = isinstance(array, np.ndarray) and array.shape == (variable.size,)
        if not flat or array.dtype != variable.dtype:
            given = f"{array.dtype} {list(array.shape)}" if hasattr(array, "dtype") else type(array)
            raise ValueError(
                f"input {variable.name!r} of program {program.name!r} was given {given}; it takes "
                f"{variable.dtype} [{variable.size}]: give a flat array, tile after tile"
            )


def check_cycles(name: str, cycles: Cycles, machine: MachineSpec) -> None:
    """Raise ValueError unless there is a count of 0 or more for each tile."""
    given = f"{cycles.dtype} {list(cycles.shape)}"
    if cycles.shape != (machine.tiles,) or cycles.dtype.kind not in "iu":
        raise ValueError(
            f"codelet {name!r} says its cycles as {given}; machine {machine.name!r} takes "
            f"int64 [{machine.tiles}]: give whole cycles for each tile, 0 where it is idle"
        )
    if (cycles < 0).any():
        tile = int(cycles.argmin())
        raise ValueError(
            f"codelet {name!r} says {cycles[tile]} cycles on tile {tile}; "
            f"0 or more are possible: give 0 where a tile is idle"
        )


def _check_variable(variable: Variable, machine: MachineSpec) -> None:
    if variable.counts.shape != (machine.tiles,) or (variable.counts < 0).any():
        raise ValueError(
            f"variable {variable.name!r} has {len(variable.counts)} counts, the least of them "
            f"{min(variable.counts, default=0)}; machine {machine.name!r} has {machine.tiles} "
            f"tiles: give a count of 0 or more for each of them"
        )
    if variable.dtype.kind not in "biufc":
        raise ValueError(
            f"variable {variable.name!r} is of dtype {variable.dtype}; tiles hold numbers and "
            f"booleans: choose such a dtype"
        )


def _check_control(variable: Variable, program: str) -> None:
    if variable.size != 1 or variable.dtype.kind not in "biu":
        raise ValueError(
            f"a loop or branch of program {program!r} reads {variable.name!r}, "
            f"{variable.dtype} [{variable.size}]; it takes one integer or boolean: "
            f"let a codelet compute that, on one tile"
        )


def _check_copy(copy: Copy, exchange: str) -> None:
    given = f"{copy.source.name!r} to {copy.target.name!r}"
    if copy.source.dtype != copy.target.dtype:
        raise ValueError(
            f"exchange {exchange!r} copies {given}, {copy.source.dtype} to {copy.target.dtype}; "
            f"an exchange moves bytes as they are: let a codelet convert them"
        )
    sizes = [getattr(copy, name).shape for name in _ARRAYS]
    if len(set(sizes)) > 1 or len(sizes[0]) != 1:
        raise ValueError(
            f"exchange {exchange!r} copies {given} with {', '.join(_ARRAYS)} of shapes "
            f"{', '.join(str(list(size)) for size in sizes)}; each has one entry for a run: "
            f"give three flat arrays of one length"
        )
    if any(getattr(copy, name).dtype.kind not in "iu" for name in _ARRAYS):
        raise ValueError(
            f"exchange {exchange!r} copies {given} with {', '.join(_ARRAYS)} that are not "
            f"integers; they count elements: give int64 arrays"
        )


def _check_compute(step: Compute, machine: MachineSpec) -> None:
    for codelet in step.codelets:
        if not callable(codelet.cycles):
            check_cycles(codelet.name, codelet.cycles, machine)


def _names(variables: Iterable[Variable]) -> str:
    return ", ".join(sorted(repr(variable.name) for variable in variables)) or "nothing"
