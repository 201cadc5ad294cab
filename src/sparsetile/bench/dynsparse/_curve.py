"""A line through measured points in log-log, read in both directions."""

from collections.abc import Sequence
from math import exp, log


def loss_at(points: Sequence[tuple[float, float]], x: float) -> float:
    """Read the loss of a line at some cost.

    Args:
        points: Costs and losses, two at least; beyond the ends the outer pieces go on.
        x: The cost.

    Returns:
        The loss; straight between the points in log cost and log loss, as Dietrich et al. (2021)
        interpolate their matched dense model.

    Examples:
        >>> round(loss_at([(2.617e9, 2.614), (10.07e9, 2.310)], 8.33e9), 3)
        2.351
    """
    return _read(sorted(points), x)


def cost_at(points: Sequence[tuple[float, float]], loss: float) -> float:
    """Read the cost at which a line has some loss.

    Args:
        points: Costs and losses; losses fall with costs.
        loss: The loss.

    Returns:
        The cost; infinite if the line does not fall where it would be read.

    Examples:
        >>> f"{cost_at([(2.617e9, 2.614), (10.07e9, 2.310)], 2.311):.3g}"
        '1e+10'
    """
    turned = sorted((y, x) for x, y in points)
    costs = [x for _, x in turned]
    if len({y for y, _ in turned}) < len(turned) or costs != sorted(costs, reverse=True):
        return float("inf")
    return _read(turned, loss)


def within(points: Sequence[tuple[float, float]], loss: float) -> bool:
    """Whether a loss lies between those of the points, so that nothing is extrapolated."""
    losses = [y for _, y in points]
    return min(losses) <= loss <= max(losses)


def _read(points: Sequence[tuple[float, float]], x: float) -> float:
    right = next((i for i, (at, _) in enumerate(points) if at >= x), len(points) - 1)
    right = max(right, 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    share = (log(x) - log(x0)) / (log(x1) - log(x0))
    return exp(log(y0) + share * (log(y1) - log(y0)))
