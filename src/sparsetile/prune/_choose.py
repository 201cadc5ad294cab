"""Which blocks to keep, of scores."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparsetile.prune._layer import Layer

Compare = Literal["layer", "row"]
COMPARE = ("layer", "row")


@torch.no_grad()
def chosen(layer: Layer, scores: Float[Tensor, "mb kb"], compare: Compare) -> Bool[Tensor, "mb kb"]:
    """Choose the blocks of a layer that a method keeps.

    Args:
        layer: Says how many, which may be kept, and what form the pattern must have.
        scores: Strength of each block.
        compare: Against the blocks of the whole layer, or of the same block row.

    Returns:
        True where a block is kept.

    Examples:
        >>> layer = Layer(name="up", weight=torch.zeros(2, 2), blocksize=(1, 1), count=2)
        >>> scores = torch.tensor([[5.0, 4.0], [1.0, 2.0]])
        >>> chosen(layer, scores, "layer").tolist(), chosen(layer, scores, "row").tolist()
        ([[True, True], [False, False]], [[True, False], [False, True]])
    """
    if layer.given is not None:
        return layer.given
    if layer.nm is not None:
        return layer.nm.strongest(scores)
    if compare == "row":
        return strongest_of_rows(scores, layer.count, layer.live)
    return strongest(scores, layer.count, layer.live)


def strongest(
    scores: Float[Tensor, "mb kb"], count: int, live: Bool[Tensor, "mb kb"]
) -> Bool[Tensor, "mb kb"]:
    """Mark the `count` largest scores, the first in row order among equals.

    Args:
        scores: Scores, 0 or more.
        count: How many to mark; at most as many as are live.
        live: Which may be marked.

    Returns:
        The marks.

    Examples:
        >>> strongest(torch.tensor([[1.0, 3.0, 3.0]]), 1, torch.ones(1, 3).bool())
        tensor([[False,  True, False]])
    """
    kept = torch.zeros_like(live)
    if count == 0:
        return kept
    ranked = torch.where(live, scores, -torch.inf).flatten()
    # Only the threshold: nothing promises which of several equals a selection takes.
    least = len(ranked) - count
    threshold = np.partition(ranked.numpy(force=True), least)[least]
    flat = kept.view(-1)
    flat |= ranked > threshold
    level = (ranked == threshold).nonzero()[:, 0]
    flat[level[: count - int(flat.sum())]] = True
    return kept


def strongest_of_rows(
    scores: Float[Tensor, "mb kb"], count: int, live: Bool[Tensor, "mb kb"]
) -> Bool[Tensor, "mb kb"]:
    """Mark equally many of each row, its largest scores.

    What does not divide by the rows goes to the rows whose next score is largest.

    Args:
        scores: Scores, 0 or more.
        count: How many to mark; at most as many as are live.
        live: Which may be marked.

    Returns:
        The marks, `count` in all.

    Examples:
        >>> scores = torch.tensor([[9.0, 8.0], [1.0, 2.0]])
        >>> strongest_of_rows(scores, 3, torch.ones(2, 2).bool()).tolist()
        [[True, True], [False, True]]
    """
    order = torch.where(live, scores, -torch.inf).argsort(dim=1, descending=True, stable=True)
    places = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(1, order, places)
    taken = live.gather(1, order).sum(0).cumsum(0)
    whole = int((taken <= count).sum())
    kept = (rank < whole) & live
    rest = count - int(kept.sum())
    return kept | strongest(scores, rest, (rank == whole) & live)
