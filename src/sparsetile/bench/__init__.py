"""Measuring and showing: the command line and what it is made of; the only room that prints."""

from sparsetile.bench._layers import Layer, time_layers
from sparsetile.bench._measure import Measurement, interleave

__all__ = ["Layer", "Measurement", "interleave", "time_layers"]
