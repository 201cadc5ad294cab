"""A machine of tiles, each with memory of its own; knows neither sparsity nor torch."""

from sparsetile.machine._file import load_machine, machine_from_toml
from sparsetile.machine._mapping import even_counts
from sparsetile.machine._memory import OutOfTileMemory
from sparsetile.machine._profile import Phase, Profile
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
from sparsetile.machine._run import Result, check_memory, run
from sparsetile.machine._spec import MachineSpec, preset, presets

__all__ = [
    "Branch",
    "Codelet",
    "Compute",
    "Copy",
    "Exchange",
    "MachineSpec",
    "Memory",
    "OutOfTileMemory",
    "Phase",
    "Profile",
    "Program",
    "Repeat",
    "Result",
    "Step",
    "Variable",
    "check_memory",
    "even_counts",
    "load_machine",
    "machine_from_toml",
    "preset",
    "presets",
    "run",
]
