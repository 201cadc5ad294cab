"""Several stored tensors that together are one weight."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sparsetile.matrix import BSR, pattern_of
from sparsetile.models._read_stored import Stored, key_of
from sparsetile.models._say import refusal

_AGAIN = "the file is damaged: get it again, or write it again with the library it is from"
_NATURAL = (32, 16, 8, 4)


@dataclass(frozen=True)
class Parts:
    """The tensors of one weight.

    Attributes:
        stored: The file.
        base: What their names begin with.
    """

    stored: Stored
    base: str

    def has(self, suffix: str) -> bool:
        """Whether there is such a part."""
        return self.base + suffix in self.stored.shapes

    def shape(self, suffix: str) -> tuple[int, ...]:
        """Shape of a part, unread."""
        return self.stored.shapes[self.base + suffix]

    def dtype(self, suffix: str) -> torch.dtype:
        """Type of a part, unread."""
        return self.stored.dtypes[self.base + suffix]

    def read(self, suffix: str) -> Tensor:
        """Read a part."""
        found = self.stored.read(self.base + suffix)
        return found.to_dense() if isinstance(found, BSR) else found

    def index(self, suffix: str) -> Tensor:
        """Read a part that indexes.

        Raises:
            ValueError: If it holds no integers.
        """
        found = self.read(suffix)
        if found.is_floating_point() or found.is_complex() or found.dtype == torch.bool:
            raise self.wrong(suffix, f"{found.dtype}", "integers")
        return found.long()

    def wrong(self, suffix: str, got: object, allowed: str) -> ValueError:
        """Make the error for a part that does not fit the others."""
        asked = key_of(self.stored.path, self.base + suffix)
        return refusal(asked, got=got, allowed=allowed, fix=_AGAIN)


def natural_blocksize(mask: Tensor) -> int:
    """Find the largest blocks that a mask keeps or drops whole.

    Args:
        mask: True where a value is kept `[m, k]`.

    Returns:
        32, 16, 8, 4 or 1.

    Examples:
        >>> natural_blocksize(torch.eye(4).repeat_interleave(8, 0).repeat_interleave(8, 1) > 0)
        8
        >>> natural_blocksize(torch.eye(8) > 0)
        1
    """
    kept = int(mask.sum())
    m, k = mask.shape
    for side in _NATURAL:
        if side <= min(m, k) and kept < m * k:
            pattern = pattern_of(mask, side)
            if round(pattern.density * m * k) == kept:
                return side
    return 1


def masked(weight: Tensor, mask: Tensor) -> Tensor | BSR:
    """Store what a mask keeps, in the largest blocks that hold nothing else.

    Args:
        weight: The values; what the mask drops is not looked at.
        mask: True where a value is kept, of the same shape.

    Returns:
        A BSR for a matrix, and for other tensors a dense one with zeros.

    Examples:
        >>> masked(torch.ones(8, 8), torch.eye(8) > 0)
        BSR(8×8, blocksize=1, density=0.12, 8 blocks, float32, cpu)
    """
    # Not a product: where the mask drops infinity or NaN, nothing is left of it.
    plain = torch.where(mask, weight, weight.new_zeros(()))
    if plain.ndim != 2 or not min(plain.shape):
        return plain
    return BSR.from_dense(plain, pattern=pattern_of(mask, natural_blocksize(mask)))
