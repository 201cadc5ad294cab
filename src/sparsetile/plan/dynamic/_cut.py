"""Blocks of W cut by a plan: which partition each is in, and which bucket it starts in."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int64, Shaped

from sparsetile.matrix import BSR, COO, CSC, CSR
from sparsetile.matrix._check import message
from sparsetile.plan.dynamic._check_operand import as_operand, check_plan
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import exclusive


@dataclass(frozen=True, eq=False)
class Pieces:
    """Subgroups, their rows and their blocks, before they are written as words.

    Attributes:
        bucket: Bucket of each subgroup, a tile of the plan.
        ix: Row partition of each subgroup.
        iy: Column partition of each subgroup.
        rows: Rows of each subgroup.
        row: Subgroup by subgroup, the row in the partition, in blocks.
        row_count: Blocks of each row.
        column: Row by row, the column in the partition, in blocks.
        source: Which of the matrix's blocks each is, row by row of W.
    """

    bucket: Int64[np.ndarray, " subgroups"]
    ix: Int64[np.ndarray, " subgroups"]
    iy: Int64[np.ndarray, " subgroups"]
    rows: Int64[np.ndarray, " subgroups"]
    row: Int64[np.ndarray, " rows"]
    row_count: Int64[np.ndarray, " rows"]
    column: Int64[np.ndarray, " blocks"]
    source: Int64[np.ndarray, " blocks"]


def cut(
    row: Int64[np.ndarray, " blocks"], column: Int64[np.ndarray, " blocks"], plan: DynamicPlan
) -> Pieces:
    """Give every block the bucket it would have if all buckets had room.

    The blocks of a partition of W are dealt evenly to the tiles that share it, in order.

    Args:
        row: Block rows, ascending.
        column: Block columns, ascending in a row.
        plan: The plan.

    Returns:
        One subgroup for every bucket that has blocks, in order of ix, iy and iz.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> pieces = cut(np.arange(8), np.arange(8), small_plan())
        >>> pieces.bucket.tolist(), pieces.row.tolist()
        ([0, 3], [0, 1, 2, 3, 0, 1, 2, 3])
    """
    tall, wide = plan.x_size // plan.kernel_block[0], plan.y_size // plan.kernel_block[1]
    ix, iy = row // max(1, tall), column // max(1, wide)
    cells = plan.x * plan.y
    cell = ix * plan.y + iy
    # Small integers are sorted by their digits, in a fraction of the time.
    source = cell.astype(np.uint16 if cells < 2**16 else np.int64).argsort(kind="stable")
    of_cell = np.bincount(cell, minlength=cells)
    shares = of_cell[:, None] * np.arange(plan.z + 1) // plan.z
    count = np.diff(shares, axis=1).reshape(-1)
    owner = np.flatnonzero(count)
    first, count = exclusive(count)[owner], count[owner]
    row, column = (row - ix * tall)[source], (column - iy * wide)[source]
    new = np.diff(row, prepend=-1) != 0
    new[first] = True
    begin = np.flatnonzero(new)
    row_count = np.diff(begin, append=len(row))
    rows = np.diff(np.searchsorted(begin, first), append=len(begin))
    home, iz = np.divmod(owner, plan.z)
    ix, iy = np.divmod(home, plan.y)
    bucket = (iy * plan.z + iz) * plan.x + ix
    return Pieces(bucket, ix, iy, rows, row[begin], row_count, column, source)


def kernel_blocks(
    A: BSR | COO | CSC | CSR, plan: DynamicPlan
) -> tuple[
    Int64[np.ndarray, " blocks"], Int64[np.ndarray, " blocks"], Shaped[np.ndarray, "blocks area"]
]:
    """Take a matrix as blocks of the plan's kernel, row by row; no gradient flows.

    Args:
        A: The matrix, in blocks as the plan was made for.
        plan: The plan.

    Returns:
        Block rows, block columns and values, rounded to the plan's dtype.

    Raises:
        TypeError: If `A` is no sparse matrix of this library.
        ValueError: If its shape, blocks or number of blocks are not those of the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> kernel_blocks(small_matrix(), small_plan())[0].tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    check_plan(plan)
    A = as_operand(A, plan)
    (r, c), (down, across) = plan.kernel_block, kernel_grid(plan)
    values = A.values.detach().cpu().to(getattr(torch, plan.dtype))
    p = A.pattern
    row, column = (index.cpu().numpy().astype(np.int64) for index in (p.row_indices, p.col_indices))
    if down * across > 1:
        order = shrink_order(row, down, across)
        values = values.reshape(-1, down, r, across, c).transpose(2, 3)
        values = values.reshape(-1, r, c)[torch.from_numpy(order)]
        inner = order % (down * across)
        row = row[order // (down * across)] * down + inner // across
        column = column[order // (down * across)] * across + inner % across
    if len(row) > plan.max_blocks:
        raise ValueError(
            message(
                "A",
                got=f"{len(row)} blocks of {r}×{c} to encode",
                allowed=f"at most {plan.max_blocks}, which is what was planned for",
                fix="plan for a higher density, or store fewer blocks",
            )
        )
    return row, column, values.reshape(-1, r * c).numpy(force=True)


def kernel_grid(plan: DynamicPlan) -> tuple[int, int]:
    """How many blocks of the kernel a block of the matrix is cut into, down and across."""
    return plan.blocksize[0] // plan.kernel_block[0], plan.blocksize[1] // plan.kernel_block[1]


def shrink_order(
    row: Int64[np.ndarray, " blocks"], down: int, across: int
) -> Int64[np.ndarray, " smaller"]:
    """Which of the smaller blocks, block by block, come first row by row of the matrix."""
    begin = np.flatnonzero(np.diff(row, prepend=-1))
    size = np.diff(begin, append=len(row))
    # A row of n blocks becomes `down` rows of n·across: block, then smaller row, changes places.
    inner_row = np.tile(np.arange(down), len(begin))
    blocks = size.repeat(down)
    first = begin.repeat(down) * (down * across) + inner_row * across
    rank = np.arange(int(blocks.sum())) - exclusive(blocks).repeat(blocks)
    start = first.repeat(blocks) + rank * (down * across)
    return np.asarray((start[:, None] + np.arange(across)).reshape(-1))
