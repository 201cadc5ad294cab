"""Cycles of the dynamic programs that work on single numbers.

The figures are those that the planner of Graphcore's popsparse library (poplibs) uses; it shares a
tile's time among workers in turn, so that a tile takes `workers` times the cycles of its slowest
worker, and a supervisor's cycles on top. All functions take numbers or arrays alike.
"""

import numpy as np

from sparsetile.plan._units import Numbers

# Fixed cycles, cycles of a subgroup looked at in vain in a bucket without the tile's own, of one
# looked at in a bucket with the tile's own, and of starting on that.
_SUPERVISOR = {
    "Forward": (30, 32, 47, 46),
    "GradA": (30, 32, 46, 46),
    "Transpose": (30, 32, 44, 68),
    "GradW": (37 + 38, 0, 26, 0),
}

# By width z: (start, row, per entry); then (start, row, constants of the parts) of other widths.
_HALF = {
    "Forward": ((28, 15, 3), (30, 11, 2), (33, 12), (16, 13, 11)),
    "GradA": ((26, 15, 3), (28, 11, 2), (32, 11), (14, 13, 10)),
}
_FLOAT = {
    "Forward": ((25, 13, 3), (27, 11, 2), (30, 13), (12, 8, 8)),
    "GradA": ((23, 13, 3), (25, 11, 2), (33, 13), (10, 8, 8)),
}


def element_supervisor(method: str, foreign: Numbers, own: Numbers, before: Numbers) -> Numbers:
    """Supervisor's cycles of one call: it looks for the tile's own subgroups (poplibs).

    Args:
        method: `"Forward"`, `"GradA"`, `"Transpose"` or `"GradW"`.
        foreign: Subgroups in buckets that hold none of the tile's own.
        own: Buckets that hold some of the tile's own.
        before: Foreign subgroups that come before the first own one in such a bucket, on average;
            `(s - 1) / 2` where `s` subgroups of a bucket are in no known order.

    Returns:
        Cycles, to be added once, not once per worker.

    Examples:
        >>> float(element_supervisor("Forward", 2, 1, 0))
        187.0
    """
    fixed, vain, looked, started = _SUPERVISOR[method]
    return fixed + vain * np.asarray(foreign) + own * ((np.asarray(before) + 1) * looked + started)


def _split(method: str, rows: Numbers, per_row: Numbers, z: Numbers, dtype: str) -> Numbers:
    """Cycles of a worker of the element kernels that scale rows of the dense operand and add."""
    z = np.asarray(z)
    if dtype == "float16":
        wide, narrow, (start, row), (a, b, c) = _HALF[method]
        widest, rest = 8, z & 3
        inner = (z // 8 > 0) * (a + z // 8 * 3 * per_row)
        inner = inner + (z & 4 > 0) * (b + 2 * per_row) + (rest > 0) * (c + 2 * rest * per_row)
    else:
        wide, narrow, (start, row), (a, b, c) = _FLOAT[method]
        widest = 4
        inner = (z // 4 > 0) * (a + z // 4 * 3 * per_row)
        inner = inner + (z & 2 > 0) * (b + z // 2 * 2 * per_row) + (z & 1) * (c + 2 * per_row)
        inner = inner + np.where(z & 3, 3, 1)
    other = start + rows * (row + inner)
    one = wide[0] + rows * (wide[1] + wide[2] * np.asarray(per_row))
    half = narrow[0] + rows * (narrow[1] + narrow[2] * np.asarray(per_row))
    return np.where(z == widest, one, np.where(z == widest // 2, half, other))


def element_forward(rows: Numbers, per_row: Numbers, z: Numbers, dtype: str) -> Numbers:
    """Cycles of one worker that multiplies rows of single numbers (poplibs, forward element-wise).

    Args:
        rows: Rows of the worker.
        per_row: Non-zeros of a row, on average.
        z: Columns of the dense operand that the worker computes.
        dtype: `"float16"` or `"float32"`, of the operands.

    Returns:
        Cycles of the worker.

    Examples:
        >>> float(element_forward(2, 3, 8, "float16"))
        76.0
        >>> element_forward(np.array([2, 4]), 3, 4, "float32").tolist()
        [69.0, 113.0]
    """
    return np.asarray(_split("Forward", rows, per_row, z, dtype), np.float64)


def element_grad_a(rows: Numbers, per_row: Numbers, z: Numbers, dtype: str) -> Numbers:
    """Cycles of one worker of the gradient of the input, with buckets of its own (poplibs).

    Args:
        rows: Columns of W (rows of its transpose) of the worker.
        per_row: Non-zeros of each, on average.
        z: Columns of the dense operand that the worker computes.
        dtype: `"float16"` or `"float32"`, of the operands.

    Returns:
        Cycles of the worker.

    Examples:
        >>> float(element_grad_a(2, 3, 8, "float16"))
        74.0
    """
    return np.asarray(_split("GradA", rows, per_row, z, dtype), np.float64)


def element_transpose(
    rows: Numbers, per_row: Numbers, z: Numbers, dtype: str, workers: int = 6
) -> Numbers:
    """Cycles of one worker of the gradient of the input, from the forward buckets (poplibs).

    Every worker sees all rows and takes its share of each row's non-zeros.

    Args:
        rows: Rows of the tile.
        per_row: Non-zeros of a row.
        z: Columns of the dense operand on the tile.
        dtype: `"float16"` or `"float32"`, of the operands.
        workers: Workers of the tile, which share the non-zeros of a row.

    Returns:
        Cycles of the worker.

    Examples:
        >>> float(element_transpose(2, 12, 4, "float16"))
        90.0
    """
    start, row, entry = transpose_parts(z, dtype)
    share = np.ceil(np.asarray(per_row) / workers)
    return np.asarray(start + rows * (row + entry * share), np.float64)


def transpose_parts(z: Numbers, dtype: str) -> tuple[Numbers, Numbers, Numbers]:
    """What `element_transpose` is made of, for rows of unequal lengths.

    Args:
        z: Columns of the dense operand on the tile.
        dtype: `"float16"` or `"float32"`, of the operands.

    Returns:
        Cycles at the start, for each row, and for each non-zero that a worker takes.

    Examples:
        >>> [float(part) for part in transpose_parts(4, "float16")]
        [20.0, 21.0, 7.0]
    """
    z = np.asarray(z)
    if dtype == "float16":
        rest = z & 3
        entry = (z // 4 > 0) * (2 + 5 * (z // 4)) + (rest > 0) * (5 + 3 * rest)
        start = np.where((z == 8) | (z == 4), 20, 26)
        row = np.where(z == 8, 18, np.where(z == 4, 21, 22 + 8))
        return start, row, np.where(z == 8, 10, np.where(z == 4, 7, entry))
    entry = (z // 2 > 0) * (2 + 3 * (z // 2)) + (z & 1) * 4
    return np.full_like(z, 23), np.full_like(z, 24 + 8), entry


def element_grad_w(rows: Numbers, per_row: Numbers, z: Numbers, dtype: str) -> Numbers:
    """Cycles of one worker of the gradient of the weight at single numbers (poplibs).

    Args:
        rows: Rows of the worker.
        per_row: Non-zeros of a row, on average.
        z: Columns of the dense operands on the tile, over which it sums.
        dtype: `"float16"` or `"float32"`, of the operands.

    Returns:
        Cycles of the worker.

    Examples:
        >>> float(element_grad_w(2, 3, 8, "float16"))
        82.0
    """
    z, per_row = np.asarray(z), np.asarray(per_row)
    if dtype == "float16":
        wide, narrow, (start, row), widest = (30, 11, 5), (32, 10, 4), (35, 8), 8
        entry = 11 + z // 4 + 3 * (z & 2 > 0) + 4 * (z & 1)
    else:
        wide, narrow, (start, row), widest = (30, 9, 5), (32, 7, 4), (34, 9), 4
        entry = 9 + z // 2 + (z & 1)
    cycles = start + rows * (row + entry * per_row)
    cycles = np.where(
        z == widest // 2, narrow[0] + rows * (narrow[1] + narrow[2] * per_row), cycles
    )
    cycles = np.where(z == widest, wide[0] + rows * (wide[1] + wide[2] * per_row), cycles)
    return np.asarray(cycles, np.float64)


def gather(values: Numbers, dtype: str, workers: int = 6) -> Numbers:
    """Cycles of a tile that gathers a bucket's values in another order (poplibs).

    Args:
        values: Numbers gathered.
        dtype: `"float16"` or `"float32"`.
        workers: Workers of the tile.

    Returns:
        Cycles of the tile, the supervisor's included.

    Examples:
        >>> float(gather(48, "float32"))
        240.0
    """
    values = np.asarray(values)
    width, first, each = (2, 5, 3) if dtype == "float32" else (4, 8, 5)
    vectors = -(-(values // width) // workers)
    if dtype == "float32":
        rest = 5 * (values & 1)
    else:
        rest = np.select([values & 3 == 0, values & 3 == 3], [0, 14], 10)
    body = np.where(vectors > 0, first + (vectors - 1) * each, 0)
    most = np.maximum(body, body + rest - each * (vectors > 0))
    return np.asarray(18 + (23 + most) * workers, np.float64)
