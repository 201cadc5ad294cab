"""Wanda: weights times the norm of the inputs they meet."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from sparsetile.matrix import block_scores
from sparsetile.prune._check import check_word
from sparsetile.prune._choose import COMPARE, Compare, chosen
from sparsetile.prune._layer import Kept, Layer, Needs


@dataclass(frozen=True)
class Wanda:
    """Keeps the blocks with the largest sum of `|w| · ‖x‖₂`, `x` being the feature it multiplies.

    Sun et al., "A Simple and Effective Pruning Approach for Large Language Models" (2024),
    equation 1. They compare the weights of each output with one another, which is the default:
    every block row keeps equally many blocks, give or take one. Blocks larger than one value are
    scored by the sum of their values' scores.

    Args:
        compare: `"row"`: with the blocks of the same block row; `"layer"`: of the whole layer.

    Raises:
        ValueError: If there is no such comparison.

    Examples:
        >>> from sparsetile.prune._inputs import Inputs
        >>> inputs = Inputs.of(torch.tensor([[10.0, 1.0]]))
        >>> weight = torch.tensor([[1.0, 2.0]])
        >>> layer = Layer(name="up", weight=weight, blocksize=(1, 1), count=1, inputs=inputs)
        >>> Wanda().prune(layer).blocks
        tensor([[ True, False]])
    """

    compare: Compare = "row"
    needs: ClassVar[Needs] = "norms"

    def __post_init__(self) -> None:
        check_word("compare", self.compare, COMPARE)

    @torch.no_grad()
    def prune(self, layer: Layer) -> Kept:
        """Choose the blocks of a layer; the values stay.

        Args:
            layer: The layer, with its inputs.

        Returns:
            The blocks and the weight as it was.
        """
        assert layer.inputs is not None
        norms = layer.inputs.norms
        # The scale is free; without it float32 could overflow on very many inputs.
        scaled = layer.weight * (norms / norms.amax().clamp(min=1e-300)).to(layer.weight.dtype)
        scores = block_scores(scaled, layer.blocksize, "l1")
        return Kept(chosen(layer, scores, self.compare), layer.weight)
