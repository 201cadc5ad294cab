"""A plan as the command prints it: facts, costs, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparsetile.bench._plan_ask import Planned, Question
from sparsetile.plan._table import (
    PASSES,
    aligned,
    cost_table,
    dynamic_facts,
    dynamic_title,
    static_facts,
    static_title,
)

if TYPE_CHECKING:
    from sparsetile.plan import Cost

Facts = list[tuple[str, str]]


def plan_lines(planned: Planned, question: Question) -> list[str]:
    """The whole answer: the plan, the cost of each pass, memory and speed.

    Args:
        planned: The plan.
        question: What was asked.

    Returns:
        Lines.
    """
    title, facts = _plan(planned)
    lines = [title, aligned([*facts, *summary(planned, question.passes)], texts=2)]
    for name, cost in passes(planned, question):
        lines += ["", f"Predicted, {PASSES[name]}", cost_table(cost)]
    return lines


def passes(planned: Planned, question: Question) -> list[tuple[str, Cost]]:
    """The passes that were asked for, and what each is expected to cost."""
    return [(name, planned.passes[name]) for name in question.passes]


def summary(planned: Planned, asked: Sequence[str] = ("fwd",)) -> Facts:
    """Memory and speed of the forward product, which is named if other passes were asked for."""
    of = "" if tuple(asked) == ("fwd",) else ", forward"
    machine, cycles = planned.machine, planned.cost.cycles
    seconds = machine.seconds(cycles)
    rate = planned.flop / seconds / 1e12 if seconds else 0.0
    return [
        ("memory of a tile", memory_text(planned)),
        ("predicted time", f"{cycles:,.0f} cycles, {time_text(seconds)}{of}"),
        ("on stored values", f"{rate:.3g} TFLOP/s{of}"),
        ("speed-up over dense", speedup_text(planned, of)),
    ]


def speedup_text(planned: Planned, of: str = "") -> str:
    """How many times faster than the dense product, and what that takes."""
    times = planned.dense / planned.cost.cycles if planned.cost.cycles else 0.0
    verdict = f"{times:.2f} times{of}"
    if not planned.fits:
        verdict += ", if it did fit"
    return f"{verdict}; dense takes {planned.dense:,.0f} cycles"


def memory_text(planned: Planned) -> str:
    """Bytes of a tile against those allowed."""
    verdict = "" if planned.fits else ": does not fit"
    return (
        f"{planned.bytes:,} of {planned.limit:,.0f} bytes "
        f"({100 * planned.bytes / planned.limit:.0f} %){verdict}"
    )


def time_text(seconds: float) -> str:
    """A time as a person reads it."""
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.2f} ms"


def compare_lines(sides: Sequence[tuple[str, Planned | str]], question: Question) -> list[str]:
    """Plans of one product on several machines, side by side.

    Args:
        sides: Name of each machine, and the plan on it, or why there is none.
        question: What was asked.

    Returns:
        Lines of a table; a machine without a plan says so, and the reasons stand below.
    """
    plans = [planned for _, planned in sides if isinstance(planned, Planned)]
    rows = [("", *(name for name, _ in sides))]
    facts: dict[str, dict[int, str]] = {}
    for place, (_, planned) in enumerate(sides):
        if isinstance(planned, Planned):
            for name, text in _compared(planned, question):
                facts.setdefault(name, {})[place] = text
    for name, texts in facts.items():
        rows.append((name, *(texts.get(place, "–") for place in range(len(sides)))))
    title = _plan(plans[0])[0] if plans else "no plan"
    lines = [title.replace(f" on {plans[0].machine.name}", "") if plans else title, aligned(rows)]
    lines += [f"{name}: {why}" for name, why in sides if isinstance(why, str)]
    return lines


def _compared(planned: Planned, question: Question) -> Facts:
    from sparsetile.plan import StaticPlan

    facts = [(name, text) for name, text in _plan(planned)[1] if name == "used tiles"]
    plan = planned.plan
    if isinstance(plan, StaticPlan):
        facts += [("intervals × bands", f"{plan.splits} × {plan.bands}")]
    else:
        facts += [("x × y × z", f"{plan.x} × {plan.y} × {plan.z}")]
    several = len(question.passes) > 1
    for name, cost in passes(planned, question):
        before = f"{name}: " if several else ""
        facts += [(f"{before}{term.name}", f"{term.cycles:,.0f}") for term in cost.terms]
        facts += [(f"{before}Total", f"{cost.cycles:,.0f}")]
    seconds = planned.machine.seconds(planned.cost.cycles)
    facts += [
        ("bytes of a tile", f"{planned.bytes:,}"),
        ("bytes allowed", f"{planned.limit:,.0f}"),
        ("time", time_text(seconds)),
        ("TFLOP/s on stored values", f"{planned.flop / seconds / 1e12:.3g}"),
        ("dense cycles", f"{planned.dense:,.0f}"),
        ("speed-up over dense", f"{planned.dense / planned.cost.cycles:.2f}"),
    ]
    return facts


def _plan(planned: Planned) -> tuple[str, Facts]:
    from sparsetile.plan import StaticPlan

    plan = planned.plan
    if isinstance(plan, StaticPlan):
        return static_title(plan), static_facts(plan)
    return dynamic_title(plan), dynamic_facts(plan)
