"""The products, differentiable: public functions, back ends, and which of them ran."""

from sparsetile.matrix import register_product
from sparsetile.ops._dispatch import backend, backends, last_kernel
from sparsetile.ops._linear import Activation, linear, linear_from_indices
from sparsetile.ops._rows import embedding, embedding_from_indices, embedding_grad
from sparsetile.ops._sddmm import sddmm
from sparsetile.ops._spmm import spmm
from sparsetile.ops._subset import linear_subset
from sparsetile.ops._tap import watch

__all__ = [
    "Activation",
    "backend",
    "backends",
    "embedding",
    "embedding_from_indices",
    "embedding_grad",
    "last_kernel",
    "linear",
    "linear_from_indices",
    "linear_subset",
    "sddmm",
    "spmm",
    "watch",
]

# `@` of a BSR, which lives in a room below, multiplies with these.
register_product(spmm, linear)
