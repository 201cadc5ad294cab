"""The superstep that brings dense operands into a plan's layout."""

import numpy as np

from sparsetile.machine import Codelet, Compute, Memory, Variable
from sparsetile.plan.dynamic._added import REARRANGE, rearrangement
from sparsetile.plan.dynamic._plan import DynamicPlan


def rearrange(plan: DynamicPlan, *given: Variable) -> Compute:
    """Dense operands go from the caller's layout into the plan's.

    The model keeps data in place where an order does not show in it; the cycles are those fitted to
    the published figures.

    Args:
        plan: The plan.
        *given: The operands.

    Returns:
        The superstep.
    """
    cycles = rearrangement(sum(v.size for v in given), plan.dtype, plan.machine)
    held = np.any([v.counts > 0 for v in given], axis=0)
    each = np.where(held, round(cycles), 0).astype(np.int64)
    return Compute(REARRANGE, (Codelet("rearrange", _stay, each, given, ()),))


def _stay(memory: Memory) -> None:
    pass
