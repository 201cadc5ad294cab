"""The profile of a run while it is made."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from sparsetile.machine._exchange import Traffic
from sparsetile.machine._lifetime import Timeline
from sparsetile.machine._memory import Footprint
from sparsetile.machine._profile import Kind, Phase, Profile
from sparsetile.machine._program import Program


@dataclass
class _Sum:
    """A phase so far."""

    tile_cycles: Int64[np.ndarray, " tiles"]
    times: int = 0
    cycles: int = 0
    latency: int = 0
    bytes_moved: int = 0
    bytes_moved_on_tile: int = 0
    slots: set[int] = field(default_factory=set)


class Recorder:
    """Adds up the supersteps of a run."""

    def __init__(self, program: Program, line: Timeline, taken: Footprint) -> None:
        self._program = program
        self._line = line
        self._taken = taken
        self._sums: dict[tuple[str, Kind], _Sum] = {}

    def compute(self, name: str, slot: int, cycles: Int64[np.ndarray, " tiles"]) -> None:
        """Add a computation."""
        self._add(name, "compute", slot, cycles, 0)

    def exchange(self, name: str, slot: int, cost: Traffic) -> None:
        """Add an exchange."""
        phase = self._add(name, "exchange", slot, cost.cycles, cost.latency)
        phase.bytes_moved += cost.received
        phase.bytes_moved_on_tile += cost.moved

    def _add(
        self, name: str, kind: Kind, slot: int, cycles: Int64[np.ndarray, " tiles"], latency: int
    ) -> _Sum:
        phase = self._sums.setdefault((name, kind), _Sum(np.zeros_like(cycles)))
        phase.tile_cycles += cycles
        phase.times += 1
        phase.cycles += int(cycles.max()) + latency
        phase.latency += latency
        phase.slots.add(slot)
        wait = self._program.machine.sync_cycles
        if wait:
            sync = self._sums.setdefault(("sync", "sync"), _Sum(np.zeros_like(cycles)))
            sync.times += 1
            sync.cycles += wait
            sync.latency += wait
        return phase

    def profile(self) -> Profile:
        """What was added, with the waits last."""
        most = self._taken.bytes.max(axis=1)
        phases = [
            Phase(
                name=name,
                kind=kind,
                times=s.times,
                cycles=s.cycles,
                latency=s.latency,
                tile_cycles=s.tile_cycles,
                bytes_moved=s.bytes_moved,
                bytes_moved_on_tile=s.bytes_moved_on_tile,
                memory=int(most[sorted(s.slots)].max(initial=0)),
            )
            for (name, kind), s in self._sums.items()
        ]
        return Profile(
            program=self._program.name,
            machine=self._program.machine,
            phases=tuple(sorted(phases, key=lambda phase: phase.kind == "sync")),
            tile_memory=self._taken.peak,
            peak_step=self._line.slots[self._taken.peak_slot].name,
        )
