"""Block-sparse matrix products and always-sparse training for PyTorch."""

from sparsetile import matrix, models, nn, ops, prune, train
from sparsetile._version import __version__
from sparsetile.matrix import (
    BSR,
    Pattern,
    banded_pattern,
    block_diagonal_pattern,
    causal_pattern,
    gather_blocks,
    load,
    load_pattern,
    pattern_from_dense,
    pattern_of,
    random_pattern,
    save,
    scatter_blocks,
    spy,
    spy_svg,
)
from sparsetile.nn import densify_, sparsify_, summary
from sparsetile.ops import backend, backends, last_kernel, linear, sddmm, spmm

__all__ = [
    "BSR",
    "Pattern",
    "__version__",
    "backend",
    "backends",
    "banded_pattern",
    "block_diagonal_pattern",
    "causal_pattern",
    "densify_",
    "gather_blocks",
    "last_kernel",
    "linear",
    "load",
    "load_pattern",
    "matrix",
    "models",
    "nn",
    "ops",
    "pattern_from_dense",
    "pattern_of",
    "prune",
    "random_pattern",
    "save",
    "scatter_blocks",
    "sddmm",
    "sparsify_",
    "spmm",
    "spy",
    "spy_svg",
    "summary",
    "train",
]
