"""What a block-sparse matrix is: its pattern, its values, how to make, convert and see it."""

from sparsetile.matrix._blocks import gather_blocks, scatter_blocks
from sparsetile.matrix._generate import (
    banded_pattern,
    block_diagonal_pattern,
    causal_pattern,
    random_pattern,
)
from sparsetile.matrix._pattern import Pattern

__all__ = [
    "Pattern",
    "banded_pattern",
    "block_diagonal_pattern",
    "causal_pattern",
    "gather_blocks",
    "random_pattern",
    "scatter_blocks",
]
