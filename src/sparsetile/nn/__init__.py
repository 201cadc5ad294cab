"""Layers that store a part of their weights, and the surgery that puts them into a model."""

from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._embedding import Embedding
from sparsetile.nn._linear import Linear
from sparsetile.nn._summary import Row, Summary, summary
from sparsetile.nn._surgery import densify_, sparsify_
from sparsetile.nn._tied_head import TiedHead

__all__ = [
    "BlockSparse",
    "Embedding",
    "Linear",
    "Row",
    "Summary",
    "TiedHead",
    "densify_",
    "sparsify_",
    "summary",
]
