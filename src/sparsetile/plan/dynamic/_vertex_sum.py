"""Cycles of setting partial sums to zero, adding them up and casting them.

The figures are those that the planner of Graphcore's popsparse library (poplibs) uses.
"""

import numpy as np

from sparsetile.plan._units import Numbers


def zero_partials(sums: Numbers, partials: str, block: bool, workers: int = 6) -> Numbers:
    """Cycles of a tile that sets its partial sums to zero, as poplibs' planner meant to count them.

    Args:
        sums: Partial sums of the tile.
        partials: `"float16"` or `"float32"`.
        block: Whether blocks rather than single numbers are multiplied.
        workers: Workers of the tile, which share the sums.

    Returns:
        Cycles of the tile.

    Examples:
        >>> float(zero_partials(96, "float32", block=True))
        126.0
    """
    share = np.ceil(np.asarray(sums) / workers)
    vectors = np.ceil(share / (2 if partials == "float32" else 4))
    return np.asarray(workers * ((3 if block else 5) + (share > 0) * (10 + vectors)), np.float64)


def zero_partials_planned(sums: Numbers, workers: int = 6) -> Numbers:
    """Cycles of setting partial sums to zero, as poplibs' planner does count them.

    Its estimate drops what it computes and gives the sums of a worker times the workers: about a
    cycle for each sum of the tile. Plans are made with it.

    Args:
        sums: Partial sums of the tile.
        workers: Workers of the tile.

    Returns:
        Cycles of the tile.

    Examples:
        >>> float(zero_partials_planned(100))
        102.0
    """
    return np.asarray(np.ceil(np.asarray(sums) / workers) * workers, np.float64)


def cast(sums: Numbers, partials: str, dtype: str, workers: int = 6) -> Numbers:
    """Cycles of a tile that casts partial sums to the dtype of the result (poplibs).

    Args:
        sums: Partial sums of the tile.
        partials: `"float16"` or `"float32"`, what is read.
        dtype: `"float16"` or `"float32"`, what is written.
        workers: Workers of the tile.

    Returns:
        Cycles of the tile.

    Examples:
        >>> float(cast(96, "float32", "float16"))
        204.0
    """
    share = np.ceil(np.asarray(sums) / workers)
    narrower = 2 if "float32" in (partials, dtype) else 4
    return np.asarray((np.ceil(share / narrower) + 26) * workers, np.float64)


def reduce(
    outputs: Numbers, depth: Numbers, partials: str, dtype: str, workers: int = 6
) -> Numbers:
    """Cycles of a tile that adds up partial sums (poplibs).

    Args:
        outputs: Sums wanted of the tile.
        depth: Partial sums of each.
        partials: `"float16"` or `"float32"`, what is read.
        dtype: `"float16"` or `"float32"`, what is written.
        workers: Workers of the tile.

    Returns:
        Cycles of the tile.

    Examples:
        >>> float(reduce(48, 4, "float32", "float16"))
        408.0
    """
    outputs, depth = np.asarray(outputs), np.asarray(depth)
    width = 4 if partials == "float32" else 8
    final = {"float32": {"float32": 7, "float16": 6}, "float16": {"float16": 8, "float32": 9}}
    loops = outputs // width
    for bit in (1, 2, 4)[: 2 if width == 4 else 3]:
        loops = loops + (outputs & bit > 0)
    some = loops % workers > 0
    short = some & (outputs % width > 0)
    turns = loops // workers + (some & ~short)
    rest = short * (2 * depth + (13 if width == 4 else 11))
    each = 3 * depth + final[partials][dtype]
    return np.asarray((32 + turns * each + rest) * workers, np.float64)
