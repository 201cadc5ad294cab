"""Training with sparse weights whose pattern stays or moves."""

from sparsetile.train._dynsparse import DynSparse
from sparsetile.train._lr import sparse_lr
from sparsetile.train._method import Method
from sparsetile.train._schedule import Constant, Cosine, Evenly, Every, Never
from sparsetile.train._scores import block_l1, uniform
from sparsetile.train._static import Static
from sparsetile.train._trainer import Coverage, Trainer, Update

__all__ = [
    "Constant",
    "Cosine",
    "Coverage",
    "DynSparse",
    "Evenly",
    "Every",
    "Method",
    "Never",
    "Static",
    "Trainer",
    "Update",
    "block_l1",
    "sparse_lr",
    "uniform",
]
