"""What tiles have to do in a masked product, and the cycles that this takes."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from sparsetile.machine import MachineSpec
from sparsetile.plan._cost import Cost, Term
from sparsetile.plan._units import BYTES, VECTOR, up
from sparsetile.plan.dynamic._vertex_sum import cast, reduce
from sparsetile.plan.masked._plan import MaskedPlan

Counts = Int64[np.ndarray, " tiles"]

# Bytes of a right block that the matrix unit takes in a cycle.
_LOAD = 8
_START, _BLOCK = 108, 16


@dataclass(frozen=True, eq=False)
class Load:
    """Blocks of each tile, in one pass.

    Attributes:
        products: Block products that it computes, `[tiles]`.
        left: Blocks of the left operand that it needs, `[tiles]`.
        right: Blocks of the right operand that it needs, `[tiles]`.
        partial: Blocks of partial sums that it makes, `[tiles]`.
        sent: Blocks of partial sums that it sends to others, `[tiles]`.
        received: Blocks of partial sums that others send it, `[tiles]`.
        sums: Blocks of partial sums that it adds up, `[tiles]`.
        added: Blocks of the result that these become, `[tiles]`.
        cast: Blocks of the result that are a single sum, or zeros, `[tiles]`.
    """

    products: Counts
    left: Counts
    right: Counts
    partial: Counts
    sent: Counts
    received: Counts
    sums: Counts
    added: Counts
    cast: Counts


def multiply_cycles(
    products: Counts,
    right: Counts,
    block: tuple[int, int, int],
    dtype: str,
    partials: str,
    machine: MachineSpec,
) -> Int64[np.ndarray, " tiles"]:
    """Cycles of a tile that multiplies blocks on its matrix unit.

    Products run at the machine's dense rate for the dtypes (64, 32 or 16 multiplications a cycle
    on an IPU). Every right block is loaded once, 8 bytes a cycle; a call and a loaded block cost
    what popsparse's static planner reckons with for its blocks: 108 and 16 cycles.

    Args:
        products: Block products of the tile.
        right: Different right blocks among them.
        block: Sides (bm, bk, bn) of the blocks.
        dtype: Of the operands.
        partials: Of the sums.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> machine, block = preset("bow-ipu"), (16, 16, 16)
        >>> multiply_cycles(np.array([6]), np.array([2]), block, "float16", "float16", machine)
        array([652])
    """
    (bm, bk, bn) = block
    flops = {
        ("float16", "float16"): machine.flops_float16,
        ("float16", "float32"): machine.flops_mixed,
        ("float32", "float32"): machine.flops_float32,
    }[dtype, partials]
    loads = right * (_BLOCK + bk * bn * BYTES[dtype] // _LOAD)
    cycles = _START + loads + up(2 * products * (bm * bk * bn), flops)
    return np.asarray(np.where(products > 0, cycles, 0))


def exchange_cycles(size: Counts | int, machine: MachineSpec) -> Int64[np.ndarray, "..."]:
    """Cycles in which a tile receives bytes, with nobody on its bus who wants the same.

    Args:
        size: Bytes.
        machine: The machine.

    Returns:
        Cycles; the exchange of a program shares buses and leaves out what is there already.

    Examples:
        >>> from sparsetile.machine import preset
        >>> int(exchange_cycles(512, preset("bow-ipu")))
        128
    """
    return np.asarray(up(size, machine.exchange_bytes_per_cycle))


def sum_cycles(load: Load, plan: MaskedPlan) -> Int64[np.ndarray, " tiles"]:
    """Cycles of a tile that adds partial sums up, and casts those that are alone.

    popsparse's formulas of a reduction and of a cast; results of which a tile adds different
    numbers of sums are reckoned with the mean number.

    Args:
        load: What tiles do.
        plan: What it is part of.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> from sparsetile.plan.masked import plan_dds
        >>> plan = plan_dds(preset("bow-ipu"), causal_pattern(64, 64, blocksize=16), 32)
        >>> none, some = np.zeros(3, np.int64), np.array([0, 0, 4])
        >>> load = Load(none, none, none, none, none, none, some, some // 4, np.array([0, 1, 0]))
        >>> sum_cycles(load, plan)
        array([   0,  288, 1380])
    """
    area, workers = plan.sizes[2], plan.machine.workers
    depth = load.sums / np.maximum(load.added, 1)
    added = reduce(load.added * area, depth, plan.partials, plan.dtype, workers)
    alone = cast(load.cast * area, plan.partials, plan.dtype, workers)
    cycles = np.where(load.added > 0, added, 0) + np.where(load.cast > 0, alone, 0)
    return np.asarray(np.ceil(cycles), np.int64)


def mask_cycles(blocks: Counts, area: int, dtype: str, machine: MachineSpec) -> Counts:
    """Cycles of a tile that zeroes a triangle in blocks.

    An estimate of ours: each worker loads, masks and stores a vector in two cycles, and takes 20 to
    begin.

    Args:
        blocks: Diagonal blocks of the tile.
        area: Elements of a block.
        dtype: Of the elements.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> mask_cycles(np.array([0, 1]), 256, "float16", preset("bow-ipu"))
        array([  0, 252])
    """
    vectors = up(blocks * area, VECTOR[dtype] * machine.workers)
    return np.where(blocks > 0, machine.workers * (20 + 2 * vectors), 0)


def pass_cost(load: Load, plan: MaskedPlan) -> Cost:
    """What a pass costs, every block that a tile needs coming from another one.

    Args:
        load: What its tiles do.
        plan: What it is part of.

    Returns:
        Cycles and bytes of the busiest tile in each phase.
    """
    (left, right, out), machine, z = plan.sizes, plan.machine, BYTES[plan.dtype]
    sums = out * BYTES[plan.partials]
    operands = (load.left * left + load.right * right) * z
    partial, received = load.partial * sums, load.received * sums
    moved = np.maximum(load.sent, load.received) * sums
    multiply = multiply_cycles(
        load.products, load.right, plan.block, plan.dtype, plan.partials, machine
    )
    add = sum_cycles(load, plan)
    return Cost(
        (
            _term("Distribution exchange", exchange_cycles(operands, machine), operands),
            _term("Multiply", multiply, operands + partial),
            _term("Exchange to reduce", exchange_cycles(moved, machine), partial + received),
            _term("Reduction or cast", add, partial + received),
        )
    )


def total(costs: list[Cost]) -> Cost:
    """The cost of passes one after the other, phase by phase."""
    return Cost(
        tuple(
            Term(
                terms[0].name,
                sum(term.cycles for term in terms),
                max(term.bytes for term in terms),
            )
            for terms in zip(*(cost.terms for cost in costs), strict=True)
        )
    )


def score(cost: Cost, plan: MaskedPlan) -> float:
    """Cycles and memory in one number: memory counts as the cycles in which it can be filled."""
    weight = plan.memory_cycle_ratio
    fill = cost.peak_bytes / plan.machine.exchange_bytes_per_cycle
    return (1 - weight) * cost.cycles + weight * fill


def _term(
    name: str,
    cycles: Int64[np.ndarray, " tiles"] | Float64[np.ndarray, " tiles"],
    size: Counts,
) -> Term:
    return Term(name, float(cycles.max(initial=0)), int(size.max(initial=0)))
