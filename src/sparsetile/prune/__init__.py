"""Making a dense model sparse after it was trained, with data or without."""

from sparsetile.prune._distillation import distillation_loss
from sparsetile.prune._inputs import Inputs
from sparsetile.prune._layer import Kept, Layer, OneShot
from sparsetile.prune._magnitude import Magnitude
from sparsetile.prune._movement import Movement, movement
from sparsetile.prune._nm import NM
from sparsetile.prune._prune import prune_
from sparsetile.prune._reconstruct import LeastSquares
from sparsetile.prune._report import PrunedLayer, PruneReport
from sparsetile.prune._sparsegpt import SparseGPT
from sparsetile.prune._wanda import Wanda

__all__ = [
    "NM",
    "Inputs",
    "Kept",
    "Layer",
    "LeastSquares",
    "Magnitude",
    "Movement",
    "OneShot",
    "PruneReport",
    "PrunedLayer",
    "SparseGPT",
    "Wanda",
    "distillation_loss",
    "movement",
    "prune_",
]
