"""Sets of block positions, one bit each."""

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


def no_bits(size: int) -> UInt8[Tensor, " bytes"]:
    """Make room for `size` positions, none of them in the set.

    Args:
        size: Number of positions.

    Returns:
        Zero bytes on the CPU, eight positions in each.

    Examples:
        >>> no_bits(9)
        tensor([0, 0], dtype=torch.uint8)
    """
    return torch.zeros(-(-size // 8), dtype=torch.uint8, device="cpu")


def set_bits_(bits: UInt8[Tensor, " bytes"], positions: Int64[Tensor, " n"]) -> None:
    """Put different positions into a set.

    Args:
        bits: The set; position `p` is bit `p % 8` of byte `p // 8`.
        positions: Positions, each at most once.

    Examples:
        >>> bits = no_bits(9)
        >>> set_bits_(bits, torch.tensor([0, 1, 8]))
        >>> bits
        tensor([3, 1], dtype=torch.uint8)
    """
    byte, bit = positions // 8, positions % 8
    for i in range(8):  # no byte twice in one write
        at = byte[bit == i]
        bits[at] = bits[at] | (1 << i)


def count_bits(bits: UInt8[Tensor, " bytes"]) -> int:
    """Count the positions in a set.

    Args:
        bits: The set.

    Returns:
        How many there are.

    Examples:
        >>> count_bits(torch.tensor([3, 1], dtype=torch.uint8))
        3
    """
    times = torch.bincount(bits, minlength=256).tolist()
    return sum(n * value.bit_count() for value, n in enumerate(times))
