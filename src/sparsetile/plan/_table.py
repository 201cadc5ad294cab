"""Plans and costs as text: aligned columns, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparsetile.plan._cost import Cost
    from sparsetile.plan.dynamic._plan import DynamicPlan
    from sparsetile.plan.static._plan import StaticPlan

_LIKELY = 0.05  # odds of propagation that a user should hear of

PASSES = {
    "fwd": "forward",
    "grad_a": "gradient of the input",
    "grad_w": "gradient of the weight",
}


def aligned(rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Rows of cells as lines whose columns stand under each other.

    Args:
        rows: Cells, equally many in each row.
        texts: Columns from the left that are aligned left; the others hold numbers.

    Returns:
        The lines.

    Examples:
        >>> print(aligned([("phase", "cycles"), ("Multiply", "12"), ("Sync", "1,310")]))
        phase     cycles
        Multiply      12
        Sync       1,310
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row[:texts], widths, strict=False)]
        cells += [f"{c:>{w}}" for c, w in zip(row[texts:], widths[texts:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cost_table(cost: Cost) -> str:
    """The phases of a cost: cycles, their share, and bytes of temporary memory on a tile.

    Args:
        cost: What a product is expected to cost.

    Returns:
        An aligned table. Phases that need no memory of their own have no bytes.
    """
    rows = [("phase", "cycles", "share", "bytes")]
    for term in cost.terms:
        share = term.cycles / cost.cycles if cost.cycles else 0.0
        shown = f"{term.bytes:,}" if term.bytes else ""
        rows.append((term.name, f"{term.cycles:,.0f}", f"{share:.1%}".replace("%", " %"), shown))
    rows.append(("Total", f"{cost.cycles:,.0f}", "100.0 %", f"{cost.peak_bytes:,}"))
    return aligned(rows)


def static_facts(plan: StaticPlan) -> list[tuple[str, str]]:
    """What a static plan has decided, name by name."""
    starts, tiles = plan.column_starts, plan.split_tiles[-1] - plan.split_tiles[0]
    held = plan.pattern.nnzb * plan.splits / max(tiles, 1)
    per_interval = _range([last - first for first, last in pairwise(plan.split_tiles)])
    per_band = _range([b - a for band in plan.band_tiles for a, b in pairwise(band)])
    return [
        (
            "partition",
            f"{_many(plan.splits, 'interval')} of {_steps(starts)} columns, "
            f"{_many(plan.bands, 'band')} of {_steps(plan.band_starts)} block columns",
        ),
        ("tiles", f"{per_interval} of an interval, {per_band} of a band in it"),
        ("used tiles", f"{tiles:,} of {plan.machine.tiles:,}"),
        ("exchange plan", _static_exchange(plan)),
        ("blocks per tile", f"{held:.3g} in the mean"),
    ]


def _static_exchange(plan: StaticPlan) -> str:
    if plan.splits == 1:
        return "non-zeros stay on their tiles, rows of the dense operand come to them"
    return "non-zeros and rows of the dense operand come to the tiles that multiply them"


def dynamic_facts(plan: DynamicPlan) -> list[tuple[str, str]]:
    """What a dynamic plan has decided, under the names that popsparse's planner prints."""
    from sparsetile.plan.dynamic._odds import spill_odds

    passes = {name for name, _ in plan.costs} or {"fwd"}
    methods = [m for name, m in zip(PASSES, plan.methods, strict=True) if name in passes]
    facts = [
        ("method", ", ".join(methods)),
        (
            "partition",
            f"x={plan.x} of {plan.x_size} rows, y={plan.y} of {plan.y_size} columns, "
            f"z={plan.z} of {plan.z_size} batch columns",
        ),
        ("used tiles", f"{plan.tiles:,} of {plan.machine.tiles:,}"),
    ]
    if "grad_w" in passes:
        travels = "buckets" if plan.exchange_buckets else "dense operands"
        facts.append(("exchange plan", f"{travels} travel in the gradient of the weight"))
    else:
        facts.append(("exchange plan", "buckets travel"))
    meta = f"{plan.bucket_meta:,}"
    if plan.bucket_meta_grad_a:
        meta += f", and {plan.bucket_meta_grad_a:,} for the gradient of the input"
    facts += [
        ("nz elements per bucket", f"{plan.bucket_values:,}"),
        ("meta-info elements per bucket", meta),
    ]
    if plan.kernel_block != plan.blocksize:
        facts.append(("kernel block", _block(plan.kernel_block)))
    odds = spill_odds(plan)
    said = f"not counted; about {100 * odds:.0f} % of random patterns need some"
    if odds > _LIKELY:
        said += ": a larger oversize avoids it"
    facts.append(("propagation", said))
    return facts


def static_title(plan: StaticPlan) -> str:
    """One line on what a static plan is for."""
    m, k = plan.pattern.shape
    return (
        f"static plan on {plan.machine.name}: {m}×{k}, blocks of {_block(plan.pattern.blocksize)}, "
        f"density {plan.pattern.density:.4g}, times {k}×{plan.n}, {plan.dtype}"
    )


def dynamic_title(plan: DynamicPlan) -> str:
    """One line on what a dynamic plan is for."""
    r, c = plan.kernel_block
    most = plan.max_blocks / max(-(-plan.m // r) * -(-plan.k // c), 1)
    return (
        f"dynamic plan on {plan.machine.name}: {plan.m}×{plan.k}, blocks of "
        f"{_block(plan.blocksize)}, density up to {most:.4g}, times {plan.k}×{plan.n}, {plan.dtype}"
    )


def static_text(plan: StaticPlan) -> str:
    """A static plan and its cost, as it prints."""
    head = [static_title(plan), aligned(static_facts(plan), texts=2)]
    return "\n".join(head + ([cost_table(plan.cost)] if plan.cost.terms else []))


def dynamic_text(plan: DynamicPlan) -> str:
    """A dynamic plan and the cost of each pass, as it prints."""
    lines = [dynamic_title(plan), aligned(dynamic_facts(plan), texts=2)]
    for name, cost in plan.costs:
        lines += [f"{name}, the {PASSES[name]}" if name != "fwd" else "fwd", cost_table(cost)]
    return "\n".join(lines)


def _block(block: tuple[int, int]) -> str:
    return f"{block[0]}×{block[1]}"


def _steps(bounds: Sequence[int]) -> str:
    return _range([b - a for a, b in pairwise(bounds)])


def _many(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("s" if count != 1 else "")


def _range(sizes: Sequence[int]) -> str:
    if not sizes:
        return "0"
    least, most = min(sizes), max(sizes)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
