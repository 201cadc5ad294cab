"""Cycles of the dynamic programs that work on blocks.

The figures are those that the planner of Graphcore's popsparse library (poplibs) uses. Kernels
exist for square blocks of 4, 8 and 16; a block of other sides is counted as the smallest of these
that covers it, or as several of 16.
"""

import numpy as np

from sparsetile.plan._units import Numbers

# By (operands, partial sums): start of a worker, and its overhead of a block for z = 1, 2, more.
_FORWARD = {
    ("float32", "float32", 4): (26, (14, 14, 14), 4),
    ("float16", "float32", 4): (26, (17, 18, 19), 2),
    ("float16", "float16", 4): (26, (15, 16, 17), 2),
    ("float32", "float32", 8): (23, (22, 22, 23), 8),
    ("float16", "float32", 8): (20, (22, 23, 23), 4),
    ("float16", "float16", 8): (23, (19, 20, 20), 4),
    ("float32", "float32", 16): (23, (24, 25, 24), 16),
    ("float16", "float32", 16): (23, (24, 25, 24), 4),
    ("float16", "float16", 16): (22, (22, 23, 22), 4),
}

# Start, overhead of a block row, overhead of a block, cycles of a column.
_GRAD_W = {
    ("float32", "float32", 4): (27, 9, 45, 12),
    ("float16", "float32", 4): (26, 9, 33, 6),
    ("float16", "float16", 4): (26, 9, 29, 6),
    ("float32", "float32", 8): (24, 7, 208, 48),
    ("float16", "float32", 8): (26, 9, 113, 24),
    ("float16", "float16", 8): (26, 9, 113, 24),
    ("float32", "float32", 16): (27, 9, 505, 96),
    ("float16", "float32", 16): (27, 9, 505, 96),
    ("float16", "float16", 16): (27, 9, 441, 96),
}

# Cycles of a step over z, and what they lose when the sum is not kept, by the same.
_GRAD_W_AMP = {
    ("float32", "float32", 4): (20, 1),
    ("float16", "float32", 4): (17, 2),
    ("float16", "float16", 4): (15, 1),
    ("float32", "float32", 8): (33, 2),
    ("float16", "float32", 8): (27, 4),
    ("float16", "float16", 8): (27, 4),
    ("float32", "float32", 16): (32, 4),
    ("float16", "float32", 16): (32, 4),
    ("float16", "float16", 16): (32, 4),
}


def kernel_side(block: tuple[int, int]) -> tuple[int, int]:
    """The square kernel that a block runs on.

    Args:
        block: Rows and columns of the block.

    Returns:
        The kernel's side, 4, 8 or 16, and how many times it runs for one block.

    Examples:
        >>> kernel_side((8, 8)), kernel_side((4, 8)), kernel_side((32, 16))
        ((8, 1), (8, 1), (16, 2))
    """
    for side in (4, 8):
        if max(block) <= side:
            return side, 1
    return 16, -(-block[0] // 16) * -(-block[1] // 16)


def weight_loads(block: tuple[int, int], dtype: str, partials: str) -> int:
    """How often a block is loaded into a tile's multiplying unit.

    Blocks of 16 need all 16 columns of the unit, which has only 8 with float32 sums.

    Args:
        block: Rows and columns of the block.
        dtype: `"float16"` or `"float32"`, of the operands.
        partials: `"float16"` or `"float32"`, of the partial sums.

    Returns:
        1 or 2, times the number of kernels a larger block takes.

    Examples:
        >>> weight_loads((16, 16), "float16", "float32")
        2
    """
    side, times = kernel_side(block)
    return times * (2 if side == 16 and partials == "float32" else 1)


def block_supervisor(
    foreign: Numbers,
    own: Numbers,
    before: Numbers,
    rows: Numbers,
    per_row: Numbers,
    block: tuple[int, int],
    dtype: str,
    partials: str,
    transposed: bool = False,
) -> Numbers:
    """Supervisor's cycles of one call: finding the tile's own subgroups, loading blocks (poplibs).

    Args:
        foreign: Subgroups in buckets that hold none of the tile's own.
        own: Buckets that hold some of the tile's own.
        before: Foreign subgroups that come before the first own one in such a bucket, on average.
        rows: Block rows of the tile.
        per_row: Blocks of a block row, on average.
        block: Rows and columns of a block.
        dtype: `"float16"` or `"float32"`, of the operands.
        partials: `"float16"` or `"float32"`, of the partial sums.
        transposed: Whether it computes the gradient of the input, which keeps no row's sums.

    Returns:
        Cycles, to be added once, not once per worker.

    Examples:
        >>> float(block_supervisor(0, 1, 0, 2, 3, (4, 4), "float16", "float32"))
        260.0
    """
    side, times = kernel_side(block)
    loads = weight_loads(block, dtype, partials)
    load = times * side * side / (4 if dtype == "float16" else 2) + 3 + 12 * loads
    found = 40 + 33 * np.asarray(foreign) + own * ((np.asarray(before) + 1) * 46 + 56)
    return np.asarray(found + (np.asarray(per_row) * load + (not transposed)) * rows + 2)


def block_forward(
    rows: Numbers,
    per_row: Numbers,
    z: Numbers,
    block: tuple[int, int],
    dtype: str,
    partials: str,
    transposed: bool = False,
) -> Numbers:
    """Cycles of one worker that multiplies blocks (poplibs, forward and transposed AMP).

    Workers share the columns of the dense operand; each sees all blocks of the tile.

    Args:
        rows: Block rows of the tile.
        per_row: Blocks of a block row, on average.
        z: Columns of the dense operand that the worker computes.
        block: Rows and columns of a block.
        dtype: `"float16"` or `"float32"`, of the operands.
        partials: `"float16"` or `"float32"`, of the partial sums.
        transposed: Whether it computes the gradient of the input, which keeps no row's sums.

    Returns:
        Cycles of the worker.

    Examples:
        >>> float(block_forward(2, 3, 8, (16, 16), "float16", "float32"))
        659.0
    """
    start, overheads, column = _FORWARD[dtype, partials, kernel_side(block)[0]]
    z = np.asarray(z)
    overhead = np.select([z <= 1, z == 2], overheads[:2], overheads[2])
    inner = overhead + z * column - (0 if transposed else 3)
    return np.asarray(start + rows * per_row * weight_loads(block, dtype, partials) * inner)


def block_grad_w(
    rows: Numbers, per_row: Numbers, z: Numbers, block: tuple[int, int], dtype: str, partials: str
) -> Numbers:
    """Cycles of one worker of the gradient of the weight at blocks (poplibs).

    Args:
        rows: Block rows of the worker.
        per_row: Blocks of a block row, on average.
        z: Columns of the dense operands on the tile, over which it sums.
        block: Rows and columns of a block.
        dtype: `"float16"` or `"float32"`, of the operands.
        partials: `"float16"` or `"float32"`, of the sums.

    Returns:
        Cycles of the worker.

    Examples:
        >>> float(block_grad_w(2, 3, 8, (4, 4), "float32", "float32"))
        891.0
    """
    side, times = kernel_side(block)
    start, row, overhead, column = _GRAD_W[dtype, partials, side]
    inner = times * (overhead + np.asarray(z) * column)
    return start + np.asarray(rows) * (row + per_row * inner)


def block_grad_w_amp(
    rows: Numbers, per_row: Numbers, z: Numbers, block: tuple[int, int], dtype: str, partials: str
) -> tuple[Numbers, Numbers]:
    """Cycles of the gradient of the weight at blocks on the multiplying unit (poplibs, AMP).

    All workers share each block.

    Args:
        rows: Block rows of the tile.
        per_row: Blocks of a block row, on average.
        z: Columns of the dense operands on the tile, over which it sums.
        block: Rows and columns of a block.
        dtype: `"float16"` or `"float32"`, of the operands.
        partials: `"float16"` or `"float32"`, of the sums.

    Returns:
        Cycles of a worker, and of the supervisor beside finding subgroups.

    Examples:
        >>> [float(part) for part in block_grad_w_amp(2, 3, 16, (8, 8), "float16", "float32")]
        [167.0, 369.0]
    """
    side, times = kernel_side(block)
    each, lost = _GRAD_W_AMP[dtype, partials, side]
    rows, blocks = np.asarray(rows), np.asarray(per_row) * times
    steps = np.ceil(np.asarray(z) / (16 if dtype == "float16" else 8))
    load = 8 + 2 * side
    supervisor = (
        23
        + 8 * (rows - 1)
        + rows * (32 + 10 * (blocks - 1) + blocks * (15 + 4 * (steps - 1) + steps * load))
    )
    return 5 + rows * blocks * (each * steps - (steps - 1) * lost), supervisor


def block_transpose_grad_w(
    blocks: Numbers, z: Numbers, side: int, dtype: str, workers: int = 6
) -> Numbers:
    """Cycles of a tile that transposes dense operands for the AMP gradient of the weight (poplibs).

    Args:
        blocks: Strips of `side` rows.
        z: Columns of each; done in pieces of 16 (float16) or 8 (float32).
        side: Rows of a strip.
        dtype: `"float16"` or `"float32"`.
        workers: Workers of the tile.

    Returns:
        Cycles of the tile, the supervisor's included.

    Examples:
        >>> float(block_transpose_grad_w(6, 16, 8, "float16"))
        534.0
    """
    pieces = np.ceil(np.asarray(z) / (16 if dtype == "float16" else 8))
    piece = 3 + (side / 4 * 23 if dtype == "float16" else side / 2 * 12)
    share = np.ceil(np.asarray(blocks) / workers)
    return np.asarray(18 + workers * (34 + share * (3 + pieces * piece)), np.float64)


def transpose_blocks(
    blocks: Numbers, block: tuple[int, int], dtype: str, workers: int = 6
) -> Numbers:
    """Cycles of a tile that transposes the values of its blocks (poplibs).

    Args:
        blocks: Blocks of the tile.
        block: Rows and columns of a block.
        dtype: `"float16"` or `"float32"`.
        workers: Workers of the tile.

    Returns:
        Cycles of the tile, the supervisor's included.

    Examples:
        >>> [float(transpose_blocks(6, (side, side), "float16")) for side in (4, 8)]
        [181.0, 433.0]
    """
    grain, each = (4, 4) if dtype == "float16" else (2, 3)
    down, across = -(-block[0] // grain), -(-block[1] // grain)
    share = np.ceil(np.asarray(blocks) / workers)
    if down == across == 1:
        worker = np.where(share <= 1, 29, 37 + (share - 2) * each)
    else:
        worker = 29 + share * (18 + down * (12 + each * (across - 2)))
    return np.asarray(7 + workers * worker, np.float64)
