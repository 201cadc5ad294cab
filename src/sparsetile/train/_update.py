"""One update of one layer: drop blocks, grow others, keep everything in order."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int64, Num
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train._budget import Change
from sparsetile.train._constraint import Constraint, weakest
from sparsetile.train._grow import Grow
from sparsetile.train._positions import pattern_at
from sparsetile.train._room import Room


@dataclass(frozen=True)
class Move:
    """Where blocks go away and where new ones come, as positions `row * kb + column`.

    Attributes:
        leaves: Which of the stored blocks are dropped.
        grown: Where new blocks come, ascending.
        stored: All positions afterwards, ascending.
        source: Which block each of them was; -1 for new ones.
    """

    leaves: Bool[Tensor, " before"]
    grown: Int64[Tensor, " grown"]
    stored: Int64[Tensor, " after"]
    source: Int64[Tensor, " after"]

    @cached_property
    def new(self) -> Int64[Tensor, " grown"]:
        """Which of the blocks afterwards are new."""
        return (self.source < 0).nonzero()[:, 0]

    def carry(self, tensor: Num[Tensor, "before ..."]) -> Num[Tensor, "after ..."]:
        """Bring what belongs to the blocks into the new order; zeros for new ones."""
        moved = tensor.index_select(0, self.source.clamp(min=0))
        return moved.index_fill_(0, self.new, 0)


@torch.no_grad()
def choose(
    room: Room,
    scores: Float[Tensor, " nnzb"],
    change: Change,
    grow: Grow,
    constraint: Constraint | None = None,
) -> Move:
    """Choose the weakest blocks of a layer to drop and free positions to grow at.

    Nothing that survives or was dropped just now is grown.

    Args:
        room: The layer; its stored positions are taken.
        scores: Strength of the stored blocks; of equal ones the first go.
        change: How many blocks to drop and to grow.
        grow: Chooses the new positions.
        constraint: What the pattern must look like; nothing special for None.

    Returns:
        What to drop and what to grow; the layer is not changed.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import uniform
        >>> from sparsetile.train._positions import positions
        >>> layer = Linear(64, 64, blocksize=16, density=0.5)
        >>> move = choose(Room(layer, positions(layer)), torch.rand(8), Change(3, 3), uniform)
        >>> len(move.grown), len(move.stored)
        (3, 8)
    """
    if constraint is None:
        leaves, grown = weakest(scores, change.drop), grow(room, change.grow)
    else:
        leaves, grown = constraint.choose(room, scores, change.drop, change.grow, grow)
    kept = (~leaves).nonzero()[:, 0]
    return Move(leaves, grown, *_merged(room.taken[kept], kept, grown))


@torch.no_grad()
def apply_(
    move: Move, layer: BlockSparse, others: list[tuple[Tensor, Callable[[Tensor], None]]]
) -> None:
    """Change a layer, and what goes with its values.

    Survivors keep their values, gradients and optimizer state bit for bit; new blocks have zeros in
    all three. Where the number of blocks stays, all tensors keep their place and shape, so compiled
    graphs and the optimizer go on with them.

    Args:
        move: What `choose` chose for this layer, or for one with the same pattern.
        layer: The layer to change.
        others: Tensors with one entry for each block, and what takes one of another size.
    """
    same = len(move.source) == layer.nnzb
    gradient = layer.values.grad
    for tensor, replace in others:
        if same:
            tensor.copy_(move.carry(tensor))
        else:
            replace(move.carry(tensor))
    if same:
        for tensor in (layer.values, *(() if gradient is None else (gradient,))):
            tensor.copy_(move.carry(tensor.detach()))
        rows, columns = layer.pattern.grid
        starts = torch.arange(rows + 1, device=move.stored.device) * columns
        layer.crow_indices.copy_(torch.searchsorted(move.stored, starts))
        layer.col_indices.copy_(move.stored.remainder(max(columns, 1)))
        return
    layer.set_pattern_(pattern_at(layer, move.stored), move.carry(layer.values.detach()))
    if gradient is not None:
        layer.values.grad = move.carry(gradient)


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
