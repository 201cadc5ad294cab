"""Which blocks to drop, and where to grow new ones."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from sparsetile.nn import Linear
from sparsetile.train._check import check_layer, checked_int


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

    Raises:
        TypeError: If it is no sparse layer.

    Examples:
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> block_l1(layer).item() == layer.values.abs().sum().item()
        True
    """
    check_layer(layer)
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

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If fewer positions than `count` are free.

    Examples:
        >>> layer = Linear(4, 4, blocksize=2, density=0.5)
        >>> uniform(layer, torch.tensor([0, 3]), 2, torch.Generator())
        tensor([1, 2])
    """
    check_layer(layer)
    if not isinstance(taken, Tensor) or taken.dtype != torch.int64 or taken.ndim != 1:
        raise TypeError(f"taken must be a vector of int64 positions, got {taken!r}")
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")
    rows, columns = layer.pattern.grid
    free = rows * columns - len(taken)
    count = checked_int("count", count, least=0, most=free)
    ranks = _distinct(free, count, generator).to(taken.device)
    # The free position of rank j lies behind every taken one with at most j free before it.
    before = taken - torch.arange(len(taken), device=taken.device)
    return ranks + torch.searchsorted(before, ranks, right=True)


def _distinct(limit: int, count: int, generator: torch.Generator) -> Tensor:
    """A uniformly random set of `count` different integers below `limit`, ascending.

    The memory it takes is that of some `count` numbers, however large `limit` is.
    """
    if 2 * count > limit:
        rest = torch.ones(limit, dtype=torch.bool)
        rest[_distinct(limit, limit - count, generator)] = False
        return rest.nonzero()[:, 0]
    # No number is favoured: what a round does depends only on how many are still missing.
    chosen = torch.empty(0, dtype=torch.int64)
    while len(chosen) < count:
        more = torch.randint(limit, (count - len(chosen),), generator=generator)
        chosen = torch.cat([chosen, more]).unique()
    return chosen
