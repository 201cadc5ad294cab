"""Finds the cheapest cut of a product with a fixed pattern."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from sparsetile.machine import MachineSpec
from sparsetile.matrix import Pattern
from sparsetile.plan._units import VECTOR
from sparsetile.plan.static._bands import band_tiles, bands, interval_tiles
from sparsetile.plan.static._estimate import Estimate, Load, estimate
from sparsetile.plan.static._order import block_counts, block_order, planned_size

# What refuses cuts.
_TOO_MANY = (
    "columns and tiles do not suffice for so many intervals and bands: ask for fewer, or leave "
    "them to be searched"
)
_TOO_LARGE = (
    "offsets or work lists of the kernels would not fit into 16 bits, or a tile would have more "
    "1×1 work than ever ran: take fewer columns at a time, more bands, or larger blocks"
)
_NO_MEMORY = (
    "what the kernels allow needs more: allow more memory, take fewer columns at a time, or a "
    "machine with more tiles"
)

_MOST_INTERVALS = 32
_MOST_BANDS = 128


@dataclass(frozen=True)
class Cut:
    """One way to cut a product, and what it costs.

    Attributes:
        sizes: Columns of each interval.
        tiles: Tiles of each interval.
        bounds: First block column of each band in planned order, and the end of the last.
        estimate: Cycles and memory.
    """

    sizes: tuple[int, ...]
    tiles: tuple[int, ...]
    bounds: tuple[int, ...]
    estimate: Estimate


@dataclass(frozen=True)
class Problem:
    """What the search knows of a product.

    Attributes:
        counts: Stored blocks of each block column, in planned order.
        rows: Block rows that count when planning.
        columns: Block columns that count when planning.
        m: Rows of the result.
        k: Rows of the dense operand.
        n: Columns of the dense operand, rounded up to the vector width.
        b: Side of a block.
        dtype: `"float16"` or `"float32"`.
        machine: The machine.
    """

    counts: Int64[np.ndarray, " kb"]
    rows: int
    columns: int
    m: int
    k: int
    n: int
    b: int
    dtype: str
    machine: MachineSpec

    @property
    def blocks(self) -> int:
        """Stored blocks."""
        return int(self.counts.sum())

    @property
    def density(self) -> float:
        """Stored blocks over the blocks that count when planning."""
        return min(1.0, self.blocks / (self.rows * self.columns))


def problem(
    pattern: Pattern, n: int, dtype: str, machine: MachineSpec, preprocess: bool
) -> Problem:
    """Look at a pattern as the planner does.

    Args:
        pattern: The stored blocks.
        n: Columns of the dense operand.
        dtype: `"float16"` or `"float32"`.
        machine: The machine.
        preprocess: Whether thin rows and columns are put last and left out of the planning.

    Returns:
        The problem.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import random_pattern
        >>> p = random_pattern(64, 64, blocksize=16, density=0.5, seed=0)
        >>> problem(p, 5, "float16", preset("bow-ipu"), True).n
        8
    """
    per_row, per_column = block_counts(pattern)
    _, order = block_order(pattern, preprocess)
    grain = VECTOR[dtype]
    return Problem(
        counts=per_column[order],
        rows=planned_size(per_row, preprocess),
        columns=planned_size(per_column, preprocess),
        m=pattern.grid[0] * pattern.blocksize[0],
        k=pattern.grid[1] * pattern.blocksize[1],
        n=-(-n // grain) * grain,
        b=pattern.blocksize[0],
        dtype=dtype,
        machine=machine,
    )


def search(
    p: Problem, memory: float, intervals: int | None = None, parts: int | None = None
) -> Cut | str:
    """Try all cuts and keep the cheapest that fits.

    One to 32 intervals of the dense operand's columns, one to 128 bands of the sparse operand's,
    and no more parts than tile pairs that share a bus, as in popsparse's static planner.

    Args:
        p: The product.
        memory: Bytes of a tile that may be used.
        intervals: The number of intervals, if not to be searched.
        parts: The number of bands, if not to be searched.

    Returns:
        The cheapest cut; if there is none, what refused all of them.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import random_pattern
        >>> p = random_pattern(256, 256, blocksize=16, density=0.25, seed=0)
        >>> cut = search(problem(p, 64, "float16", preset("bow-ipu"), True), memory=300_000)
        >>> len(cut.sizes), len(cut.bounds) - 1
        (16, 4)
    """
    grains, most = p.n // VECTOR[p.dtype], p.machine.tiles // _pair(p.machine)
    tried_bands = range(1, min(_MOST_BANDS, p.columns) + 1) if parts is None else (parts,)
    tried = range(1, min(_MOST_INTERVALS, grains) + 1) if intervals is None else (intervals,)
    best: Cut | None = None
    refused = _TOO_MANY
    filled = np.concatenate((np.zeros(1, np.int64), np.cumsum(p.counts > 0)))
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(p.counts)))
    for count in tried_bands:
        bounds = bands(p.counts, count)
        if parts is not None and len(bounds) - 1 != parts:
            break
        blocks, widest = np.diff(ends[bounds]), int(np.diff(filled[bounds]).max(initial=0))
        cuts = [c for n in tried if n * count <= most and (c := _intervals(p, n))]
        loads = [
            load
            for i, (sizes, tiles) in enumerate(cuts)
            for load in _loads(p, i, sizes, tiles, blocks, np.diff(bounds), widest)
        ]
        if not loads:
            continue
        costs = estimate(p, loads, len(bounds) - 1)
        for i, (sizes, tiles) in enumerate(cuts):
            mine = [cost for load, cost in zip(loads, costs, strict=True) if load.cut == i]
            worst = max(mine, key=lambda e: e.planned, default=None)
            if worst is None:
                continue
            if any(e.bytes > memory or not e.valid for e in mine):
                short = all(e.valid for e in mine) or refused == _NO_MEMORY
                refused = _NO_MEMORY if short else _TOO_LARGE
                continue
            if best is None or worst.planned < best.estimate.planned:
                best = Cut(tuple(sizes), tuple(tiles), tuple(map(int, bounds)), worst)
    return best or refused


def _intervals(p: Problem, count: int) -> tuple[list[int], list[int]] | None:
    """Equal intervals of columns and their tiles, if there can be so many."""
    grain = VECTOR[p.dtype]
    size = -(-p.n // grain // count) * grain
    if -(-p.n // size) != count:
        return None
    sizes = [size] * (count - 1) + [p.n - size * (count - 1)]
    tiles = interval_tiles(sizes, p.machine.tiles, _pair(p.machine))
    return (sizes, tiles) if min(tiles) > 0 else None


def _loads(
    p: Problem,
    cut: int,
    sizes: list[int],
    tiles: list[int],
    blocks: Int64[np.ndarray, " bands"],
    widths: Int64[np.ndarray, " bands"],
    widest: int,
) -> list[Load]:
    """The heaviest band of each distinct interval; none if a band would have no tile."""
    found = []
    for size, count in dict.fromkeys(zip(sizes, tiles, strict=True)):
        shares = band_tiles(blocks, count, _pair(p.machine))
        if shares.min() < 1:
            return []
        heaviest = int(np.argmax(-(-blocks // shares)))
        found.append(
            Load(
                cut=cut,
                intervals=len(sizes),
                columns=size,
                blocks=int(blocks[heaviest]),
                tiles=int(shares[heaviest]),
                width=int(widths[heaviest]),
                widest=widest,
            )
        )
    return found


def _pair(machine: MachineSpec) -> int:
    """Tiles that are dealt out together; fewer on a machine that has no more."""
    return min(machine.tiles_per_bus, machine.tiles)
