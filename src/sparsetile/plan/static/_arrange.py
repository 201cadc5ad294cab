"""Codelets that bring operands and result from one order into another.

The model keeps data in place where an order does not show in it; the cycles are those fitted to the
published speed-ups.
"""

import numpy as np

from sparsetile.machine import Codelet, Compute, Memory, Variable
from sparsetile.plan._units import BYTES
from sparsetile.plan.static import _cost
from sparsetile.plan.static._layout import Layout


def rearrange(layout: Layout, matrix: Variable) -> Compute:
    """A dense matrix goes from the caller's layout into the plan's, or back."""
    plan = layout.parts.plan
    cycles = _cost.rearrangement(matrix.size, BYTES[plan.dtype], plan.machine)
    each = np.where(matrix.counts > 0, round(cycles), 0).astype(np.int64)
    return Compute("Rearrangement", (Codelet("rearrange", _stay, each, (matrix,), ()),))


def order_values(layout: Layout) -> Compute | None:
    """Single numbers are brought into the order in which workers read them, where they lie."""
    cycles = np.ceil(_cost.value_order(layout.values.counts, layout.b)).astype(np.int64)
    if not cycles.any():
        return None
    order = Codelet("order values", _stay, cycles, (layout.values,), ())
    return Compute("Order of values", (order,))


def _stay(memory: Memory) -> None:
    pass
