"""Cuts consecutive rows into bands of near equal work."""

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

_MOST_PARTS = 2**20  # far more than there are threads or tiles; each takes a step of Python
_PROBES = 16  # weights tried in one pass: a numpy call costs the same for one and for a few


def balanced_bands(counts: npt.ArrayLike, parts: int) -> Int64[np.ndarray, " bounds"]:
    """Cut rows into consecutive bands whose heaviest is as light as it can be.

    PopSparse's static partitioner cuts the columns of a matrix into bands of unequal width and
    about equal non-zeros, by walking along until a band has its share. This finds the best such
    cut: it searches for the least weight at which a greedy walk needs no more than `parts` bands.
    Of the cuts that reach that weight it takes one near to equal shares. Works for rows and
    columns alike.

    Args:
        counts: Work of each row, such as its number of stored blocks; `[rows]`, whole numbers.
        parts: Number of bands, at most 2**20. Some are empty when there are more parts than rows.

    Returns:
        Where the bands begin and end, `[parts + 1]`: band `i` holds the rows from `bounds[i]`
        up to but not including `bounds[i + 1]`.

    Raises:
        TypeError: If the counts or parts are not whole numbers.
        ValueError: If a count is negative, the counts are not one row of numbers, or there are no
            parts or too many.

    Examples:
        >>> balanced_bands([9, 1, 1, 1, 8, 2], parts=3)
        array([0, 1, 4, 6])
    """
    weights = _checked(counts)
    if not isinstance(parts, (int, np.integer)):
        raise TypeError(f"balanced_bands got parts={parts!r}; give a whole number")
    if not 1 <= parts <= _MOST_PARTS:
        raise ValueError(f"balanced_bands got parts={parts}; give 1 or more, {_MOST_PARTS} at most")
    ends = np.concatenate(([0], np.cumsum(weights)))
    heaviest = _least_heaviest(ends, parts, int(weights.max(initial=0)))
    return _even_cut(ends, parts, heaviest)


def imbalance(counts: npt.ArrayLike, bounds: npt.ArrayLike) -> float:
    """How much heavier the heaviest band is than the mean of all bands.

    Args:
        counts: Work of each row; `[rows]`, whole numbers.
        bounds: Where the bands begin and end, as `balanced_bands` returns it; `[parts + 1]`.

    Returns:
        1 for perfect balance, and for no work at all; at most the number of bands.

    Raises:
        TypeError: If the counts are not whole numbers.
        ValueError: If the bands do not cover the rows in order.

    Examples:
        >>> imbalance([9, 1, 1, 1, 8, 2], [0, 2, 4, 6])
        1.3636363636363635
    """
    weights = _checked(counts)
    cuts = np.asarray(bounds)
    rows = len(weights)
    is_row = cuts.ndim == 1 and len(cuts) >= 2 and np.issubdtype(cuts.dtype, np.integer)
    if not is_row or cuts[0] != 0 or cuts[-1] != rows or (np.diff(cuts) < 0).any():
        raise ValueError(
            f"imbalance got bounds {cuts.tolist()} for {rows} rows; "
            f"give ascending whole numbers from 0 to {rows}, as balanced_bands returns them"
        )
    ends = np.concatenate(([0], np.cumsum(weights)))
    total = int(ends[-1])
    bands = np.diff(ends[cuts])
    return float(bands.max() * len(bands) / total) if total else 1.0


def _checked(counts: npt.ArrayLike) -> Int64[np.ndarray, " rows"]:
    weights = np.asarray(counts)
    if weights.size == 0 and weights.ndim == 1:
        return np.zeros(0, np.int64)
    if not np.issubdtype(weights.dtype, np.integer):
        raise TypeError(f"counts are {weights.dtype}; give whole numbers, one for each row")
    if weights.ndim != 1:
        raise ValueError(f"counts have shape {weights.shape}; give one number for each row")
    if weights.min() < 0:
        raise ValueError(f"counts[{weights.argmin()}] is {weights.min()}; give 0 or more")
    return weights.astype(np.int64)


def _least_heaviest(ends: Int64[np.ndarray, " ends"], parts: int, widest: int) -> int:
    total = int(ends[-1])
    low = max(widest, -(-total // parts))  # no cut is lighter than a row or an equal share
    high = total // parts + widest  # a greedy walk always fits: a band overruns by under one row
    while low < high:
        tried = np.unique(np.linspace(low, high - 1, _PROBES).astype(np.int64))
        reached = np.zeros(len(tried), np.int64)
        for _ in range(parts):
            reached = _furthest(ends, reached, tried)
        fits = reached == len(ends) - 1
        first = int(fits.argmax()) if fits.any() else len(tried)
        high = int(tried[first]) if first < len(tried) else high
        low = int(tried[first - 1]) + 1 if first else low
    return low


def _even_cut(
    ends: Int64[np.ndarray, " ends"], parts: int, heaviest: int
) -> Int64[np.ndarray, " bounds"]:
    rows, total = len(ends) - 1, int(ends[-1])
    # The earliest place each bound may have, for the bands behind it to hold what is left.
    earliest = np.full(parts + 1, rows, np.int64)
    for part in range(parts - 1, -1, -1):
        earliest[part] = np.searchsorted(ends, ends[earliest[part + 1]] - heaviest)
    # An equal share that ends inside a row is moved to the nearer of the row's two ends.
    wanted = np.arange(parts + 1) * total / parts
    after = np.searchsorted(ends, wanted)
    before = np.maximum(after - 1, 0)
    shares = np.where(wanted - ends[before] < ends[after] - wanted, before, after)
    bounds = np.zeros(parts + 1, np.int64)
    for part in range(1, parts + 1):
        latest = int(_furthest(ends, bounds[part - 1 : part], np.array([heaviest]))[0])
        bounds[part] = min(max(shares[part], earliest[part], bounds[part - 1]), latest)
    bounds[parts] = rows
    return bounds


def _furthest(
    ends: Int64[np.ndarray, " ends"],
    start: Int64[np.ndarray, " tried"],
    weight: Int64[np.ndarray, " tried"],
) -> Int64[np.ndarray, " tried"]:
    """The last bound that a band from `start` of at most `weight` can have."""
    return np.searchsorted(ends, ends[start] + weight, side="right") - 1
