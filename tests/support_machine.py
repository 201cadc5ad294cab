"""A machine small enough to count by hand, and shorthands for its programs."""

import dataclasses

import numpy as np

from sparsetile.machine import (
    Codelet,
    Compute,
    Copy,
    Exchange,
    MachineSpec,
    Program,
    Variable,
)

INT32 = np.dtype(np.int32)
FLOAT32 = np.dtype(np.float32)
UINT8 = np.dtype(np.uint8)

SMALL = MachineSpec(
    name="small",
    tiles=4,
    memory_per_tile=1024,
    clock_hz=1e9,
    exchange_bytes_per_cycle=4,
    memory_bytes_per_cycle=16,
    flops_float16=64,
    flops_mixed=32,
    flops_float32=16,
)


def small(**changes):
    return dataclasses.replace(SMALL, **changes)


def ints(*values):
    return np.array(values, dtype=np.int64)


def variable(name, counts, dtype=INT32, **more):
    return Variable(name, dtype, np.asarray(counts, dtype=np.int64), **more)


def copy(source, target, *runs):
    """Each run is (source start, target start, length)."""
    return Copy(source, target, *np.array(runs, dtype=np.int64).reshape(-1, 3).T.copy())


def exchange(*copies, name="exchange"):
    return Exchange(name, copies)


def compute(function, reads, writes, cycles=(1, 1, 1, 1), name="compute"):
    cycles = cycles if callable(cycles) else np.asarray(cycles, dtype=np.int64)
    return Compute(name, (Codelet(name, function, cycles, tuple(reads), tuple(writes)),))


def program(*steps, inputs=(), outputs=(), machine=SMALL, name="program"):
    return Program(name, machine, steps, tuple(inputs), tuple(outputs))


def count_up(variable):
    """A computation that adds one to a variable."""

    def run(memory):
        memory[variable] += 1

    return compute(run, [variable], [variable], name=f"count {variable.name}")


def idle(reads=(), writes=(), name="compute", cycles=(1, 1, 1, 1)):
    return compute(lambda memory: None, reads, writes, cycles, name)
