"""What each pass of a dynamic product costs, phase by phase, for many partitions at once.

The phases and formulas are those of the dynamic planner of Graphcore's popsparse library (poplibs),
which ran the dynamic products of PopSparse (arXiv 2303.16999). Propagation is free in it: a
pattern that is spread evenly needs none.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparsetile.plan._units import Numbers
from sparsetile.plan.dynamic._case import Case, Floats, Ints, bucket_meta, bucket_values
from sparsetile.plan.dynamic._vertex_block import (
    block_forward,
    block_supervisor,
    transpose_blocks,
)
from sparsetile.plan.dynamic._vertex_element import (
    element_forward,
    element_grad_a,
    element_supervisor,
    element_transpose,
)
from sparsetile.plan.dynamic._vertex_sum import cast, reduce, zero_partials_planned

TRANSPOSE = "Transpose buckets"
DISTRIBUTE = "Pre-distribution + distribution exchange"
MULTIPLY = "Distribution compute"
PROPAGATE = "Propagation"
EXCHANGE = "Exchange to reduce"
REDUCE = "Reduction or cast"


@dataclass(frozen=True, eq=False)
class Phase:
    """One phase of each candidate.

    Attributes:
        cycles: Cycles of the busiest tile.
        bytes: Temporary memory of a tile.
    """

    cycles: Floats
    bytes: Floats


def product(case: Case, grad_a: bool) -> dict[str, Phase]:
    """Estimate the forward product, or the gradient of the input.

    Args:
        case: The product and its candidate partitions.
        grad_a: Whether for the gradient of the input, which swaps rows and columns.

    Returns:
        The phases in order, by name.
    """
    W, z, pz = case.machine.workers, case.bytes, case.partial_bytes
    (r, c), parts = case.block, case.x if grad_a else case.y
    height, width = case.rows * r, case.columns * c
    taken, made = (height, width) if grad_a else (width, height)
    outputs = made * case.z_size
    inputs, sums = floats(taken * case.z_size * z), floats(outputs * pz)
    own_meta = grad_a and not case.is_block and not case.options.shared_buckets
    bucket = bucket_values(case) * float(z) + 2 * bucket_meta(case, own_meta)
    others = np.where(case.z > 1, case.z, 0) * bucket
    held = inputs + others
    turned = grad_a and case.is_block
    nothing = np.zeros(len(case.x))
    return {
        TRANSPOSE: Phase(_transposed(case), floats(bucket_values(case) * z))
        if turned
        else Phase(nothing, nothing),
        DISTRIBUTE: Phase(_distribution(case, inputs, others), held),
        MULTIPLY: Phase(
            floats(zero_partials_planned(outputs, W)) + multiply(case, grad_a), held + sums
        ),
        PROPAGATE: Phase(nothing, inputs + sums + 2 * bucket),
        EXCHANGE: Phase(
            np.where(parts > 1, sums / case.machine.exchange_bytes_per_cycle, 0.0),
            np.where(parts > 1, 2, 1) * sums,
        ),
        REDUCE: Phase(_reduction(case, outputs, parts), sums + np.ceil(outputs / parts) * z),
    }


def _distribution(case: Case, inputs: Floats, others: Floats) -> Floats:
    """Cycles to bring each tile its rows of the dense operand, and the buckets of its part of W.

    Tiles that share a bus receive the same rows of the dense operand when an even number of row
    partitions lie side by side, and the same buckets when batch partitions do. The planner takes
    the first for both directions.
    """
    rate, pair = case.machine.exchange_bytes_per_cycle, case.machine.tiles_per_bus
    even = case.x % pair == 0
    along = (case.x == 1) & (case.z % pair == 0)
    operand = np.where(case.tiles > 1, inputs / np.where(even, rate * pair, rate), 0.0)
    return operand + others / np.where(along, rate * pair, rate)


def _reduction(case: Case, outputs: Ints, parts: Ints) -> Floats:
    """Cycles to add the partial sums of the parts, or to cast them where there is one."""
    W, partials = case.machine.workers, case.options.partials
    added = reduce(np.ceil(outputs / parts).astype(np.int64), parts, partials, case.dtype, W)
    alone = cast(outputs, partials, case.dtype, W) if partials != case.dtype else 0.0
    return np.where(parts > 1, added, alone)


def _transposed(case: Case) -> Floats:
    """Cycles to transpose the values of the blocks that a tile multiplies with."""
    blocks = bucket_values(case) // (case.block[0] * case.block[1])
    return floats(transpose_blocks(blocks, case.block, case.dtype, case.machine.workers))


def multiply(case: Case, grad_a: bool) -> Floats:
    """Cycles of the vertices that multiply, over all buckets of a part."""
    W, rows, per_row, buckets = case.machine.workers, case.used_rows, case.per_row, case.z
    if case.is_block:
        partials = case.options.partials
        z = -(-case.z_size // W)
        worker = block_forward(rows, per_row, z, case.block, case.dtype, partials, grad_a)
        supervisor = block_supervisor(
            0, buckets, 0, rows, per_row, case.block, case.dtype, partials, grad_a
        )
        return np.asarray(W * worker + supervisor, np.float64)
    if not grad_a:
        method, worker = "Forward", _shared(case, rows, per_row, element_forward)
    elif case.options.shared_buckets:
        method = "Transpose"
        worker = np.asarray(
            element_transpose(rows, per_row, case.z_size, case.dtype, W), np.float64
        )
    else:
        method, worker = "GradA", _shared(case, case.used_columns, case.per_column, element_grad_a)
    supervisor = element_supervisor(method, 0, buckets, 0)
    return np.asarray(W * worker + supervisor, np.float64)


def _shared(case: Case, rows: Ints, per_row: Ints, worker: Callable[..., Numbers]) -> Floats:
    """Cycles of the slowest worker, where workers share rows, or rows and batch columns."""
    W, grains = case.machine.workers, case.z_size // case.grain
    many = floats(worker(-(-rows // W), per_row, case.z_size, case.dtype))
    each = -(-rows * grains // W)
    tall = np.minimum(-(-each // np.maximum(grains, 1)), rows)
    wide = np.minimum(-(-each // np.maximum(tall, 1)), grains)
    few = floats(worker(tall, per_row, wide * case.grain, case.dtype))
    return np.where(rows > 2 * W, many, few)


def floats(numbers: Numbers) -> Floats:
    """The numbers, as an array of float64."""
    return np.asarray(numbers, np.float64)
