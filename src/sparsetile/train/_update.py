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
    leaves = _weakest(drop(layer), count)
    kept = (~leaves).nonzero()[:, 0]
    grown = grow(layer, taken, count, generator)

    stored, source = _merged(taken[kept], kept, grown)
    new = (source < 0).nonzero()[:, 0]
    source = source.clamp(min=0)
    gradient = layer.values.grad
    for tensor in (layer.values, *state, *(() if gradient is None else (gradient,))):
        tensor.copy_(tensor.index_select(0, source).index_fill_(0, new, 0))
    starts = torch.arange(rows + 1, device=taken.device) * columns
    layer.crow_indices.copy_(torch.searchsorted(stored, starts))
    layer.col_indices.copy_(stored.remainder(max(columns, 1)))
    return Move(dropped=taken[leaves], grown=grown)


def _weakest(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` lowest scores, of equal ones the first; NaN is never low."""
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    scores = scores.nan_to_num(nan=torch.inf, posinf=torch.inf)
    # topk promises nothing about ties, so it gives the threshold only; a full sort is slower.
    threshold = scores.topk(count, largest=False, sorted=False).values.amax()
    below, level = scores < threshold, scores == threshold
    return below | (level & (level.cumsum(0) <= count - below.sum()))


def _merged(kept: Tensor, origin: Tensor, grown: Tensor) -> tuple[Tensor, Tensor]:
    """Merge two ascending lists of positions.

    Returns:
        All positions, ascending, and where each block comes from; new blocks come from -1.
    """
    size = len(kept) + len(grown)
    place = torch.searchsorted(kept, grown) + torch.arange(len(grown), device=grown.device)
    new = torch.zeros(size, dtype=torch.bool, device=kept.device)
    new[place] = True
    old = (~new).nonzero()[:, 0]
    stored, source = kept.new_empty(size), torch.full_like(new, -1, dtype=torch.int64)
    stored[place], stored[old], source[old] = grown, kept, origin
    return stored, source
