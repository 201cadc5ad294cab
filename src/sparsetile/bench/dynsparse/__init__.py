"""The experiment of DynSparse, small: dense, static and dynamic at equal steps and data."""

from sparsetile.bench.dynsparse._experiment import (
    PICTURES,
    data_of,
    draw,
    fill,
    measure,
    train,
)
from sparsetile.bench.dynsparse._setting import METHODS
from sparsetile.bench.dynsparse._tiers import TIERS, Tier

__all__ = ["METHODS", "PICTURES", "TIERS", "Tier", "data_of", "draw", "fill", "measure", "train"]
