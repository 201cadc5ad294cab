"""Where the cycles and the memory of a program go."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Int64

from sparsetile.machine._spec import MachineSpec

Kind: TypeAlias = Literal["compute", "exchange", "sync"]
Row: TypeAlias = dict[str, str | int | float]

_HEAD = ("phase", "kind", "times", "cycles", "share", "mean/busiest", "moved", "on tile", "memory")


@dataclass(frozen=True, eq=False, repr=False)
class Phase:
    """A superstep of a program, with all the times that it ran.

    Attributes:
        name: Of the superstep.
        kind: `"compute"`, `"exchange"`, or `"sync"` for the waits before all supersteps together.
        times: How often it ran.
        cycles: Cycles it took: each time those of the tile that was busiest then, and the latency.
        latency: Cycles of these in which all tiles waited alike.
        tile_cycles: Cycles that each tile worked, `[tiles]`.
        bytes_moved: Bytes that tiles received from the exchange.
        bytes_moved_on_tile: Bytes that an exchange moved within tiles.
        memory: Bytes on the fullest tile.

    Examples:
        >>> phase = Phase("sum", "compute", 1, 9, 0, np.array([9, 6, 3]), 0, 0, 16)
        >>> phase.busiest_tile, phase.mean_cycles, round(phase.balance, 2)
        (0, 6.0, 0.67)
    """

    name: str
    kind: Kind
    times: int
    cycles: int
    latency: int
    tile_cycles: Int64[np.ndarray, " tiles"]
    bytes_moved: int
    bytes_moved_on_tile: int
    memory: int

    def __repr__(self) -> str:
        return f"Phase({self.name!r}, {self.kind!r}, times={self.times}, cycles={self.cycles})"

    @property
    def busiest_tile(self) -> int:
        """The tile with most cycles over all times."""
        return int(self.tile_cycles.argmax())

    @property
    def mean_cycles(self) -> float:
        """Cycles of the mean tile, latency included."""
        return float(self.tile_cycles.mean()) + self.latency

    @property
    def balance(self) -> float:
        """Cycles of the mean tile over those of the busiest; 1 if all work alike."""
        return self.mean_cycles / self.cycles if self.cycles else 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """What a program took, as `run` counts it; printed, it is a table.

    Attributes:
        program: Name of the program.
        machine: The machine that it ran on.
        phases: The supersteps in the order in which they first ran. Those of one name and kind are
            one phase, as in loops; the waits before supersteps are the last.
        tile_memory: Most bytes on each tile, `[tiles]`.
        peak_step: Name of the superstep in which the fullest tile is fullest.

    Examples:
        >>> phase = Phase("sum", "compute", 2, 3_700, 0, np.array([3_700, 1_000]), 0, 0, 16)
        >>> from sparsetile.machine import preset
        >>> machine = preset("bow-ipu")
        >>> profile = Profile("example", machine, (phase,), np.array([16, 8]), "sum")
        >>> profile.cycles, profile.seconds
        (3700, 2e-06)
        >>> print(profile)
        example on bow-ipu: 3,700 cycles, 2.0 µs; fullest tile 16 of 638,976 bytes, in sum
        phase  kind     times  cycles    share  mean/busiest  moved  on tile  memory
        sum    compute      2   3,700  100.0 %          0.64      0        0      16
    """

    program: str
    machine: MachineSpec
    phases: tuple[Phase, ...]
    tile_memory: Int64[np.ndarray, " tiles"]
    peak_step: str

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Profile of {self.program!r} on {self.machine.name}: {self.cycles:,} cycles>"

    @cached_property
    def cycles(self) -> int:
        """Cycles of the whole program."""
        return sum(phase.cycles for phase in self.phases)

    @cached_property
    def tile_cycles(self) -> Int64[np.ndarray, " tiles"]:
        """Cycles that each tile computed, sent, received or moved data, `[tiles]`."""
        total = np.zeros(len(self.tile_memory), np.int64)
        return sum((phase.tile_cycles for phase in self.phases), start=total)

    @property
    def seconds(self) -> float:
        """How long the machine takes."""
        return self.machine.seconds(self.cycles)

    @property
    def bytes_moved(self) -> int:
        """Bytes that all tiles together received from the exchange."""
        return sum(phase.bytes_moved for phase in self.phases)

    @property
    def bytes_moved_on_tile(self) -> int:
        """Bytes that exchanges moved within tiles."""
        return sum(phase.bytes_moved_on_tile for phase in self.phases)

    @property
    def balance(self) -> float:
        """Cycles of the mean tile over all cycles; 1 if no tile ever waits for another."""
        mean = sum(phase.mean_cycles for phase in self.phases)
        return mean / self.cycles if self.cycles else 1.0

    def to_rows(self) -> list[Row]:
        """One row for each phase, for a CSV file.

        Returns:
            Dictionaries with the same keys; cycles and bytes as numbers.
        """
        return [
            {
                "program": self.program,
                "machine": self.machine.name,
                "phase": phase.name,
                "kind": phase.kind,
                "times": phase.times,
                "cycles": phase.cycles,
                "mean_cycles": phase.mean_cycles,
                "busiest_tile": phase.busiest_tile,
                "bytes_moved": phase.bytes_moved,
                "bytes_moved_on_tile": phase.bytes_moved_on_tile,
                "memory": phase.memory,
            }
            for phase in self.phases
        ]

    def table(self) -> str:
        """The profile as text.

        Returns:
            A line on the whole and an aligned table: how often each phase ran, its cycles and their
            share, the mean tile's cycles over the busiest's, bytes moved between tiles and within
            them, and bytes on the fullest tile.
        """
        rows = [_HEAD, *(self._cells(phase) for phase in self.phases)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [self._headline()]
        for row in rows:
            texts = [f"{cell:<{width}}" for cell, width in zip(row[:2], widths, strict=False)]
            numbers = [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
            lines.append("  ".join(texts + numbers))
        return "\n".join(lines)

    def _headline(self) -> str:
        return (
            f"{self.program} on {self.machine.name}: {self.cycles:,} cycles, "
            f"{self.seconds * 1e6:,.1f} µs; fullest tile {self.tile_memory.max():,} of "
            f"{self.machine.memory_per_tile:,} bytes, in {self.peak_step}"
        )

    def _cells(self, phase: Phase) -> tuple[str, ...]:
        numbers = (phase.bytes_moved, phase.bytes_moved_on_tile, phase.memory)
        return (
            phase.name,
            phase.kind,
            f"{phase.times:,}",
            f"{phase.cycles:,}",
            f"{100 * phase.cycles / max(self.cycles, 1):.1f} %",
            f"{phase.balance:.2f}",
            *(f"{number:,}" for number in numbers),
        )

    def draw(self, path: str | Path) -> None:
        """Write a picture: a timeline of the phases, and the load and memory of each tile.

        Args:
            path: A file that ends in `.svg`, `.png` or `.pdf`.

        Raises:
            ValueError: If it ends otherwise.
            ImportError: If matplotlib is missing; `pip install 'sparsetile[plot]'` brings it.
        """
        from sparsetile.machine._draw import draw

        draw(self, Path(path))
