"""What the gradient of the weight costs, phase by phase, for many partitions at once.

After the dynamic planner of Graphcore's popsparse library (poplibs). There is no sum over tiles:
every bucket meets every batch partition, so either the buckets travel or the operands do.
"""

import numpy as np

from sparsetile.plan.dynamic._case import Case, Floats, Ints, bucket_meta, bucket_values
from sparsetile.plan.dynamic._estimate import Phase, floats
from sparsetile.plan.dynamic._vertex_block import (
    block_grad_w,
    block_grad_w_amp,
    block_transpose_grad_w,
)
from sparsetile.plan.dynamic._vertex_element import element_grad_w, element_supervisor
from sparsetile.plan.dynamic._vertex_sum import cast, zero_partials_planned

PLACE = "Pre-distribution exchange"
TRANSPOSE = "Q-grad/S transpose"
EXCHANGE = "Distribution exchange"
MULTIPLY = "Distribution compute"
CAST = "Reduction or cast"


def grad_w(case: Case, exchange_buckets: bool) -> dict[str, Phase]:
    """Estimate the gradient of the weight at the pattern.

    Args:
        case: The product and its candidate partitions.
        exchange_buckets: Whether buckets travel rather than operands.

    Returns:
        The phases in order, by name.
    """
    rate, pair = case.machine.exchange_bytes_per_cycle, case.machine.tiles_per_bus
    W, z, pz = case.machine.workers, float(case.bytes), float(case.partial_bytes)
    r, c = case.block
    of_q, of_s = case.rows * r * case.z_size * z, case.columns * c * case.z_size * z
    sums, meta = bucket_values(case) * pz, 2.0 * bucket_meta(case)
    paired = np.where(case.x % pair == 0, pair, 1)
    place = np.where(case.tiles > 1, (of_q + of_s / paired) / rate, 0.0)
    hop = (sums + meta) / rate if exchange_buckets else (of_q + of_s / paired) / rate
    hops = np.where(case.z > 1, case.z, 0)
    held = of_q + of_s + sums
    moving = 2 * (sums + meta) if exchange_buckets else of_q + of_s
    turned = np.zeros(len(case.x))
    if case.amp_grad_w:
        for strips, side in ((case.rows, r), (case.columns, c)):
            turned = turned + floats(
                block_transpose_grad_w(strips, case.z_size, side, case.dtype, W)
            )
    narrowed = case.options.partials != case.dtype
    return {
        PLACE: Phase(floats(place), held),
        TRANSPOSE: Phase(turned, held + (of_q + of_s if case.amp_grad_w else 0.0)),
        EXCHANGE: Phase(floats(hops * hop), held + moving),
        MULTIPLY: Phase(
            floats(zero_partials_planned(bucket_values(case), W)) + case.z * _multiply(case),
            held + moving,
        ),
        CAST: Phase(
            floats(cast(bucket_values(case), case.options.partials, case.dtype, W))
            if narrowed
            else np.zeros(len(case.x)),
            sums + bucket_values(case) * z,
        ),
    }


def _multiply(case: Case) -> Floats:
    """Cycles of the vertices that multiply, for one bucket and one batch partition."""
    W, partials = case.machine.workers, case.options.partials
    rows: Ints = -(-case.used_rows // case.z)
    supervisor = floats(element_supervisor("GradW", 0, 1, 0))
    if case.amp_grad_w:
        worker, more = block_grad_w_amp(
            rows, case.per_row, case.z_size, case.block, case.dtype, partials
        )
        return W * floats(worker) + floats(more) + supervisor
    share: Ints = -(-rows * case.per_row // W)  # workers share blocks, whatever their rows
    in_row = np.minimum(share, case.per_row)
    lines: Ints = -(-share // in_row)
    if case.is_block:
        worker = block_grad_w(lines, in_row, case.z_size, case.block, case.dtype, partials)
    else:
        worker = element_grad_w(lines, in_row, case.z_size, case.dtype)
    return W * floats(worker) + supervisor
