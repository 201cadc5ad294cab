"""The proof on a real sentence encoder: pruned, recovered, weighed and timed beside dense."""

from sparsetile.bench.minilm._methods import METHODS
from sparsetile.bench.minilm._proof import data_of, draw, learn, measure, prune
from sparsetile.bench.minilm._tiers import TIERS, Recovery, Tier
from sparsetile.bench.minilm._wheel import minilm_folder

__all__ = [
    "METHODS",
    "TIERS",
    "Recovery",
    "Tier",
    "data_of",
    "draw",
    "learn",
    "measure",
    "minilm_folder",
    "prune",
]
