"""Which blocks to drop, and where to grow new ones."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from sparsetile.nn import Linear


@runtime_checkable
class Drop(Protocol):
    """Scores the stored blocks of a layer; those with the lowest scores are dropped."""

    def __call__(self, layer: Linear) -> Float[Tensor, " nnzb"]:
        """Score every stored block."""
        ...


@runtime_checkable
class Grow(Protocol):
    """Chooses where a layer gets new blocks.

    A position is `row * kb + column` in the grid of blocks. `taken` lists, ascending, the
    positions that cannot be chosen: the survivors and those dropped just now.
    """

    def __call__(
        self,
        layer: Linear,
        taken: Int64[Tensor, " nnzb"],
        count: int,
        generator: torch.Generator,
    ) -> Int64[Tensor, " count"]:
        """Choose `count` different positions that are not taken."""
        ...


@torch.no_grad()
def block_l1(layer: Linear) -> Float[Tensor, " nnzb"]:
    """Score blocks by the sum of magnitudes, padding left out.

    Args:
        layer: A sparse layer.

    Returns:
        One score for each stored block, in float32 or better.

    Examples:
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> block_l1(layer).item() == layer.values.abs().sum().item()
        True
    """
    values = layer.values.detach()
    dtype = torch.promote_types(values.dtype, torch.float32)
    magnitudes = values.abs()
    (r, c), (m, k) = layer.blocksize, (layer.out_features, layer.in_features)
    if m % r or k % c:
        pattern = layer.pattern
        if m % r:
            magnitudes[pattern.row_indices == m // r, m % r :] = 0
        if k % c:
            magnitudes[pattern.col_indices == k // c, :, k % c :] = 0
    return magnitudes.sum(dim=(1, 2), dtype=dtype)


def uniform(
    layer: Linear,
    taken: Int64[Tensor, " nnzb"],
    count: int,
    generator: torch.Generator,
) -> Int64[Tensor, " count"]:
    """Choose free positions with equal chances.

    Args:
        layer: A sparse layer.
        taken: Positions that cannot be chosen, ascending.
        count: How many to choose; at most as many as are free.
        generator: A generator on the CPU, so that every device chooses alike.

    Returns:
        Different free positions, ascending.

    Examples:
        >>> layer = Linear(4, 4, blocksize=2, density=0.5)
        >>> uniform(layer, torch.tensor([0, 3]), 2, torch.Generator())
        tensor([1, 2])
    """
    rows, columns = layer.pattern.grid
    ranks = _distinct(rows * columns - len(taken), count, generator).to(taken.device)
    # The free position of rank j lies behind every taken one with at most j free before it.
    before = taken - torch.arange(len(taken), device=taken.device)
    return ranks + torch.searchsorted(before, ranks, right=True)


def _distinct(limit: int, count: int, generator: torch.Generator) -> Tensor:
    """A uniformly random set of `count` different integers below `limit`, ascending."""
    if 2 * count > limit:
        return (~_marked(limit, limit - count, generator)).nonzero()[:, 0]
    return _marked(limit, count, generator).nonzero()[:, 0]


def _marked(limit: int, count: int, generator: torch.Generator) -> Tensor:
    """A mask of `limit` elements with `count` of them true; at most half."""
    # No number is favoured: what a round does depends only on how many are still missing.
    mask, missing = torch.zeros(limit, dtype=torch.bool), count
    while missing:
        mask[torch.randint(limit, (missing,), generator=generator)] = True
        missing = count - int(mask.count_nonzero())
    return mask
