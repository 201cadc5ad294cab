"""The block products that a masked product consists of."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from sparsetile.plan.masked._plan import MaskedPlan

Each = Int64[np.ndarray, " products"]


@dataclass(frozen=True, eq=False)
class Products:
    """Products of two blocks each, in an order that keeps those of one strip together.

    They form a grid: one row for each block of the dimension that no mask thins out (rows of the
    left operand for dsd, inner for dds), one column for each stored block.

    Attributes:
        shape: Rows and columns of that grid.
        row: Block row of the result, counted over all groups, `[products]`.
        inner: Block of the inner dimension, counted over all groups, `[products]`.
        column: Block column of the result, counted over all groups, `[products]`.
        left: Which block of the left operand, `[products]`.
        right: Which block of the right operand, `[products]`.
        out: Which block of the result, `[products]`.
    """

    shape: tuple[int, int]
    row: Each
    inner: Each
    column: Each
    left: Each
    right: Each
    out: Each

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.out)


def products(plan: MaskedPlan, band: tuple[int, int]) -> Products:
    """The block products of a band of block rows."""
    (mb, kb, nb), (low, high) = plan.grid, band
    blocks = plan.stored
    if plan.kind == "dsd":
        k, j = blocks.row, blocks.column
        if plan.transposed:
            k, j = j, k
        order = np.lexsort((k, j, blocks.group))
        group, k, j, which = (array[order] for array in (blocks.group, k, j, np.arange(len(k))))
        i = np.arange(low, high)[:, None]
    else:
        which = np.flatnonzero((blocks.row >= low) & (blocks.row < high))
        group, i, j = blocks.group[which], blocks.row[which], blocks.column[which]
        k = np.arange(kb)[:, None]
    row, inner, column = group * mb + i, group * kb + k, group * nb + j
    left = row * kb + k
    if plan.kind == "dsd":
        right, out = which, row * nb + j
    else:
        right, out = (column * kb + k if plan.transposed else inner * nb + j), which
    full = np.broadcast_shapes(row.shape, inner.shape)
    flat = (
        np.broadcast_to(array, full).reshape(-1) for array in (row, inner, column, left, right, out)
    )
    return Products((full[0], full[1]), *flat)


def outs(plan: MaskedPlan, band: tuple[int, int]) -> Int64[np.ndarray, " outs"]:
    """Blocks of the result in a band of block rows."""
    (mb, _, nb), (low, high) = plan.grid, band
    if plan.kind == "dds":
        return np.flatnonzero((plan.stored.row >= low) & (plan.stored.row < high))
    row = np.arange(plan.groups)[:, None] * mb + np.arange(low, high)
    return (row[:, :, None] * nb + np.arange(nb)).reshape(-1)
