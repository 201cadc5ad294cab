"""Magnitude pruning: the weakest blocks go."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from sparsetile.matrix import block_scores
from sparsetile.prune._check import check_word
from sparsetile.prune._choose import COMPARE, Compare, chosen
from sparsetile.prune._layer import Kept, Layer, Needs


@dataclass(frozen=True)
class Magnitude:
    """Keeps the blocks with the largest norm; needs no data.

    At blocksize 1 this is magnitude pruning (Han et al., "Learning both Weights and Connections for
    Efficient Neural Networks", 2015).

    Args:
        score: Strength of a block: `"l1"` or `"l2"` norm, or `"max"`, the largest magnitude.
        compare: `"layer"`: the strongest blocks of the layer; `"row"`: of each block row.

    Raises:
        ValueError: If there is no such score or comparison.

    Examples:
        >>> weight = torch.tensor([[3.0, 3.0, 0.0, 5.0]])
        >>> layer = Layer(name="up", weight=weight, blocksize=(1, 2), count=1)
        >>> Magnitude().prune(layer).blocks, Magnitude("max").prune(layer).blocks
        (tensor([[ True, False]]), tensor([[False,  True]]))
    """

    score: Literal["l1", "l2", "max"] = "l1"
    compare: Compare = "layer"
    needs: ClassVar[Needs] = "nothing"

    def __post_init__(self) -> None:
        check_word("score", self.score, ("l1", "l2", "max"))
        check_word("compare", self.compare, COMPARE)

    @torch.no_grad()
    def prune(self, layer: Layer) -> Kept:
        """Choose the blocks of a layer; the values stay.

        Args:
            layer: The layer.

        Returns:
            The blocks and the weight as it was.
        """
        scores = block_scores(layer.weight, layer.blocksize, self.score)
        return Kept(chosen(layer, scores, self.compare), layer.weight)
