"""Where a layer stores blocks, as numbers in the grid of its block positions."""

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.nn import BlockSparse


def positions(layer: BlockSparse) -> Int64[Tensor, " nnzb"]:
    """List where a layer stores blocks.

    Args:
        layer: A sparse layer.

    Returns:
        `row * kb + column` of every stored block, ascending.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> positions(Linear(4, 4, blocksize=2, density=1.0))
        tensor([0, 1, 2, 3])
    """
    pattern = layer.pattern
    return pattern.row_indices.long() * pattern.grid[1] + pattern.col_indices


def pattern_at(layer: BlockSparse, places: Int64[Tensor, " n"]) -> Pattern:
    """Make the pattern of a layer's shape that stores the blocks at some positions.

    Args:
        layer: A sparse layer.
        places: Positions, ascending.

    Returns:
        The pattern.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> pattern_at(Linear(4, 4, blocksize=2, density=0.5), torch.tensor([1, 2])).col_indices
        tensor([1, 0], dtype=torch.int32)
    """
    rows, columns = layer.pattern.grid
    starts = torch.arange(rows + 1, device=places.device) * columns
    crow = torch.searchsorted(places, starts)
    shape = layer.shape
    return Pattern(shape, layer.blocksize, crow, places.remainder(max(columns, 1)))
