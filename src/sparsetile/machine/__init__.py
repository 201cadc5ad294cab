"""A machine of tiles, each with memory of its own; knows neither sparsity nor torch."""

from sparsetile.machine._program import (
    Branch,
    Codelet,
    Compute,
    Copy,
    Exchange,
    Memory,
    Program,
    Repeat,
    Step,
    Variable,
)
from sparsetile.machine._spec import MachineSpec, preset, presets

__all__ = [
    "Branch",
    "Codelet",
    "Compute",
    "Copy",
    "Exchange",
    "MachineSpec",
    "Memory",
    "Program",
    "Repeat",
    "Step",
    "Variable",
    "preset",
    "presets",
]
