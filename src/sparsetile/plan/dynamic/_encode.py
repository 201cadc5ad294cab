"""A sparse matrix dealt to the buckets of a plan."""

import numpy as np

from sparsetile.matrix import BSR, COO, CSC, CSR
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._cut import cut, kernel_blocks
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._overflow import overflow_info
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import exclusive
from sparsetile.plan.dynamic._spill import spill
from sparsetile.plan.dynamic._words import (
    bucket_order,
    counts_of,
    write_words,
    write_words_grad_a,
)


def encode(plan: DynamicPlan, A: BSR | COO | CSC | CSR) -> Encoded:
    """Deal a matrix to the buckets of a plan.

    The non-zeros of each partition of W are dealt evenly to the tiles that share it. What does not
    fit in a bucket spills into others, near ones first, at the cost of more steps of propagation
    when the product is computed: see `steps`. Values are rounded to the plan's dtype.

    Args:
        plan: The plan; the matrix has its shape, its blocks and at most its number of blocks.
        A: The matrix, on any device; no gradient flows through.

    Returns:
        The buckets.

    Raises:
        TypeError: If `A` is no sparse matrix of this library.
        ValueError: If the matrix is not one that was planned for, if buckets overflow, or if the
            plan's partitions are too large for 16-bit meta-information.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> encode(small_plan(), small_matrix())
        Encoded(8×8, 4 buckets of 8 values and 70 words, steps 1×1×1)
    """
    row, column, blocks = kernel_blocks(A, plan)
    whole = cut(row, column, plan)
    pieces = spill(whole, plan)
    meta = write_words(pieces, plan)
    if plan.bucket_meta_grad_a:
        try:
            own = write_words_grad_a(pieces, plan)
        except ValueError as refused:
            # Most often these words fit where the others do; here they must count when spilling.
            try:
                pieces = spill(whole, plan, grad_a=True)
            except ValueError:
                raise refused from None
            meta, own = write_words(pieces, plan), write_words_grad_a(pieces, plan)
        meta = np.concatenate([meta, own], axis=1)
    count, capacity = counts_of(pieces), at.capacity(plan)
    first = pieces.bucket * capacity + bucket_order(pieces.bucket, count)
    target = (first - exclusive(count)).repeat(count) + np.arange(len(pieces.source))
    values = np.zeros((plan.tiles * capacity, blocks.shape[1]), blocks.dtype)
    values[target] = blocks[pieces.source]
    overflow = overflow_info(pieces.bucket, pieces.ix, pieces.iy, plan)
    return Encoded(plan, np.concatenate([overflow, meta.reshape(-1)]), values.reshape(-1))
