"""What a product with a fixed pattern costs on tiles, phase by phase.

The formulas are those of the static planner of Graphcore's popsparse library (the code behind
PopSparse, arXiv 2303.16999), one function each, in cycles of the busiest tile. They take numbers
or arrays of numbers. Phases that the planner leaves out stand at the end, each with one number that
was fitted to the published speed-ups.
"""

import numpy as np

from sparsetile.machine import MachineSpec
from sparsetile.plan._units import BYTES, Floats, Numbers, up

# Fitted to the published speed-ups over dense; see the functions.
_UNEVEN = 0.1
_REARRANGE = 27.4
_REORDER = 1.5

# Supersteps of a product: rearrange, gather, multiply, partial sums, reduce, place, rearrange.
SUPERSTEPS = 7


def dense_exchange(
    columns: Numbers, blocks: Numbers, width: Numbers, b: int, z: int, machine: MachineSpec
) -> Floats:
    """Cycles to bring the dense operand's rows to the tiles that multiply them.

    At the rate of tiles that share a bus and ask for the same rows.

    Args:
        columns: Columns of the dense operand on the tile.
        blocks: Block rows of the dense operand that the tile's non-zeros touch.
        width: Block rows among which they lie; the planner reckons with all of them.
        b: Side of a block.
        z: Bytes of an element.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> float(dense_exchange(64, 26, 28, 16, 2, preset("bow-ipu")))
        7168.0
    """
    rate = machine.exchange_bytes_per_cycle * machine.tiles_per_bus
    return np.asarray(
        up(np.asarray(columns) * blocks * (b * z), rate) * (np.asarray(width) / blocks), np.float64
    )


def nonzero_exchange(blocks: Numbers, b: int, z: int, machine: MachineSpec) -> Floats:
    """Cycles to bring a tile its non-zeros where several tiles need the same ones.

    Args:
        blocks: Stored blocks on the tile.
        b: Side of a block.
        z: Bytes of an element.
        machine: The machine.

    Returns:
        Cycles; a plan that does not split the dense operand's columns needs none of them.

    Examples:
        >>> from sparsetile.machine import preset
        >>> float(nonzero_exchange(47, 16, 2, preset("bow-ipu")))
        6016.0
    """
    return up(np.asarray(blocks) * (b * b * z), machine.exchange_bytes_per_cycle).astype(np.float64)


def multiply_elements(rows: Numbers, per_row: Numbers, columns: Numbers, dtype: str) -> Floats:
    """Cycles of one worker that multiplies rows of single numbers.

    Args:
        rows: Rows of the sparse operand that the worker has.
        per_row: Non-zeros of each.
        columns: Columns of the dense operand, a multiple of the vector width.
        dtype: `"float16"` or `"float32"`.

    Returns:
        Cycles of the worker; workers take turns, so a tile takes as many times more as it has.

    Examples:
        >>> float(multiply_elements(2, 3, 8, "float16"))
        59.0
    """
    more = np.maximum(np.asarray(per_row, np.float64) - 1, 0)
    n = np.asarray(columns)
    if dtype == "float16":
        long = 11 + n // 8 * (14 + 3 * more) + (n % 8 != 0) * (9 + 2 * more)
        row = np.select([n == 4, n == 8], [7 + 2 * more, 8 + 3 * more], long)
        start = np.select([n == 4, n == 8], [31, 31], 33)
    else:
        long = 12 + n // 4 * (10 + 3 * more) + (n % 4 != 0) * (10 + 2 * more)
        row = np.select([n == 2, n == 4], [5 + 2 * more, 6 + 3 * more], long)
        start = np.select([n == 2, n == 4], [29, 30], 31)
    return np.asarray(start + rows * row, np.float64)


# By dtype and block side: cycles to start, cycles of a block row; see multiply_blocks.
_STARTS = {
    ("float16", 4): (17, 1),
    ("float32", 4): (13, 1),
    ("float16", 8): (13, 1),
    ("float32", 8): (13, 4),
    ("float16", 16): (13, 1),
    ("float32", 16): (16, 4),
}


def multiply_blocks(
    rows: Numbers, per_row: Numbers, columns: Numbers, b: int, dtype: str, workers: int = 6
) -> Floats:
    """Cycles of a tile that multiplies blocks, which all workers share.

    Args:
        rows: Block rows of the sparse operand on the tile.
        per_row: Blocks of each.
        columns: Columns of the dense operand that a worker has.
        b: Side of a block: 4, 8 or 16.
        dtype: `"float16"` or `"float32"`.
        workers: Workers of the tile, which take turns.

    Returns:
        Cycles of the tile.

    Examples:
        >>> float(multiply_blocks(1, 2, 3, 16, "float16"))
        615.0
    """
    start, row = _STARTS[dtype, b]
    load = 16 + b * b * BYTES[dtype] / 8
    block = load + workers * _columns(np.asarray(columns, np.float64), b, dtype)
    return np.asarray(
        30 + workers * start + rows * (workers * row + 17 + per_row * block), np.float64
    )


def _columns(n: Floats, b: int, dtype: str) -> Floats:
    """Cycles of a worker that passes n columns through one block."""
    if dtype == "float16":
        if b == 4:
            return np.where(n <= 2, 7 + n, 13 + n)
        return 14 + 2 * (n - 1) if b == 8 else 19 + 4 * (n - 1)
    if b == 4:
        return 12 + 4 * (n - 1)
    return 19 + 8 * (n - 1) if b == 8 else np.where(n == 1, 58, 2 * (37 + 8 * (n - 1)))


def zero_partials(outputs: Numbers, b: int, dtype: str, machine: MachineSpec) -> Floats:
    """Cycles to clear partial sums; only float32 blocks of 8 and 16 need it.

    Args:
        outputs: Partial sums of the tile.
        b: Side of a block.
        dtype: `"float16"` or `"float32"`.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> float(zero_partials(600, 8, "float32", preset("bow-ipu")))
        372.0
    """
    if dtype == "float16" or b <= 4:
        return np.zeros_like(np.asarray(outputs, np.float64))
    W = machine.workers
    return (12 + np.ceil(np.asarray(outputs) * BYTES[dtype] / 8 / W)) * float(W)


def partials_exchange(outputs: Numbers, factor: Numbers, z: int, machine: MachineSpec) -> Floats:
    """Cycles to bring partial sums to the tiles that add them.

    Args:
        outputs: Partial sums of the tile.
        factor: Tiles that hold sums of the same outputs.
        z: Bytes of an element.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> float(partials_exchange(24576, 10, 2, preset("bow-ipu")))
        11060.0
    """
    away = np.asarray(outputs, np.float64) * z * (np.asarray(factor) - 1) / factor
    return np.ceil(away / machine.exchange_bytes_per_cycle)


def reduction(outputs: Numbers, factor: Numbers, dtype: str, machine: MachineSpec) -> Floats:
    """Cycles to add partial sums.

    Args:
        outputs: Partial sums that the tile made; it adds up its share of the outputs.
        factor: Partial sums of each output.
        dtype: `"float16"` or `"float32"`, of partial sums and result.
        machine: The machine.

    Returns:
        Cycles; none where nothing needs adding.

    Examples:
        >>> from sparsetile.machine import preset
        >>> float(reduction(24576, 10, "float16", preset("bow-ipu")))
        7272.0
    """
    W = machine.workers
    width, start = (8, 8) if dtype == "float16" else (4, 5)
    loops = np.ceil(np.ceil(np.asarray(outputs) / factor / W) / width)
    cycles = (16 + loops * (start + 5 + np.asarray(factor))) * W
    return np.where(np.asarray(factor) > 1, cycles, 0.0)


def placement(outputs: int, z: int, machine: MachineSpec) -> float:
    """Cycles to bring the result where the caller wants it, at a byte a cycle.

    Args:
        outputs: Elements of the whole result.
        z: Bytes of an element.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> placement(4096 * 1024, 2, preset("bow-ipu"))
        5699.0
    """
    return float(-(-outputs * z // machine.tiles))


def uneven_tiles(multiply: Numbers) -> Floats:
    """Cycles that the busiest tile multiplies longer than the planner's estimate of it.

    Not in the planner, which reckons with a random pattern spread evenly. Real rows and columns
    differ; the share is fitted to the published speed-ups.

    Args:
        multiply: Cycles that the planner expects for the multiplication.

    Returns:
        Cycles.

    Examples:
        >>> float(uneven_tiles(1000))
        100.0
    """
    return _UNEVEN * np.asarray(multiply, np.float64)


def rearrangement(elements: int, z: int, machine: MachineSpec) -> float:
    """Cycles to bring one dense matrix from the caller's layout into the plan's, or back.

    Not in the planner. The pieces that a tile copies get longer as its share grows, so this grows
    slower than the bytes; exponent and factor are fitted to the published speed-ups.

    Args:
        elements: Elements of the whole matrix.
        z: Bytes of an element.
        machine: The machine.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> round(rearrangement(4096 * 1024, 2, preset("bow-ipu")))
        8742
    """
    return float(_REARRANGE * (elements * z / machine.tiles) ** (2 / 3))


def value_order(values: Numbers, b: int) -> Floats:
    """Cycles to bring single numbers into the order in which workers read them.

    Not in the planner, and fitted: published figures of 1×1 with few columns show one to two cycles
    for each non-zero beyond the planner. Blocks move whole and show nothing of the kind.

    Args:
        values: Non-zeros of the tile, before they are copied to the intervals that share them.
        b: Side of a block.

    Returns:
        Cycles.

    Examples:
        >>> float(value_order(100, 16))
        0.0
    """
    return np.asarray(values, np.float64) * (_REORDER if b == 1 else 0.0)
