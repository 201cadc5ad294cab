"""One update of one layer: drop blocks, grow as many, keep everything in order, in place."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.nn import Linear
from sparsetile.train._scores import Drop, Grow


@dataclass(frozen=True)
class Move:
    """Where blocks went away and where new ones came, as positions `row * kb + column`."""

    dropped: Int64[Tensor, " moved"]
    grown: Int64[Tensor, " moved"]


def positions(layer: Linear) -> Int64[Tensor, " nnzb"]:
    """List where a layer stores blocks.

    Args:
        layer: A sparse layer.

    Returns:
        `row * kb + column` of every stored block, ascending.

    Examples:
        >>> positions(Linear(4, 4, blocksize=2, density=1.0))
        tensor([0, 1, 2, 3])
    """
    pattern = layer.pattern
    return pattern.row_indices.long() * pattern.grid[1] + pattern.col_indices


@torch.no_grad()
def move_blocks_(
    layer: Linear,
    count: int,
    *,
    drop: Drop,
    grow: Grow,
    generator: torch.Generator,
    state: Iterable[Tensor] = (),
) -> Move:
    """Drop the weakest blocks of a layer and grow as many elsewhere.

    Survivors keep their values, gradients and optimizer state bit for bit; new blocks have zeros
    in all three. Nothing that survives or was dropped just now is grown. All tensors keep their
    place, shape and canonical order, so compiled graphs and the optimizer go on with them.

    Args:
        layer: The layer to change.
        count: How many blocks to move; fewer move when fewer positions are free.
        drop: Scores the stored blocks; the lowest go, of equal ones the first.
        grow: Chooses the new positions.
        generator: Where `grow` takes its random numbers from.
        state: The optimizer's tensors of the shape of the layer's values.

    Returns:
        What was dropped and what was grown.

    Examples:
        >>> from sparsetile.train._scores import block_l1, uniform
        >>> layer = Linear(64, 64, blocksize=16, density=0.5)
        >>> move = move_blocks_(
        ...     layer, 3, drop=block_l1, grow=uniform, generator=torch.Generator()
        ... )
        >>> len(move.grown), layer.nnzb
        (3, 8)
    """
    taken = positions(layer)
    rows, columns = layer.pattern.grid
    count = min(count, len(taken), rows * columns - len(taken))
    weakest = drop(layer).sort(stable=True).indices[:count]
    grown = grow(layer, taken, count, generator)
    survives = torch.ones(len(taken), dtype=torch.bool, device=taken.device)
    survives[weakest] = False
    kept = survives.nonzero()[:, 0]

    stored, order = torch.cat([taken[kept], grown]).sort()
    # Where each block of the new order comes from; new blocks come from nowhere.
    source = torch.cat([kept, torch.full_like(grown, -1)])[order]
    new = (source < 0).nonzero()[:, 0]
    source = source.clamp(min=0)
    gradient = layer.values.grad
    for tensor in (layer.values, *state, *(() if gradient is None else (gradient,))):
        tensor.copy_(tensor.index_select(0, source).index_fill_(0, new, 0))
    starts = torch.arange(rows + 1, device=taken.device) * columns
    layer.crow_indices.copy_(torch.searchsorted(stored, starts))
    layer.col_indices.copy_(stored.remainder(max(columns, 1)))
    return Move(dropped=taken[~survives], grown=grown)
