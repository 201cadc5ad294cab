"""What an exchange moves and what it costs."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from sparsetile.machine._program import Copy, Exchange, Variable
from sparsetile.machine._spec import MachineSpec

_Runs = Int64[np.ndarray, " runs"]
_Tiles = Int64[np.ndarray, " tiles"]


@dataclass(frozen=True, eq=False)
class Traffic:
    """What each tile sends, receives and moves in one exchange.

    Attributes:
        cycles: Cycles of each tile, `[tiles]`, without the latency of the exchange.
        latency: Cycles that all tiles spend beside; 0 if nothing crosses tiles.
        received: Bytes that all tiles together receive from the exchange.
        moved: Bytes that all tiles together move within their own memory.
        landing: Bytes of buffers on each tile, `[tiles]`, for what arrives in a variable that is
            read in the same exchange.
    """

    cycles: _Tiles
    latency: int
    received: int
    moved: int
    landing: _Tiles


@dataclass(frozen=True, eq=False)
class _Resolved:
    """The runs of an exchange: which data, from where to where."""

    key: _Runs  # equal where the same elements are sent
    sender: _Runs
    receiver: _Runs
    bytes: _Runs
    lands: Bool[np.ndarray, " runs"]

    def where(self, kept: Bool[np.ndarray, " runs"] | _Runs) -> "_Resolved":
        return _Resolved(
            self.key[kept],
            self.sender[kept],
            self.receiver[kept],
            self.bytes[kept],
            self.lands[kept],
        )


def traffic(exchange: Exchange, machine: MachineSpec) -> Traffic:
    """Check an exchange and count what it moves.

    A tile sends a run once however many receive it, in whole atoms of the exchange. All tiles of a
    bus that receive the same run do so at the rate of the whole bus, and so does everyone if the
    run goes to all tiles.
    """
    _refuse_double_writes(exchange)
    runs = _resolve(exchange)
    landing = _per_tile(runs.receiver[runs.lands], runs.bytes[runs.lands], machine)
    on_tile = runs.sender == runs.receiver
    moved = _per_tile(runs.receiver[on_tile], runs.bytes[on_tile], machine)
    cycles = _ceil(moved, machine.memory_bytes_per_cycle)
    crossing = runs.where(~on_tile)
    if crossing.key.size:
        cycles += _exchange_cycles(crossing, machine)
    return Traffic(
        cycles=cycles,
        latency=machine.exchange_cycles if crossing.key.size else 0,
        received=int(crossing.bytes.sum()),
        moved=int(moved.sum()),
        landing=landing,
    )


def _exchange_cycles(runs: _Resolved, machine: MachineSpec) -> _Tiles:
    # Sorted by run, then receiver, everything that has to be told apart lies together.
    order = np.argsort(_joined(runs.key, runs.receiver, machine.tiles))
    runs = runs.where(order)
    atom, bus, rate = machine.exchange_atom, machine.tiles_per_bus, machine.exchange_bytes_per_cycle
    size = _ceil(runs.bytes, atom) * atom
    new_run = np.diff(runs.key, prepend=-1) != 0
    sent = _per_tile(runs.sender[new_run], size[new_run], machine)
    new_tile = new_run | (np.diff(runs.receiver, prepend=-1) != 0)
    new_bus = new_run | (np.diff(runs.receiver // bus, prepend=-1) != 0)
    shared = _reach(new_bus, new_tile) == bus
    everywhere = _reach(new_run, new_tile) == machine.tiles - 1  # all but the sender
    # In shares of a bus, so that numbers stay whole.
    shares = _per_tile(runs.receiver, np.where(shared | everywhere, size, size * bus), machine)
    return np.maximum(_ceil(shares, rate * bus), _ceil(sent, rate))


def _reach(begins: Bool[np.ndarray, " runs"], new_tile: Bool[np.ndarray, " runs"]) -> _Runs:
    """How many tiles take part in the group that each run is in."""
    group = np.cumsum(begins) - 1
    return np.bincount(group, new_tile).astype(np.int64)[group]


def _resolve(exchange: Exchange) -> _Resolved:
    base: dict[Variable, int] = {}
    total = 0
    for copy in exchange.copies:
        if copy.source not in base:
            base[copy.source] = total
            total += copy.source.size
    pairs = [(copy, np.flatnonzero(copy.length)) for copy in exchange.copies]
    none = np.zeros(0, np.int64)
    start = np.concatenate([none, *(base[c.source] + c.source_start[k] for c, k in pairs)])
    length = np.concatenate([none, *(c.length[k] for c, k in pairs)])
    sender = [_tiles_of(exchange, c, c.source, c.source_start[k], c.length[k]) for c, k in pairs]
    receiver = [_tiles_of(exchange, c, c.target, c.target_start[k], c.length[k]) for c, k in pairs]
    lands = [np.full(k.size, c.target in base) for c, k in pairs]
    return _Resolved(
        key=_joined(start, length, int(length.max(initial=0)) + 1),
        sender=np.concatenate([none, *sender]),
        receiver=np.concatenate([none, *receiver]),
        bytes=np.concatenate([none, *(c.length[k] * c.source.dtype.itemsize for c, k in pairs)]),
        lands=np.concatenate([none.astype(bool), *lands]),
    )


def _tiles_of(
    exchange: Exchange, copy: Copy, variable: Variable, start: _Runs, length: _Runs
) -> _Runs:
    """The tile of each run; an error if a run is on more than one."""
    offsets, end = variable.offsets, start + length
    tile = np.searchsorted(offsets, start, side="right") - 1
    limit = offsets[np.minimum(tile + 1, len(offsets) - 1)]
    wrong = np.flatnonzero((start < 0) | (length < 0) | (end > limit))
    if wrong.size:
        at = wrong[0]
        side = "reads" if variable is copy.source else "writes"
        here = f"and there are {variable.size} elements"
        if 0 <= start[at] < variable.size:
            here = f"here of tile {tile[at]}, which ends at {limit[at]} of {variable.size}"
        raise ValueError(
            f"exchange {exchange.name!r} {side} elements {start[at]} to {end[at]} of "
            f"{variable.name!r} in one run; a run lies within the part of one tile, {here}: cut it "
            f"where parts meet"
        )
    return tile


def _refuse_double_writes(exchange: Exchange) -> None:
    for target in {copy.target: None for copy in exchange.copies}:
        copies = [copy for copy in exchange.copies if copy.target is target]
        length = np.concatenate([copy.length for copy in copies])
        start = np.concatenate([copy.target_start for copy in copies])[length > 0]
        end = start + length[length > 0]
        if (np.diff(start) < 0).any():
            order = np.argsort(start)
            start, end = start[order], end[order]
        twice = np.flatnonzero(start[1:] < end[:-1])
        if twice.size:
            at = int(start[twice[0] + 1])
            tile = int(np.searchsorted(target.offsets, at, side="right")) - 1
            raise ValueError(
                f"exchange {exchange.name!r} writes element {at} of {target.name!r} on tile "
                f"{tile} twice; an exchange may write an element once: write the second value in "
                f"another exchange, or to another variable"
            )


def _joined(first: _Runs, second: _Runs, bound: int) -> _Runs:
    """One number for two that sorts as they do; the second is below the bound."""
    if int(first.max(initial=0)) >= np.iinfo(np.int64).max // bound:
        first = np.unique(first, return_inverse=True)[1].astype(np.int64)
    return first * bound + second


def _per_tile(tile: _Runs, size: _Runs, machine: MachineSpec) -> _Tiles:
    return np.bincount(tile, size, machine.tiles).astype(np.int64)


def _ceil(value: Int64[np.ndarray, " n"], by: int) -> Int64[np.ndarray, " n"]:
    return -(-value // by)
