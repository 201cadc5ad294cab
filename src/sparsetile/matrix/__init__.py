"""What a block-sparse matrix is: its pattern, its values, how to make, convert, keep and see it."""

import torch

from sparsetile.matrix._block_fill import BlockFill, block_fill
from sparsetile.matrix._blocks import gather_blocks, scatter_blocks
from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._files import load, load_pattern, save
from sparsetile.matrix._formats import COO, CSC, CSR
from sparsetile.matrix._generate import (
    banded_pattern,
    block_diagonal_pattern,
    causal_pattern,
    random_pattern,
)
from sparsetile.matrix._operators import register_product
from sparsetile.matrix._pattern import Pattern
from sparsetile.matrix._reorder import Reordering, reorder
from sparsetile.matrix._select import block_scores, pattern_from_dense, pattern_of
from sparsetile.matrix._spy import spy
from sparsetile.matrix._svg import spy_svg

__all__ = [
    "BSR",
    "COO",
    "CSC",
    "CSR",
    "BlockFill",
    "Pattern",
    "Reordering",
    "banded_pattern",
    "block_diagonal_pattern",
    "block_fill",
    "block_scores",
    "causal_pattern",
    "gather_blocks",
    "load",
    "load_pattern",
    "pattern_from_dense",
    "pattern_of",
    "random_pattern",
    "register_product",
    "reorder",
    "save",
    "scatter_blocks",
    "spy",
    "spy_svg",
]

# Both check themselves when they are loaded, so torch.load may build them with weights_only=True.
torch.serialization.add_safe_globals([BSR, Pattern])
