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
    byte = positions >> 3
    bit = (1 << (positions & 7)).to(torch.uint8)
    # Of bits that are missing and different, the sum is the union; a byte may come several times.
    bits.index_add_(0, byte, bit & ~bits[byte])


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
