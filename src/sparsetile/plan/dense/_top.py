"""The largest of many scores that lie on many tiles."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from sparsetile.machine import (
    Codelet,
    Compute,
    Copy,
    Exchange,
    MachineSpec,
    Memory,
    Step,
    Variable,
)

_Tiles = Int64[np.ndarray, " tiles"]
_MOST_CHILDREN = 8


@dataclass(frozen=True, eq=False)
class Candidates:
    """Scores on tiles.

    Attributes:
        scores: The scores, float32, 0 or more.
        number: What each is the score of; -1 for what is none.
    """

    scores: Variable
    number: Int64[np.ndarray, " scores"]


@dataclass(frozen=True, eq=False)
class _Best:
    """The best that some tiles have seen."""

    scores: Variable
    numbers: Variable


def best_of_all(
    machine: MachineSpec, candidates: tuple[Candidates, ...], count: int
) -> tuple[Variable, tuple[Step, ...]]:
    """The numbers of the best candidates, best first, and the steps that find them.

    Args:
        machine: The machine.
        candidates: At least `count` of them in all.
        count: How many are wanted.

    Returns:
        A variable on one tile, and the steps.

    Examples:
        >>> from dataclasses import replace
        >>> from sparsetile.machine import Program, preset, run
        >>> four = replace(preset("bow-ipu"), tiles=4)
        >>> scores = Variable("scores", np.dtype("float32"), np.array([2, 2, 1, 0]))
        >>> best, steps = best_of_all(four, (Candidates(scores, np.arange(5)),), count=3)
        >>> data = {scores: np.array([1, 9, 3, 7, 8], np.float32)}
        >>> run(Program("top", four, steps, (scores,), (best,)), data).values[best].tolist()
        [1, 4, 3]
    """
    have = _real(machine, candidates)
    best = _variables(machine, "the best of each tile", np.minimum(have, count))
    steps: list[Step] = [_first(machine, candidates, have, best)]
    # As many send to one as it has memory for, half of what there is.
    children = min(max(2, machine.memory_per_tile // (16 * count)), _MOST_CHILDREN)
    while np.count_nonzero(best.scores.counts) > 1:
        steps_, best = _level(machine, best, count, children)
        steps += steps_
    return best.numbers, tuple(steps)


def _real(machine: MachineSpec, candidates: tuple[Candidates, ...]) -> _Tiles:
    """Candidates on each tile."""
    have = np.zeros(machine.tiles, np.int64)
    for some in candidates:
        have += np.bincount(_tile_of(some.scores), some.number >= 0, machine.tiles).astype(np.int64)
    return have


def _first(
    machine: MachineSpec, candidates: tuple[Candidates, ...], have: _Tiles, best: _Best
) -> Compute:
    """Each tile sorts out the best of its own."""
    numbers = np.concatenate([some.number for some in candidates])
    tile = np.concatenate([_tile_of(some.scores) for some in candidates])
    kept = numbers >= 0
    numbers, tile = numbers[kept], tile[kept]

    def run(memory: Memory) -> None:
        scores = np.concatenate([memory[some.scores] for some in candidates])[kept]
        _keep(memory, best, tile, scores, numbers)

    reads = tuple(some.scores for some in candidates)
    cycles = _select_cycles(machine, have, best.scores.counts)
    codelet = Codelet("Select", run, cycles, reads, (best.scores, best.numbers))
    return Compute("Select", (codelet,))


def _level(
    machine: MachineSpec, best: _Best, count: int, children: int
) -> tuple[tuple[Step, ...], _Best]:
    """Every so many tiles send what they have to the first of them, which keeps the best."""
    counts = best.scores.counts
    senders = np.flatnonzero(counts)
    leader = senders[np.arange(len(senders)) // children * children]
    received = np.bincount(leader, counts[senders], machine.tiles).astype(np.int64)
    inbox = _variables(machine, "what others have", received)
    kept = _variables(machine, "the best so far", np.minimum(received, count))
    before = np.cumsum(counts[senders]) - counts[senders]
    # Leaders come in order, so what a sender has lies behind what earlier senders have.
    copies = tuple(
        Copy(source, target, source.offsets[senders], before, counts[senders])
        for source, target in ((best.scores, inbox.scores), (best.numbers, inbox.numbers))
    )
    tile = _tile_of(inbox.scores)

    def run(memory: Memory) -> None:
        _keep(memory, kept, tile, memory[inbox.scores], memory[inbox.numbers])

    reads, writes = (inbox.scores, inbox.numbers), (kept.scores, kept.numbers)
    lists = np.bincount(leader, minlength=machine.tiles)
    cycles = _merge_cycles(machine, lists, kept.scores.counts)
    compute = Compute("Merge", (Codelet("Merge", run, cycles, reads, writes),))
    return (Exchange("Exchange to merge", copies), compute), kept


def _keep(
    memory: Memory,
    best: _Best,
    tile: Int64[np.ndarray, " n"],
    scores: Float32[np.ndarray, " n"],
    numbers: np.ndarray,
) -> None:
    """Write the best of each tile, best first; of equal ones those of the least numbers."""
    order = np.lexsort((numbers, -scores, tile))
    owner = tile[order]
    first = np.searchsorted(owner, np.arange(len(best.scores.counts)))
    rank = np.arange(len(owner)) - first[owner]
    order = order[rank < best.scores.counts[owner]]
    memory[best.scores][:] = scores[order]
    memory[best.numbers][:] = numbers[order]


def _variables(machine: MachineSpec, name: str, counts: _Tiles) -> _Best:
    return _Best(
        Variable(f"{name}: scores", np.dtype(np.float32), counts),
        Variable(f"{name}: numbers", np.dtype(np.uint32), counts),
    )


def _tile_of(variable: Variable) -> Int64[np.ndarray, " elements"]:
    return np.arange(len(variable.counts)).repeat(variable.counts)


def _select_cycles(machine: MachineSpec, seen: _Tiles, kept: _Tiles) -> _Tiles:
    """An estimate of our own: each worker has a heap of the best that it has seen.

    A candidate takes four instructions to compare and, at worst, four for each level of the heap;
    the workers of a tile share the candidates, and one merges what they found.
    """
    levels = np.ceil(np.log2(kept + 1))
    turns = -(-seen // machine.workers)
    merge = kept * (6 + 4 * np.ceil(np.log2(machine.workers)))
    return np.where(seen > 0, (30 + turns * (4 + 4 * levels) + merge) * machine.workers, 0).astype(
        np.int64
    )


def _merge_cycles(machine: MachineSpec, children: _Tiles, kept: _Tiles) -> _Tiles:
    """An estimate of our own: one worker merges lists that are sorted already.

    To store one takes six instructions, and four for each level of the tree of lists.
    """
    levels = np.ceil(np.log2(np.maximum(children, 1)))
    cycles = (30 + kept * (6 + 4 * levels)) * machine.workers
    return np.where(children > 0, cycles, 0).astype(np.int64)
