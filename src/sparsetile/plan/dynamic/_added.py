"""Phases of a dynamic product that its planner leaves out.

The planner of Graphcore's popsparse library (poplibs) chooses partitions without them. They stand
in the cost of the plan it chose, each with at most one number that was fitted to the published
figures of PopSparse (arXiv 2303.16999).
"""

import math
from statistics import NormalDist

from sparsetile.machine import MachineSpec
from sparsetile.plan._units import BYTES
from sparsetile.plan.dynamic._case import Case
from sparsetile.plan.dynamic._vertex_sum import zero_partials, zero_partials_planned

UNEVEN = "Uneven parts"
REARRANGE = "Rearrangement"
SYNC = "Sync"

# Supersteps of a pass: distribute, zero, multiply, three to see what remains, exchange, add, place.
SUPERSTEPS = 9

_PATTERNS = 0.95  # share of random patterns whose fullest part is no fuller than reckoned with
_REARRANGE = 14.8


def zeroing(case: Case, sums: int) -> float:
    """Cycles that setting partial sums to zero takes beyond the planner's estimate; negative.

    The planner counts a cycle for each sum; two or four are cleared at once.

    Args:
        case: The product with one candidate.
        sums: Partial sums of a tile.

    Returns:
        Cycles to add to the planner's.
    """
    W = case.machine.workers
    real = zero_partials(sums, case.options.partials, case.is_block, W)
    return float(real - zero_partials_planned(sums, W))


def uneven_parts(case: Case, multiply: float) -> float:
    """Cycles that the fullest part multiplies longer than the planner reckons.

    The planner takes the mean part of a random pattern for the fullest. How many blocks a part
    stores is about normal; the fullest of all parts is taken as full as it is in 95 of 100
    patterns. Nothing but that number is fitted.

    Args:
        case: The product with one candidate.
        multiply: Cycles that the planner expects for the multiplication alone.

    Returns:
        Cycles.
    """
    parts = int(case.x[0] * case.y[0])
    mean = float(case.rows[0] * case.columns[0] * case.density)
    if parts == 1 or mean == 0:
        return 0.0
    spread = math.sqrt((1 - 1 / parts) * (1 - case.density) * mean)
    fullest = mean + NormalDist().inv_cdf(_PATTERNS ** (1 / parts)) * spread
    reckoned = float(case.used_rows[0] * case.per_row[0])
    return multiply * max(0.0, fullest / reckoned - 1)


def rearrangement(elements: int, dtype: str, machine: MachineSpec) -> float:
    """Cycles to bring a dense operand from the caller's layout into the plan's.

    Grows with the bytes of a tile's share as in static products; the factor is fitted.

    Args:
        elements: Elements of the dense operand.
        dtype: `"float16"` or `"float32"`.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> round(rearrangement(4096 * 1024, "float16", preset("bow-ipu")))
        4722
    """
    return float(_REARRANGE * (elements * BYTES[dtype] / machine.tiles) ** (2 / 3))
