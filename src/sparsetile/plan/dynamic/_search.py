"""Finds the cheapest partition of a dynamic product."""

from dataclasses import dataclass, replace

import numpy as np

from sparsetile.machine import MachineSpec
from sparsetile.plan._units import VECTOR
from sparsetile.plan.dynamic._case import Case, Floats, Ints
from sparsetile.plan.dynamic._estimate import Phase, product
from sparsetile.plan.dynamic._estimate_grad_w import grad_w
from sparsetile.plan.dynamic._plan import PROGRAMS, DynamicOptions

# What 16 bits of meta-information can say, and the part of it that offsets of single numbers may
# take: the published figures of 1×1 are met with a quarter, not with all of it.
_MOST = 65535
_MOST_OFFSET = _MOST // 4


@dataclass(frozen=True, eq=False)
class Found:
    """The cheapest partition.

    Attributes:
        case: The product with this partition alone.
        passes: The phases of each planned pass, by "fwd", "grad_a" and "grad_w".
        exchange_buckets: Whether buckets travel in the gradient of the weight.
    """

    case: Case
    passes: dict[str, dict[str, Phase]]
    exchange_buckets: bool

    @property
    def cycles(self) -> float:
        """Of all planned passes, as the planner reckons them."""
        return float(sum(p.cycles[0] for phases in self.passes.values() for p in phases.values()))


def candidates(
    grid: tuple[int, int],
    n: int,
    element: bool,
    dtype: str,
    machine: MachineSpec,
    options: DynamicOptions,
) -> tuple[Ints, ...]:
    """All partitions worth comparing.

    Rows and columns are cut by rounding up, the batch into equal numbers of grains. Of cuts with
    parts of one size, the one with fewest parts is kept.

    Args:
        grid: Block rows and block columns.
        n: Batch columns.
        element: Whether single numbers are multiplied, whose batch goes in whole vectors.
        dtype: `"float16"` or `"float32"`.
        machine: The machine.
        options: Partitions that are not to be searched.

    Returns:
        For each candidate its x, y and z, and block rows, block columns and batch columns of a
        part.
    """
    grain = VECTOR[dtype] if element else 1
    grains = -(-n // grain)
    xs = _parts(grid[0], machine.tiles) if options.x is None else np.array([options.x])
    ys = _parts(grid[1], machine.tiles) if options.y is None else np.array([options.y])
    zs = [z for z in range(1, min(grains, machine.tiles) + 1) if grains % z == 0]
    axes = np.meshgrid(xs, ys, zs if options.z is None else [options.z], indexing="ij")
    x, y, z = (axis.ravel().astype(np.int64) for axis in axes)
    fits = x * y * z <= machine.tiles
    x, y, z = x[fits], y[fits], z[fits]
    return x, y, z, _up(max(grid[0], 1), x), _up(max(grid[1], 1), y), _up(grains, z) * grain


def search(case: Case, memory: float) -> Found | None:
    """Keep the candidate whose planned passes together cost least.

    Args:
        case: The product and its candidates.
        memory: Bytes of a tile that may be used.

    Returns:
        The cheapest, or None if none fits.
    """
    options, costs = case.options, []
    passes = {"fwd": product(case, grad_a=False)}
    if options.grad_a:
        passes["grad_a"] = product(case, grad_a=True)
    ways = [True] if options.exchange_buckets is None else [options.exchange_buckets]
    if options.grad_w and options.exchange_buckets is None:
        ways = [True, False]
    for buckets in ways:
        planned = {**passes, "grad_w": grad_w(case, buckets)} if options.grad_w else passes
        phases = [phase for each in planned.values() for phase in each.values()]
        cycles: Floats = np.sum([phase.cycles for phase in phases], axis=0)
        most = np.max([phase.bytes for phase in phases], axis=0)
        programs = PROGRAMS * case.machine.memory_per_tile
        cycles = np.where((most + programs <= memory) & _valid(case), cycles, np.inf)
        costs.append((cycles, planned, buckets))
    cycles, planned, buckets = min(costs, key=lambda cost: float(cost[0].min(initial=np.inf)))
    if not np.isfinite(cycles).any():
        return None
    at = int(np.argmin(cycles))
    return Found(
        only(case, at),
        {
            name: {
                phase: Phase(p.cycles[at : at + 1], p.bytes[at : at + 1])
                for phase, p in phases.items()
            }
            for name, phases in planned.items()
        },
        buckets,
    )


def only(case: Case, at: int) -> Case:
    """The product with one of its candidates."""
    axes = ("x", "y", "z", "rows", "columns", "z_size")
    return replace(case, **{axis: getattr(case, axis)[at : at + 1] for axis in axes})


def _valid(case: Case) -> np.ndarray:
    """Whether the offsets of single numbers fit into 16 bits; those of blocks are not modelled."""
    if case.is_block:
        return np.ones(len(case.x), bool)
    offset = (case.columns - 1) * case.z_size * case.bytes
    turned = (case.rows - 1) * case.z_size * case.bytes
    own = case.options.grad_a and not case.options.shared_buckets
    fits = (offset <= _MOST_OFFSET) & (case.rows - 1 <= _MOST)
    return fits & ((turned <= _MOST_OFFSET) | (not own))


def _parts(size: int, most: int) -> Ints:
    """Numbers of parts with different sizes, the fewest parts for each size."""
    whole = max(size, 1)
    return np.unique(_up(whole, _up(whole, np.arange(1, min(whole, most) + 1))))


def _up(number: int, parts: Ints) -> Ints:
    return -(-number // parts)
