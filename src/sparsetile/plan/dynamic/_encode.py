"""A sparse matrix dealt to the buckets of a plan."""

import numpy as np
from jaxtyping import UInt16

from sparsetile.matrix import BSR
from sparsetile.matrix._check import message
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._cut import Pieces, cut, kernel_blocks
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import exclusive
from sparsetile.plan.dynamic._words import bucket_order, counts_of, write_words, write_words_grad_a


def encode(plan: DynamicPlan, A: BSR) -> Encoded:
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
        TypeError: If `A` is not a BSR.
        ValueError: If the matrix is not one that was planned for, if buckets overflow, or if the
            plan's partitions are too large for 16-bit meta-information.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> encode.__name__
        'encode'
    """
    row, column, blocks = kernel_blocks(A, plan)
    pieces = cut(row, column, plan)
    meta = write_words(pieces, plan)
    if plan.bucket_meta_grad_a:
        meta = np.concatenate([meta, write_words_grad_a(pieces, plan)], axis=1)
    count = counts_of(pieces)
    capacity = at.capacity(plan)
    start = bucket_order(pieces.bucket, count)
    if len(count) and int((start + count).max()) > capacity:
        raise ValueError("Overflow in buckets")
    target = (pieces.bucket * capacity + start - exclusive(count)).repeat(count)
    target += np.arange(len(target))
    values = np.zeros((plan.tiles * capacity, blocks.shape[1]), blocks.dtype)
    values[target] = blocks[pieces.source]
    overflow = _overflow(pieces, plan)
    return Encoded(plan, np.concatenate([overflow, meta.reshape(-1)]), values.reshape(-1))


def _overflow(pieces: Pieces, plan: DynamicPlan) -> UInt16[np.ndarray, " words"]:
    """How far from its own partition, in the direction in which buckets travel, anything is."""
    x = (pieces.ix - pieces.bucket % plan.x) % plan.x
    y = (pieces.iy - pieces.bucket // (plan.x * plan.z)) % plan.y
    ends = [int(x.max(initial=0)) + 1, int(y.max(initial=0)) + 1, plan.z]
    if ends[0] > 1:
        ends[1] = plan.y
    words = np.zeros(at.overflow_words(plan), np.uint16)
    if max(ends) > at.LARGEST:
        raise ValueError(
            message(
                "encode",
                got=f"{max(ends)} partitions of one dimension",
                allowed=f"at most {at.LARGEST}, for meta-information has 16 bits",
                fix="plan with fewer partitions",
            )
        )
    words[:3] = ends
    for distance in np.unique(x):
        words[3 + distance // at.BITS_PER_WORD] |= 1 << (distance % at.BITS_PER_WORD)
    return words
