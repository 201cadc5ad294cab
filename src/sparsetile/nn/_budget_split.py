"""Splits a number of blocks over layers, exactly."""

import math
from bisect import bisect_left
from collections.abc import Sequence


def total_blocks(positions: Sequence[int], density: float) -> int:
    """How many blocks a density gives layers together.

    Args:
        positions: Block positions of each layer.
        density: Share of all positions, in (0, 1].

    Returns:
        The whole number next to `density` times all positions, or one block for each layer that
        has room for one if that is more.

    Examples:
        >>> total_blocks([64, 64, 16], 0.1), total_blocks([64, 64, 16], 0.01)
        (14, 3)
    """
    return max(round(density * sum(positions)), sum(1 for most in positions if most))


def split(total: int, wanted: Sequence[float], positions: Sequence[int]) -> list[int]:
    """Split blocks over layers in given proportions.

    No layer gets more than it has positions, and each gets one at least; what these bounds take
    or give is shared by the others, in their proportions. Shares are rounded down, and the largest
    remainders get what is left (the first layer among equals), so the sum is exact.

    Args:
        total: Blocks to split; at least one for each layer, at most all positions.
        wanted: Proportions, above zero.
        positions: Block positions of each layer.

    Returns:
        Blocks of each layer, less than one away from its share.

    Examples:
        >>> split(13, [1, 1], [64, 64]), split(70, [3, 1], [40, 64]), split(12, [1, 99], [9, 20])
        ([7, 6], [40, 30], [1, 11])
    """
    least = [min(1, most) for most in positions]

    def shares(scale: float) -> list[float]:
        return [
            min(max(scale * want, low), high)
            for want, low, high in zip(wanted, least, positions, strict=True)
        ]

    # The sum of the shares grows with the scale, in straight lines between these.
    edges = zip(wanted, least, positions, strict=True)
    bends = sorted({side / want for want, *sides in edges for side in sides})
    at = bisect_left(bends, float(total), key=lambda scale: math.fsum(shares(scale)))
    scale = bends[min(at, len(bends) - 1)]
    if 0 < at < len(bends):
        low, high = bends[at - 1], bends[at]
        below, above = math.fsum(shares(low)), math.fsum(shares(high))
        scale = low + (high - low) * (total - below) / (above - below)
    exact = shares(scale)
    counts = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts
