"""Whether a program fits in the tiles' memory."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from sparsetile.machine._exchange import Traffic
from sparsetile.machine._lifetime import Timeline
from sparsetile.machine._program import Exchange, Variable
from sparsetile.machine._spec import MachineSpec


class OutOfTileMemory(ValueError):  # noqa: N818 - as torch names its own
    """A program needs more memory on a tile than the machine has.

    Attributes:
        tile: The tile that needs most.
        superstep: Name of the superstep in which it does.
        needed: Bytes needed there.
        available: Bytes a tile has.

    Examples:
        >>> OutOfTileMemory("too big", tile=3, superstep="sum", needed=99, available=64).tile
        3
    """

    def __init__(
        self, text: str, *, tile: int, superstep: str, needed: int, available: int
    ) -> None:
        super().__init__(text)
        self.tile = tile
        self.superstep = superstep
        self.needed = needed
        self.available = available


@dataclass(frozen=True, eq=False)
class Footprint:
    """Bytes of each tile at each place of a program.

    Attributes:
        bytes: Taken, `[slots, tiles]`.
        peak: Most on each tile, `[tiles]`.
        peak_slot: Where the tile that takes most does so.
    """

    bytes: Int64[np.ndarray, "slots tiles"]

    @property
    def peak(self) -> Int64[np.ndarray, " tiles"]:
        return self.bytes.max(axis=0)

    @property
    def peak_slot(self) -> int:
        return int(self.bytes.max(axis=1).argmax())


def footprint(line: Timeline, machine: MachineSpec, traffics: dict[Exchange, Traffic]) -> Footprint:
    """Add up what is alive at each place, with the landing buffers of exchanges."""
    change = np.zeros((len(line.slots) + 1, machine.tiles), np.int64)
    for variable, (first, last) in line.alive.items():
        size = variable.counts * variable.dtype.itemsize
        change[first] += size
        change[last + 1] -= size
    total = np.cumsum(change[:-1], axis=0)
    for at, slot in enumerate(line.slots):
        if isinstance(slot.step, Exchange):
            total[at] += traffics[slot.step].landing
    return Footprint(total)


def refuse_overflow(line: Timeline, taken: Footprint, machine: MachineSpec, name: str) -> None:
    """Raise OutOfTileMemory for the first superstep that does not fit."""
    limit = machine.memory_per_tile
    over = np.flatnonzero(taken.bytes.max(axis=1) > limit)
    if not over.size:
        return
    # A loop's begin is no superstep: name what runs in it, if that is too big as well.
    at = next((int(i) for i in over if line.slots[i].step is not None), int(over[0]))
    tile = int(taken.bytes[at].argmax())
    needed = int(taken.bytes[at, tile])
    raise OutOfTileMemory(
        f"program {name!r} needs {needed:,} bytes on tile {tile} in superstep "
        f"{line.slots[at].name!r}; a tile of machine {machine.name!r} has {limit:,}. There are "
        f"{_largest(line, at, tile, needed)}: spread them over more tiles or more supersteps",
        tile=tile,
        superstep=line.slots[at].name,
        needed=needed,
        available=limit,
    )


def _largest(line: Timeline, at: int, tile: int, needed: int) -> str:
    sizes = {
        variable: int(variable.counts[tile]) * variable.dtype.itemsize
        for variable, (first, last) in line.alive.items()
        if first <= at <= last
    }

    def size(variable: Variable) -> int:
        return sizes[variable]

    named = [f"{v.name!r} with {sizes[v]:,}" for v in sorted(sizes, key=size, reverse=True)[:4]]
    landing = needed - sum(sizes.values())
    return ", ".join(named + ([f"landing buffers with {landing:,}"] if landing else []))
