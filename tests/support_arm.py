"""Runs the CPU back end's kernels for 64-bit Arm under an emulator, on this process's memory."""

import ctypes
import gc
import shutil
import struct
import subprocess
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from sparsetile.ops.cpu import _isa, _jit, _scratch, _threads

TRIPLE = "aarch64-unknown-linux-gnu"
TOOLS = ("qemu-aarch64", "aarch64-linux-gnu-gcc")
DRIVER = Path(__file__).parent / "ops" / "cpu" / "run_worker.c"


def missing_tools():
    return [tool for tool in TOOLS if shutil.which(tool) is None]


class Emulator:
    """Stands for a processor: links each worker to a small driver and runs it under qemu.

    A worker is called with an array of fields. Those that point into memory of this process are
    told from numbers by looking at all tensors alive; what they point into is copied to the
    emulated process and back.
    """

    def __init__(self, isa, folder):
        self._isa, self._folder = isa, folder
        self._workers = []  # object file and name of each worker, by its number
        self.runs = 0

    def object(self, kernel):
        """Stands for the compiler."""
        import llvmlite.binding as llvm

        module = llvm.parse_assembly(kernel.ir())
        module.verify()
        return _jit._target_machine(self._isa, TRIPLE).emit_object(module)

    def engine(self, code):
        """Stands for the loader: the address of a function is the worker's number."""
        path = self._folder / f"kernel{len(self._workers)}.o"
        path.write_bytes(code)
        return _Engine(lambda name: self._workers.append((path, name)) or len(self._workers) - 1)

    def function(self, number):
        """Stands for the function at an address."""
        path, name = self._workers[number]
        program = path.with_suffix(f".{name}")
        if not program.exists():
            options = ["-static", "-no-pie", f"-DWORKER={name}"]
            subprocess.run([TOOLS[1], *options, DRIVER, path, "-o", program], check=True)
        return lambda call: self._run(program, call)

    def _run(self, program, call):
        living, storages, placed = _storages(), {}, []
        for value in call:
            place = (-1, value)
            for start, size in living:
                if start <= value < start + size:
                    place = storages.setdefault((start, size), len(storages)), value - start
            placed.append(place)
        memory = self._folder / "memory"
        with memory.open("wb") as file:
            file.write(struct.pack("<q", len(storages)))
            for start, size in storages:
                file.write(struct.pack("<q", size) + ctypes.string_at(start, size))
            file.write(struct.pack("<q", len(placed)))
            for pair in placed:
                file.write(struct.pack("<qq", *pair))
        subprocess.run([TOOLS[0], program, memory], check=True)
        self.runs += 1
        after, at = memory.read_bytes(), 0
        for start, size in storages:
            ctypes.memmove(start, after[at : at + size], size)
            at += size


class _Engine:
    def __init__(self, address):
        self.get_function_address = address


def _storages():
    """Start and size of all memory a worker may be given: every tensor's, and the scratch."""
    found = {
        (start, size) for start, size, _ in _scratch._local.__dict__.get("buffers", {}).values()
    }
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            storage = thing.untyped_storage()
            found.add((storage.data_ptr(), storage.nbytes()))
    return [(start, size) for start, size in found if size]


@contextmanager
def emulated(monkeypatch, folder, cpu):
    """Within, the CPU back end computes with kernels for an Arm processor, emulated."""
    isa = replace(_isa.LEVELS["neon"], cpu=cpu)
    emulator = Emulator(isa, folder)
    with monkeypatch.context() as patch:
        patch.setitem(_isa.LEVELS, "neon", isa)
        patch.setattr(_isa, "supported", lambda: ("neon", "this processor's"))
        patch.setenv(_isa.VARIABLE, "neon")
        patch.setattr(_jit, "_loaded", {})
        patch.setattr(_jit, "_object", emulator.object)
        patch.setattr(_jit, "_engine", emulator.engine)
        patch.setattr(_threads, "_function", emulator.function)
        _isa.host.cache_clear()
        yield emulator
    _isa.host.cache_clear()
