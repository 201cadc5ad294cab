"""Where the cycles and the memory of a program go."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int64

from sparsetile.machine._spec import MachineSpec

Kind = Literal["compute", "exchange", "sync"]


@dataclass(frozen=True, eq=False)
class Phase:
    """A superstep of a program, with all the times that it ran.

    Attributes:
        name: Of the superstep.
        kind: `"compute"`, `"exchange"`, or `"sync"` for the waits of all supersteps together.
        times: How often it ran.
        cycles: Cycles it took: those of the busiest tile of each time.
        mean_cycles: The same, of the mean tile.
        busiest_tile: Tile with the most cycles over all times.
        bytes_moved: Bytes received from the exchange.
        bytes_moved_on_tile: Bytes moved within tiles.
        memory: Bytes of the fullest tile.
    """

    name: str
    kind: Kind
    times: int
    cycles: int
    mean_cycles: float
    busiest_tile: int
    bytes_moved: int
    bytes_moved_on_tile: int
    memory: int

    @property
    def balance(self) -> float:
        """Cycles of the mean tile over those of the busiest; 1 if all work alike."""
        return self.mean_cycles / self.cycles if self.cycles else 1.0


@dataclass(frozen=True, eq=False)
class Profile:
    """What a program took, as `run` measured it.

    Attributes:
        program: Name of the program.
        machine: The machine that it ran on.
        phases: The supersteps in the order in which they first ran; those of one name and kind,
            as in loops, are one phase.
        tile_cycles: Cycles that each tile computed, sent or received, `[tiles]`.
        tile_memory: Most bytes on each tile, `[tiles]`.
        peak_step: Name of the superstep in which the fullest tile is fullest.
    """

    program: str
    machine: MachineSpec
    phases: tuple[Phase, ...]
    tile_cycles: Int64[np.ndarray, " tiles"]
    tile_memory: Int64[np.ndarray, " tiles"]
    peak_step: str

    @cached_property
    def cycles(self) -> int:
        """Cycles of the whole program."""
        return sum(phase.cycles for phase in self.phases)

    @property
    def seconds(self) -> float:
        """How long the machine takes."""
        return self.machine.seconds(self.cycles)
