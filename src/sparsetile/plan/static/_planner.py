"""Plans a product whose pattern is known."""

from functools import lru_cache

import numpy as np

from sparsetile.machine import MachineSpec, load_machine
from sparsetile.matrix import Pattern
from sparsetile.plan._check import PlanError, check_dtype, check_flag, check_share, check_size
from sparsetile.plan._cost import Cost, Term
from sparsetile.plan.static._bands import band_tiles
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._search import Cut, problem, search

BLOCKS = (1, 4, 8, 16)


def plan_static(
    pattern: Pattern,
    n: int,
    *,
    dtype: str = "float16",
    machine: MachineSpec | str = "bow-ipu",
    memory: float = 0.6,
    intervals: int | None = None,
    bands: int | None = None,
    preprocess: bool = True,
) -> StaticPlan:
    """Plan the product of a sparse matrix with a fixed pattern and a dense one.

    Searches for the cheapest way to cut the dense operand's columns into intervals and the sparse
    operand's into bands of equal non-zeros, as the static planner of PopSparse (arXiv 2303.16999)
    does. Plans are kept: asking again for the same one costs nothing.

    Args:
        pattern: The stored blocks of the sparse operand, m×k; square blocks of 1, 4, 8 or 16.
        n: Columns of the dense operand, k×n.
        dtype: `"float16"` or `"float32"`, of operands, partial sums and result.
        machine: A machine, the name of a preset, or a TOML file that describes one.
        memory: Share of a tile's memory that may be used, above 0 and at most 1.
        intervals: Number of intervals, when not to be searched.
        bands: Number of bands, when not to be searched.
        preprocess: Whether rows and columns that store little are put last.

    Returns:
        The plan, with what it is expected to cost.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        PlanError: If no cut fits into the memory.

    Examples:
        >>> from sparsetile.matrix import random_pattern
        >>> p = random_pattern(1024, 1024, blocksize=16, density=0.125, seed=0)
        >>> plan = plan_static(p, 64)
        >>> plan.splits, plan.bands
        (8, 8)
    """
    if not isinstance(pattern, Pattern):
        raise TypeError(f"plan_static got pattern {pattern!r:.80}; give a Pattern")
    spec, n = load_machine(machine), check_size("plan_static", "n", n)
    check_dtype("plan_static", dtype)
    check_share("plan_static", "memory", memory)
    if intervals is not None:
        intervals = check_size("plan_static", "intervals", intervals)
    if bands is not None:
        bands = check_size("plan_static", "bands", bands)
    check_flag("plan_static", "preprocess", preprocess)
    r, c = pattern.blocksize
    if r != c or r not in BLOCKS:
        raise ValueError(
            f"plan_static got blocks of {r}×{c}; its kernels multiply square blocks of "
            f"{', '.join(map(str, BLOCKS))}: store the matrix in one of those"
        )
    return _planned(pattern, n, dtype, spec, memory, intervals, bands, preprocess)


@lru_cache(maxsize=128)
def _planned(
    pattern: Pattern,
    n: int,
    dtype: str,
    machine: MachineSpec,
    memory: float,
    intervals: int | None,
    bands: int | None,
    preprocess: bool,
) -> StaticPlan:
    p = problem(pattern, n, dtype, machine, preprocess)
    cut = search(p, memory * machine.memory_per_tile, intervals, bands)
    if isinstance(cut, str):
        raise PlanError(_refusal(cut, pattern, n, machine, memory, intervals, bands))
    bounds = np.array(cut.bounds)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(p.counts)))
    blocks, pair = np.diff(ends[bounds]), min(machine.tiles_per_bus, machine.tiles)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(cut.tiles)))
    return StaticPlan(
        machine=machine,
        pattern=pattern,
        n=n,
        dtype=dtype,
        preprocess=preprocess,
        column_starts=_starts(cut.sizes),
        split_tiles=_starts(cut.tiles),
        band_starts=cut.bounds,
        band_tiles=tuple(
            tuple(int(first) + t for t in _starts(tuple(band_tiles(blocks, tiles, pair).tolist())))
            for first, tiles in zip(starts, cut.tiles, strict=False)
        ),
        cost=cost_of(cut),
    )


def _starts(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return (0, *(int(end) for end in np.cumsum(sizes)))


def cost_of(cut: Cut) -> Cost:
    """The phases of a cut, each with the memory that the whole product needs."""
    return Cost(
        tuple(Term(name, cycles, cut.estimate.bytes) for name, cycles in cut.estimate.phases)
    )


def _refusal(
    why: str,
    pattern: Pattern,
    n: int,
    machine: MachineSpec,
    memory: float,
    intervals: int | None,
    bands: int | None,
) -> str:
    fixed = "".join(
        f", {count} {name}"
        for name, count in (("intervals", intervals), ("bands", bands))
        if count is not None
    )
    return (
        f"plan_static found no plan for {pattern.summary()} times {n} columns{fixed} on "
        f"{machine.name}, where a tile has {machine.memory_per_tile} bytes and "
        f"memory={memory:g} of them may be used; {why}"
    )
