"""What a program is made of: variables on tiles, exchanges, computations, and their order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

from sparsetile.machine._spec import MachineSpec


@dataclass(frozen=True, eq=False)
class Variable:
    """An array cut over the tiles, of any length on each of them.

    Its data is one flat array: what tile `t` holds is `data[offsets[t]:offsets[t + 1]]`.

    Attributes:
        name: What it is called in profiles and errors.
        dtype: Of its elements.
        counts: Elements on each tile, `[tiles]`.
        persistent: Whether it takes memory all through the program. Others take memory from the
            step that first writes them to the last one that reads them; inputs from the start,
            outputs to the end.

    Examples:
        >>> x = Variable("x", np.dtype(np.float16), np.array([4, 4, 2]))
        >>> x.size, x.offsets.tolist()
        (10, [0, 4, 8, 10])
    """

    name: str
    dtype: np.dtype[np.generic]
    counts: Int64[np.ndarray, " tiles"]
    persistent: bool = False

    @cached_property
    def offsets(self) -> Int64[np.ndarray, " tiles1"]:
        """Where each tile's part begins, and the end of the last; elements."""
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(self.counts, dtype=np.int64)))

    @property
    def size(self) -> int:
        """Elements on all tiles together."""
        return int(self.offsets[-1])


Memory: TypeAlias = Mapping[Variable, npt.NDArray[np.generic]]
"""What the tiles hold: a flat array for each variable."""

Cycles: TypeAlias = Int64[np.ndarray, " tiles"]
"""Cycles that each tile computes; 0 where it has nothing to do."""


@dataclass(frozen=True, eq=False)
class Copy:
    """Runs of elements that go from one variable to another, across tiles or within one.

    Every run lies within one tile on either side. A run that several tiles ask for is sent once.

    Attributes:
        source: Where the runs are read.
        target: Where they are written; may be the source: all is read before anything is written.
        source_start: First element of each run in the source's flat data, `[runs]`.
        target_start: First element of each run in the target's flat data, `[runs]`.
        length: Elements of each run, `[runs]`.

    Examples:
        >>> x = Variable("x", np.dtype(np.float16), np.array([4, 4]))
        >>> start = x.offsets[:-1]
        >>> swap = Copy(x, x, start, np.roll(start, 1), x.counts)  # the two tiles' parts
        >>> swap.target_start.tolist()
        [4, 0]
    """

    source: Variable
    target: Variable
    source_start: Int64[np.ndarray, " runs"]
    target_start: Int64[np.ndarray, " runs"]
    length: Int64[np.ndarray, " runs"]


@dataclass(frozen=True, eq=False)
class Exchange:
    """A superstep in which tiles send each other data.

    Attributes:
        name: What it is called in the profile.
        copies: What goes where, all at once.

    Examples:
        >>> x, y = (Variable(name, np.dtype(np.float16), np.array([4, 4])) for name in "xy")
        >>> first = Copy(x, y, np.array([0]), np.array([6]), np.array([2]))
        >>> Exchange("send two elements to tile 1", (first,)).copies[0].target.name
        'y'
    """

    name: str
    copies: tuple[Copy, ...]


@dataclass(frozen=True, eq=False)
class Codelet:
    """What tiles compute on their own memory, all of them in one call.

    Attributes:
        name: What it is called in the profile.
        run: Reads and writes the flat arrays of the variables, in place. A tile's part of what is
            written must depend on that tile's parts only.
        cycles: Cycles of each tile, `[tiles]`, or a function that counts them from the memory as
            it is before `run`.
        reads: Variables read, also those of which a part is kept while another is written.
        writes: Variables written.

    Examples:
        >>> x = Variable("x", np.dtype(np.float32), np.array([4, 2]))
        >>> def double(memory):
        ...     memory[x] *= 2
        >>> codelet = Codelet("double", double, cycles=x.counts, reads=(x,), writes=(x,))
        >>> codelet.cycles.tolist()
        [4, 2]
    """

    name: str
    run: Callable[[Memory], None]
    cycles: Cycles | Callable[[Memory], Cycles]
    reads: tuple[Variable, ...]
    writes: tuple[Variable, ...]


@dataclass(frozen=True, eq=False)
class Compute:
    """A superstep in which tiles compute; codelets on one tile run one after the other.

    Attributes:
        name: What it is called in the profile.
        codelets: What is computed.

    Examples:
        >>> nothing = Codelet("nothing", lambda memory: None, np.array([0, 0]), (), ())
        >>> Compute("rest", (nothing, nothing)).name
        'rest'
    """

    name: str
    codelets: tuple[Codelet, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """Steps that are done several times.

    Attributes:
        count: How often; a variable of one element is read when the loop begins.
        body: What is done.

    Examples:
        >>> turns = Variable("turns", np.dtype(np.int32), np.array([1, 0, 0]))
        >>> loop = Repeat(turns, (Repeat(3, ()),))  # as often as data says, three turns each
        >>> loop.count.name, loop.body[0].count
        ('turns', 3)
    """

    count: int | Variable
    body: tuple["Step", ...]


@dataclass(frozen=True, eq=False)
class Branch:
    """Steps that are done if a value is not zero, and others if it is.

    Attributes:
        condition: A variable of one element, read when the branch is reached.
        then: Done if it is not zero.
        otherwise: Done if it is.

    Examples:
        >>> left = Variable("anything left", np.dtype(np.int32), np.array([1, 0, 0]))
        >>> Branch(left, then=(Repeat(3, ()),)).otherwise
        ()
    """

    condition: Variable
    then: tuple["Step", ...]
    otherwise: tuple["Step", ...] = ()


Step: TypeAlias = Exchange | Compute | Repeat | Branch


@dataclass(frozen=True, eq=False)
class Program:
    """Supersteps in order, for one machine.

    Attributes:
        name: What it computes.
        machine: The machine it was made for.
        steps: What is done.
        inputs: Variables whose data is given.
        outputs: Variables whose data is wanted.

    Examples:
        >>> from sparsetile.machine import even_counts, preset
        >>> machine = preset("bow-ipu")
        >>> x, y = (Variable(v, np.dtype(np.float16), even_counts(10, 1472)) for v in "xy")
        >>> everything = Copy(x, y, x.offsets[:10], y.offsets[:10], x.counts[:10])
        >>> steps = (Exchange("copy", (everything,)),)
        >>> Program("copy", machine, steps, inputs=(x,), outputs=(y,)).machine.tiles
        1472
    """

    name: str
    machine: MachineSpec
    steps: tuple[Step, ...]
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
