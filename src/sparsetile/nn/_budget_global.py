"""Keeps the strongest blocks of a whole model, wherever they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparsetile.matrix import Pattern, block_scores, pattern_from_dense
from sparsetile.nn._budget import Candidate
from sparsetile.nn._budget_split import total_blocks
from sparsetile.nn._check import check_draw


@dataclass(frozen=True)
class GlobalMagnitude:
    """The strongest blocks of all layers together are kept: global magnitude pruning.

    Blocks of one size are compared, so the sum of magnitudes ranks them as their mean does. The
    number of blocks is exact: the whole number next to `density` times the positions of all layers,
    and one for each layer at least, its strongest. Among equals the first layer wins, and in it the
    first block in row order.

    Fresh layers are drawn with a spread of their own each, by fan-in, and a ranking of them says
    more about that than about worth: use this on trained weights.

    Args:
        density: Share of all block positions to store, in (0, 1].
        score: Strength of a block: `"l1"` or `"l2"` norm, or `"max"`, the largest magnitude.

    Raises:
        TypeError: If the density is no number.
        ValueError: If the density is out of range or there is no such score.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.nn import sparsify_
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
        >>> with torch.no_grad():
        ...     weight = model[1].weight.mul_(10)
        >>> model = sparsify_(model, density=GlobalMagnitude(0.25), blocksize=16)
        >>> [layer.nnzb for layer in model]
        [1, 7]
    """

    density: float
    score: Literal["l1", "l2", "max"] = "l1"

    def __post_init__(self) -> None:
        check_draw(None, 1, self.density)
        block_scores(torch.zeros(0, 0), 1, self.score)

    def share(self, layers: Sequence[Candidate]) -> list[Pattern]:
        """Choose the blocks of all layers.

        Args:
            layers: The weights to become sparse.

        Returns:
            Which blocks each stores.

        Raises:
            ValueError: If a weight holds NaN or infinity.
        """
        positions = [layer.positions for layer in layers]
        scores = torch.cat([torch.zeros(0), *(self._scores(layer) for layer in layers)])
        kept = torch.zeros(len(scores), dtype=torch.bool)
        if len(scores):
            # As one row of single values, of which the strongest are kept.
            share = total_blocks(positions, self.density) / len(scores)
            row = pattern_from_dense(scores[None], 1, share, score="max")
            kept[row.col_indices.long()] = True
        return [
            _pattern(mine.view(layer.grid), layer)
            for mine, layer in zip(kept.split(positions), layers, strict=True)
        ]

    def _scores(self, layer: Candidate) -> Float[Tensor, " positions"]:
        """Strength of each block in row order, with the strongest above those of all layers."""
        try:
            scores = block_scores(layer.weight, layer.blocksize, self.score).flatten().cpu()
        except ValueError as fault:
            raise ValueError(f"layer {layer.name!r} cannot be ranked: {fault}") from fault
        if len(scores):
            scores[scores.argmax()] = torch.finfo(scores.dtype).max
        return scores


def _pattern(kept: Bool[Tensor, "mb kb"], layer: Candidate) -> Pattern:
    crow = torch.zeros(len(kept) + 1, dtype=torch.int64)
    crow[1:] = kept.sum(dim=1).cumsum(0)
    return Pattern(layer.shape, layer.blocksize, crow, kept.nonzero()[:, 1])
