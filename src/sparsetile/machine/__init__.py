"""A machine of tiles, each with memory of its own; knows neither sparsity nor torch."""

from sparsetile.machine._spec import Machine, preset, presets

__all__ = ["Machine", "preset", "presets"]
