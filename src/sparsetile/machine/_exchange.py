"""What an exchange moves and what it costs."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from sparsetile.machine._program import Copy, Exchange, Variable
from sparsetile.machine._spec import MachineSpec

_Runs = Int64[np.ndarray, " runs"]


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

    cycles: Int64[np.ndarray, " tiles"]
    latency: int
    received: int
    moved: int
    landing: Int64[np.ndarray, " tiles"]


def traffic(exchange: Exchange, machine: MachineSpec) -> Traffic:
    """Check an exchange and count what it moves.

    A tile sends a run once however many receive it, and whole atoms of the exchange. All tiles of a
    bus that receive the same run do so at the rate of the whole bus; so do all tiles if the run
    goes everywhere.
    """
    tiles = machine.tiles
    _refuse_double_writes(exchange)
    runs = _resolve(exchange)
    moved = _per_tile(runs.target_tile, runs.bytes, runs.on_tile, tiles)
    landing = _per_tile(runs.target_tile, runs.bytes, runs.lands, tiles)
    run, receiver = runs.run[~runs.on_tile], runs.target_tile[~runs.on_tile]
    sender, size = runs.source_tile[~runs.on_tile], runs.bytes[~runs.on_tile]
    if not run.size:
        cycles = _ceil(moved, machine.memory_bytes_per_cycle)
        return Traffic(cycles, 0, 0, int(moved.sum()), landing)
    atoms = _ceil(size, machine.exchange_atom) * machine.exchange_atom
    _, first = np.unique(run, return_index=True)
    sent = np.bincount(sender[first], atoms[first], tiles).astype(np.int64)
    fast = _shared(run, receiver, sender, machine)
    bus = machine.tiles_per_bus
    # In units of a share of the bus, so that everything stays whole.
    shares = np.bincount(receiver, np.where(fast, atoms, atoms * bus), tiles).astype(np.int64)
    rate = machine.exchange_bytes_per_cycle
    cycles = np.maximum(_ceil(shares, rate * bus), _ceil(sent, rate))
    cycles += _ceil(moved, machine.memory_bytes_per_cycle)
    return Traffic(cycles, machine.exchange_cycles, int(size.sum()), int(moved.sum()), landing)


@dataclass(frozen=True, eq=False)
class _Resolved:
    """All runs of an exchange: which data, from where to where."""

    run: _Runs  # equal where the same elements are sent
    source_tile: _Runs
    target_tile: _Runs
    bytes: _Runs
    lands: Bool[np.ndarray, " runs"]

    @property
    def on_tile(self) -> Bool[np.ndarray, " runs"]:
        return self.source_tile == self.target_tile


def _resolve(exchange: Exchange) -> _Resolved:
    base: dict[Variable, int] = {}
    for copy in exchange.copies:
        base.setdefault(copy.source, sum(variable.size for variable in base))
    kept = [np.flatnonzero(copy.length) for copy in exchange.copies]
    pairs = list(zip(exchange.copies, kept, strict=True))

    def all_runs(parts: list[_Runs]) -> _Runs:
        return np.concatenate([np.zeros(0, np.int64), *parts])

    start = all_runs([base[c.source] + c.source_start[k] for c, k in pairs])
    length = all_runs([c.length[k] for c, k in pairs])
    return _Resolved(
        run=_pair(start, length),
        source_tile=all_runs([_tiles_of(exchange, c, k, "source") for c, k in pairs]),
        target_tile=all_runs([_tiles_of(exchange, c, k, "target") for c, k in pairs]),
        bytes=all_runs([c.length[k] * c.source.dtype.itemsize for c, k in pairs]),
        lands=np.concatenate(
            [np.zeros(0, bool), *(np.full(k.size, c.target in base) for c, k in pairs)]
        ),
    )


def _tiles_of(exchange: Exchange, copy: Copy, kept: _Runs, side: str) -> _Runs:
    """The tile of each run of a side; an error if it is on more than one."""
    variable: Variable = getattr(copy, side)
    start: _Runs = getattr(copy, f"{side}_start")[kept]
    end = start + copy.length[kept]
    tile = np.searchsorted(variable.offsets, start, side="right") - 1
    wrong = (start < 0) | (end > variable.size) | (end < start)
    wrong |= end > variable.offsets[np.minimum(tile, len(variable.counts) - 1) + 1]
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"exchange {exchange.name!r} copies elements {start[at]} to {end[at]} of {side} "
            f"{variable.name!r}, which holds {variable.size}; they begin on tile {tile[at]}, "
            f"whose part ends at {variable.offsets[min(int(tile[at]) + 1, len(variable.counts))]}: "
            f"cut the run where the tiles' parts meet"
        )
    return tile


def _refuse_double_writes(exchange: Exchange) -> None:
    targets = {copy.target: None for copy in exchange.copies}
    for target in targets:
        copies = [copy for copy in exchange.copies if copy.target is target]
        start = np.concatenate([c.target_start[c.length > 0] for c in copies])
        end = start + np.concatenate([c.length[c.length > 0] for c in copies])
        order = np.argsort(start)
        twice = np.flatnonzero(start[order][1:] < end[order][:-1])
        if twice.size:
            at = int(start[order][1:][twice[0]])
            tile = int(np.searchsorted(target.offsets, at, side="right")) - 1
            raise ValueError(
                f"exchange {exchange.name!r} writes element {at} of {target.name!r} on tile "
                f"{tile} twice; an exchange may write each element once: "
                f"write the second run in an exchange of its own"
            )


def _shared(
    run: _Runs, receiver: _Runs, sender: _Runs, machine: MachineSpec
) -> Bool[np.ndarray, " runs"]:
    """Runs that come at the rate of the whole bus."""
    bus = machine.tiles_per_bus
    if bus == 1:
        return np.zeros(run.shape, bool)
    _, run = np.unique(run, return_inverse=True)
    # Distinct receivers: a tile that takes a run twice counts once.
    distinct = np.unique(run * machine.tiles + receiver)
    to, who = np.divmod(distinct, machine.tiles)
    everywhere = np.bincount(to) == machine.tiles - 1  # all but the sender
    buses = machine.tiles // bus
    group, at = np.unique(to * buses + who // bus, return_counts=True)
    full = group[at == bus]
    mine = run * buses + receiver // bus
    return np.isin(mine, full, kind="sort") | everywhere[run]


def _pair(first: _Runs, second: _Runs) -> _Runs:
    """One number for two, equal where both are."""
    if not first.size:
        return first
    values, second = np.unique(second, return_inverse=True)
    return first * len(values) + second


def _per_tile(
    tile: _Runs, size: _Runs, where: Bool[np.ndarray, " runs"], tiles: int
) -> Int64[np.ndarray, " tiles"]:
    return np.bincount(tile[where], size[where], tiles).astype(np.int64)


def _ceil(value: Int64[np.ndarray, " n"], by: int) -> Int64[np.ndarray, " n"]:
    return -(-value // by)
