"""Executes a plan on its modelled machine with random numbers, and checks what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparsetile.bench._plan_ask import Planned, Question
from sparsetile.plan._table import aligned

if TYPE_CHECKING:
    from sparsetile.machine import Profile
    from sparsetile.matrix import BSR
    from sparsetile.plan import Cost

# Largest error, over the sum of the products' absolute values. Half values are rounded twice at
# most: as partial sums and as results.
ALLOWED = {"float32": 1e-5, "float16": 2**-9}
_AT_ONCE = 1 << 24  # numbers
# Steps of a run that the planner counts as one phase.
_PHASES = {
    "sync": "Sync",
    "Propagation control": "Propagation",
    "Propagation begin": "Propagation",
    "Propagation exchange": "Propagation",
    "Propagation compute": "Propagation",
    "Distribution begin": "Distribution exchange",
}


@dataclass(frozen=True)
class Run:
    """A pass that was executed.

    Args:
        name: Of the pass.
        profile: What it took.
        error: Largest error of the result; see `ALLOWED`.
        allowed: How large it may be.
        steps: Steps of propagation, if the plan is dynamic.
    """

    name: str
    profile: Profile
    error: float
    allowed: float
    steps: int | None

    @property
    def right(self) -> bool:
        """Whether the result agrees with the plain product."""
        return self.error <= self.allowed


def run_plan(planned: Planned, question: Question, seed: int) -> list[Run]:
    """Execute the passes that were asked for.

    Args:
        planned: The plan.
        question: The product.
        seed: Decides values and operands.

    Returns:
        What came out of each.

    Raises:
        OutOfTileMemory: If a program does not fit its machine.
    """
    from sparsetile.matrix import BSR
    from sparsetile.plan import (
        StaticPlan,
        decode_values,
        encode,
        propagation_steps,
        run_dynamic,
        run_static,
    )

    generator = torch.Generator().manual_seed(seed)
    pattern, dtype = question.pattern, getattr(torch, question.dtype)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    (m, k), n = pattern.shape, question.n
    A = BSR(draw(pattern.nnzb, *pattern.blocksize), pattern)
    x = draw(k, n)
    allowed = ALLOWED[question.dtype]
    plan = planned.plan
    if isinstance(plan, StaticPlan):
        y, profile = run_static(plan, A, x)
        return [Run("fwd", profile, _error(y, *_product(A, x)), allowed, None)]
    encoded = encode(plan, A)
    steps, runs, dy = propagation_steps(encoded), [], draw(m, n)
    for name in question.passes:
        if name == "fwd":
            y, profile = run_dynamic(plan, encoded, x)
            error = _error(y, *_product(A, x))
        elif name == "grad_a":
            y, profile = run_dynamic(plan, encoded, dy, pass_="grad_a")
            error = _error(y, *_product(A, dy, turned=True))
        else:
            y, profile = run_dynamic(plan, encoded, dy, x, pass_="grad_w")
            blocks = decode_values(encoded, y.numpy())
            error = _error(blocks.reshape(-1), *_sampled(A, dy, x))
        runs.append(Run(name, profile, error, allowed, steps))
    return runs


def comparison(cost: Cost, profile: Profile) -> str:
    """Predicted and executed cycles, phase by phase.

    Args:
        cost: What was predicted.
        profile: What was executed.

    Returns:
        A table. A phase that only one side knows is empty on the other.
    """
    predicted = {term.name: term.cycles for term in cost.terms}
    executed: dict[str, int] = {}
    for phase in profile.phases:
        name = _PHASES.get(phase.name, phase.name)
        executed[name] = executed.get(name, 0) + phase.cycles
    names = [*predicted, *(name for name in executed if name not in predicted)]
    if "Sync" in names:
        names.remove("Sync")
        names.append("Sync")
    rows = [("phase", "predicted", "executed")]
    for name in names:
        rows.append(
            (
                name,
                f"{predicted[name]:,.0f}" if name in predicted else "",
                f"{executed[name]:,}" if name in executed else "",
            )
        )
    rows.append(("Total", f"{cost.cycles:,.0f}", f"{profile.cycles:,}"))
    return aligned(rows)


def _coordinates(A: BSR) -> tuple[Tensor, Tensor, Tensor]:
    """Row, column and float64 value of every stored element that lies in the matrix."""
    pattern = A.pattern
    r, c = pattern.blocksize
    row = pattern.row_indices.long()[:, None, None] * r + torch.arange(r)[:, None]
    column = pattern.col_indices.long()[:, None, None] * c + torch.arange(c)
    row, column = (t.expand(A.values.shape).reshape(-1) for t in (row, column))
    inside = (row < pattern.shape[0]) & (column < pattern.shape[1])
    return row[inside], column[inside], A.values.reshape(-1)[inside].double()


def _product(A: BSR, x: Tensor, turned: bool = False) -> tuple[Tensor, Tensor]:
    """The product in float64, element by element, and that of absolute values."""
    row, column, value = _coordinates(A)
    shape = A.pattern.shape
    if turned:
        row, column, shape = column, row, (shape[1], shape[0])
    at, x = torch.stack([row, column]), x.double()
    whole, size = (
        torch.sparse.mm(torch.sparse_coo_tensor(at, v, shape, check_invariants=False), dense)
        for v, dense in ((value, x), (value.abs(), x.abs()))
    )
    return whole, size


def _sampled(A: BSR, dy: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The product dy·xᵀ at the stored elements, and that of absolute values."""
    row, column, value = _coordinates(A)
    dy, x = dy.double(), x.double()
    whole, size = torch.empty_like(value), torch.empty_like(value)
    step = max(_AT_ONCE // x.shape[1], 1)
    for first in range(0, len(row), step):
        part = slice(first, first + step)
        products = dy[row[part]] * x[column[part]]
        whole[part], size[part] = products.sum(1), products.abs().sum(1)
    return whole, size


def _error(found: Tensor, exact: Tensor, size: Tensor) -> float:
    """Largest error over the sum of the absolute values of what was added."""
    if not found.numel():
        return 0.0
    error = (found.double() - exact).abs() / size.clamp_min(torch.finfo(torch.float32).tiny)
    return float(error.max()) if bool(error.isfinite().all()) else float("inf")
