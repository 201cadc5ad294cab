"""Layers that store a part of their weights, and the surgery that puts them into a model."""

from sparsetile.nn._advise import advise
from sparsetile.nn._advise_report import Advice, AdvisedLayer, Trial
from sparsetile.nn._attention import SelfAttention
from sparsetile.nn._block_sparse import BlockSparse
from sparsetile.nn._borrowers import TiedEmbedding, TiedHead
from sparsetile.nn._budget import ER, ERK, Budget, Candidate, Uniform
from sparsetile.nn._budget_global import GlobalMagnitude
from sparsetile.nn._budget_layers import PerLayer
from sparsetile.nn._embedding import Embedding
from sparsetile.nn._empty_twin import empty_twin
from sparsetile.nn._freeze import freeze_
from sparsetile.nn._gru import GRU
from sparsetile.nn._linear import Linear
from sparsetile.nn._lstm import LSTM
from sparsetile.nn._mlp import MLP
from sparsetile.nn._summary import Row, Summary, summary
from sparsetile.nn._surgery import densify_, sparsify_

__all__ = [
    "ER",
    "ERK",
    "GRU",
    "LSTM",
    "MLP",
    "Advice",
    "AdvisedLayer",
    "BlockSparse",
    "Budget",
    "Candidate",
    "Embedding",
    "GlobalMagnitude",
    "Linear",
    "PerLayer",
    "Row",
    "SelfAttention",
    "Summary",
    "TiedEmbedding",
    "TiedHead",
    "Trial",
    "Uniform",
    "advise",
    "densify_",
    "empty_twin",
    "freeze_",
    "sparsify_",
    "summary",
]
