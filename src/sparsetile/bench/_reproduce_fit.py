"""The power law that PopSparse fits to speed-ups, fitted to ours in the same way."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy import ndarray

_STEPS = 200


class Law(NamedTuple):
    """`factor · m^m · density^density · blocksize^blocksize`."""

    factor: float
    m: float
    density: float
    blocksize: float

    def at(self, m: float, density: float, blocksize: float) -> float:
        """The speed-up that the law gives."""
        power: float = m**self.m * density**self.density * blocksize**self.blocksize
        return self.factor * power


def fit_law(points: Sequence[tuple[float, float, float, float]]) -> Law:
    """Fit a power law by least squares on the speed-ups themselves, not on their logarithms.

    Gauss-Newton from the straight line through the logarithms, with steps halved until they help.

    Args:
        points: (m, density, block size, speed-up); at least four.

    Returns:
        The law.

    Examples:
        >>> law = Law(0.0013, 0.59, -0.54, 0.5)
        >>> sizes = [(m, d, b) for m in (512, 4096) for d in (0.25, 0.125) for b in (1.0, 16.0)]
        >>> [round(f, 4) for f in fit_law([(*size, law.at(*size)) for size in sizes])]
        [0.0013, 0.59, -0.54, 0.5]
    """
    data = np.array(points, dtype=np.float64)
    X = np.column_stack([np.ones(len(data)), np.log(data[:, :3])])
    y = data[:, 3]
    w = np.linalg.lstsq(X, np.log(y), rcond=None)[0]
    for _ in range(_STEPS):
        law = np.exp(X @ w)
        step = np.linalg.lstsq(X * law[:, None], y - law, rcond=None)[0]
        while _error(X, y, w + step) > _error(X, y, w) and np.abs(step).max() > 1e-12:
            step = step / 2
        w = w + step
        if np.abs(step).max() < 1e-10:
            break
    return Law(float(np.exp(w[0])), float(w[1]), float(w[2]), float(w[3]))


def _error(
    X: Float64[ndarray, "points 4"], y: Float64[ndarray, " points"], w: Float64[ndarray, " 4"]
) -> float:
    return float(((np.exp(X @ w) - y) ** 2).sum())
