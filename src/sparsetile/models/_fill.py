"""Which blocks suit a matrix full of zeros: live shares, and a rule for the cost."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from sparsetile.matrix import block_fill

SIDES = (1, 4, 8, 16, 32)

# Time for one stored value over time for one value of torch's dense product: the inverse of
# speed-up × density at density 1/8 with 1024 rows, of the tables on the page "When does sparse
# win?". What was not measured (bfloat16 in 8×8, float16 in 8×8 and 32×32) lies between its
# neighbours.
_FLOAT32 = {1: 2.3, 4: 1.2, 8: 1.13, 16: 1.13, 32: 1.13}
_COSTS: Mapping[torch.dtype, Mapping[int, float]] = {
    torch.float32: _FLOAT32,
    torch.float64: _FLOAT32,
    torch.float16: {1: 1.9, 4: 1.36, 8: 1.2, 16: 1.07, 32: 1.07},
    torch.bfloat16: {1: 12.7, 4: 9.4, 8: 4.6, 16: 2.2, 32: 2.2},
}


@dataclass(frozen=True)
class Choice:
    """The blocks to store a weight in.

    Attributes:
        blocksize: Side of the blocks, or None to stay dense.
        gain: Estimated time of the dense product over that of the sparse one; 1 for dense.
        why: The reason in words.
    """

    blocksize: int | None
    gain: float
    why: str


def live_shares(nonzero: Bool[Tensor, "m k"], sides: tuple[int, ...] = SIDES) -> dict[int, float]:
    """Measure which share of the blocks holds a non-zero, for several block sizes.

    Args:
        nonzero: True where a value is kept.
        sides: Sides of square blocks.

    Returns:
        The share by side; blocks on a ragged edge count as blocks.

    Examples:
        >>> live_shares(torch.eye(8) > 0, (1, 4))
        {1: 0.125, 4: 0.5}
    """
    if not nonzero.numel():
        return dict.fromkeys(sides, 0.0)
    return {fill.blocksize[0]: fill.share_live for fill in block_fill(nonzero, blocksizes=sides)}


def estimated_gain(share: float, side: int, dtype: torch.dtype) -> float:
    """Estimate how much faster a sparse product is than the dense one.

    Args:
        share: Share of the blocks that is stored.
        side: Side of the blocks.
        dtype: Type of the values.

    Returns:
        Dense time over sparse time; infinite if nothing is stored.

    Examples:
        >>> round(estimated_gain(0.1, 16, torch.float32), 1)
        8.8
    """
    costs = _COSTS.get(dtype, _FLOAT32)
    cost = costs[max(known for known in costs if known <= max(side, 1))]
    return 1 / (share * cost) if share else float("inf")


def stored_bytes(blocks: int, block_rows: int, side: int, dtype: torch.dtype) -> int:
    """Bytes of blocks with their int32 indices.

    Examples:
        >>> stored_bytes(10, 4, 16, torch.float32)
        10300
    """
    return blocks * side * side * dtype.itemsize + 4 * (blocks + block_rows + 1)


def choose(
    shares: Mapping[int, float],
    zeros: float,
    dtype: torch.dtype,
    *,
    min_gain: float,
    only: int | None = None,
) -> Choice:
    """Choose the blocks of the least estimated time, or none.

    Among blocks of equal time those that store fewer values win, then the larger. Blocks must also
    take fewer bytes than the dense weight.

    Args:
        shares: Live share by side, as `live_shares` gives it.
        zeros: Share of the values that is zero.
        dtype: Type of the values.
        min_gain: How many times faster than dense the estimate must be.
        only: The one side allowed, instead of all.

    Returns:
        The choice and its reason.

    Examples:
        >>> choose({1: 0.1, 16: 0.99}, 0.9, torch.float32, min_gain=1.1).why
        '90 % zeros, but 99 % of 16×16 blocks are live: stored as 1×1'
    """
    sides = [side for side in shares if only in (None, side)]
    smaller = [side for side in sides if _bytes_ratio(shares[side], side, dtype) < 1]
    best = max(
        smaller, key=lambda side: (estimated_gain(shares[side], side, dtype), -shares[side], side),
        default=None,
    )  # fmt: skip
    gain = estimated_gain(shares[best], best, dtype) if best else 0.0
    none = f"{percent(zeros)} zeros"
    if best is None or gain < min_gain:
        told = min(sides, key=lambda side: shares[side] * _cost(side, dtype))
        live = f"{percent(shares[told])} of {told}×{told} blocks are live"
        if told == 1:
            live = "single values cost too much"
        return Choice(None, 1.0, f"{none}, but {live}: stays dense")
    large = max(sides)
    if best < large and shares[large] > 2 * shares[best]:
        live = f"but {percent(shares[large])} of {large}×{large} blocks are live"
        return Choice(best, gain, f"{none}, {live}: stored as {best}×{best}")
    live = f"{percent(shares[best])} of {best}×{best} blocks are live"
    return Choice(best, gain, f"{none}, {live}: stored as {best}×{best}")


def percent(share: float) -> str:
    """Say a share in percent, never 0 or 100 unless it is.

    Examples:
        >>> percent(0.9996), percent(1.0), percent(0.125)
        ('99.9 %', '100 %', '12 %')
    """
    text = f"{100 * share:.0f}"
    if text == "100" and share < 1:
        text = f"{min(100 * share, 99.9):.1f}"
    if text == "0" and share > 0:
        text = f"{max(100 * share, 0.1):.1f}"
    return f"{text} %"


def _cost(side: int, dtype: torch.dtype) -> float:
    return 1 / estimated_gain(1.0, side, dtype)


def _bytes_ratio(share: float, side: int, dtype: torch.dtype) -> float:
    one = side * side * dtype.itemsize
    return share * (one + 4) / one
