"""What the processor can do at best: multiplications and bytes per second, by kernels of ours."""

import ctypes
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sparsetile.ops.cpu import _threads
from sparsetile.ops.cpu._call import Call, Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector, zero
from sparsetile.ops.cpu._isa import Isa, host, second_cache
from sparsetile.ops.cpu._jit import load

_LAYOUT = Layout("turns bytes", "data")
_LOADS = 16  # vectors read in one turn of the innermost loop
_CONSTANTS = 4096  # bytes a thread finds its operands in, and leaves its sums in
_MOST = 1 << 30  # bytes read to measure memory, however large the last cache is
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Roofline:
    """Speeds measured on this machine, of all threads together.

    Args:
        isa: Name of the instruction set.
        unit: What multiplies: `fma` (float32), `dot` (pairs of bfloat16) or `amx` (tiles of them).
        threads: Threads that worked.
        peak: GFLOP/s of the unit with operands in registers, two for each multiplication.
        l1: GB/s read from the first cache.
        l2: GB/s read from the second cache.
        l3: GB/s read from the last cache.
        memory: GB/s read from memory.
        l2_bytes: Size of a thread's second cache.
        l3_bytes: Size of the last cache, of all threads.

    Examples:
        >>> Roofline("avx2", "fma", 1, 100.0, 200.0, 80.0, 60.0, 20.0, 1 << 20, 1 << 25).unit
        'fma'
    """

    isa: str
    unit: str
    threads: int
    peak: float
    l1: float
    l2: float
    l3: float
    memory: float
    l2_bytes: int
    l3_bytes: int


def roofline(
    dtype: torch.dtype = torch.float32, *, threads: int | None = None, seconds: float = 1.0
) -> Roofline:
    """Measure the speeds that no product on this machine can pass.

    The kernels do nothing else: independent multiplications in registers, and plain reads of
    buffers that fit each cache. With one thread its CPU time counts, with several the wall time,
    and always the best of several runs.

    Args:
        dtype: What is multiplied: torch.float32, torch.bfloat16 or torch.float16 (which is
            computed in float32).
        threads: Threads that work; those of torch when not given.
        seconds: Time to spend, about.

    Returns:
        The speeds.

    Raises:
        ValueError: If there are no kernels for the dtype, or no such number of threads.

    Examples:
        >>> import torch
        >>> roof = roofline(torch.float32, threads=1, seconds=0.01)
        >>> roof.unit, roof.peak > 0 and roof.memory > 0
        ('fma', True)
    """
    if dtype not in _DTYPES:
        raise ValueError(
            f"roofline: the speed of {dtype} was asked for, the kernels multiply "
            f"{', '.join(str(d) for d in _DTYPES)}; give one of these"
        )
    threads = torch.get_num_threads() if threads is None else threads
    if threads < 1:
        raise ValueError(f"roofline: threads is {threads}; it must be at least 1")
    isa, share = host(), seconds / 5
    unit = _unit(isa, dtype)
    l2_bytes, l3_bytes = second_cache(), max(_last_cache(), 2 * second_cache())
    operands = torch.empty(threads * _CONSTANTS, dtype=torch.uint8)
    constants = _constants()
    for thread in range(threads):
        ctypes.memmove(operands.data_ptr() + thread * _CONSTANTS, constants, len(constants))
    flops = _speed(f"roof_{unit}", operands, _CONSTANTS, threads, share)
    sizes = {
        "l1": _first_cache() * 2 // 3,
        "l2": l2_bytes // 2,
        "l3": max(2 * l2_bytes, min(l3_bytes // (4 * threads), 32 << 20)),
        "memory": min(max(2 * l3_bytes, 64 << 20), _MOST) // threads,
    }
    speeds = {name: _reading(size, threads, share, isa) for name, size in sizes.items()}
    return Roofline(
        isa=isa.name,
        unit=unit,
        threads=threads,
        peak=flops * _flops(isa, unit) / 1e9,
        **speeds,
        l2_bytes=l2_bytes,
        l3_bytes=l3_bytes,
    )


def _unit(isa: Isa, dtype: torch.dtype) -> str:
    """Name what multiplies a dtype fastest."""
    return RooflineKernels(isa).units[-1] if dtype == torch.bfloat16 else "fma"


def _flops(isa: Isa, unit: str) -> int:
    """Count the multiplications and additions in one turn of a kernel's loop."""
    if unit == "amx":
        return 4 * 2 * 16 * 16 * 32
    return 2 * _chains(isa) * isa.lanes * (2 if unit == "dot" else 1)


def _chains(isa: Isa) -> int:
    """Count the independent sums: enough to hide the latency, two registers left for operands."""
    return min(16, isa.registers - 4)


def _reading(size: int, threads: int, seconds: float, isa: Isa) -> float:
    """Measure GB/s of reading a buffer of so many bytes by each thread, again and again."""
    step = _LOADS * isa.lanes * 4
    size = max(step, size // step * step)
    data = torch.ones(threads * size // 4, dtype=torch.int32)
    return _speed("roof_read", data, size, threads, seconds) * size / 1e9


def _speed(name: str, data: torch.Tensor, size: int, threads: int, seconds: float) -> float:
    """Turns per second of one kernel, all threads together."""
    kernels, call = RooflineKernels(host()), _LAYOUT.new()
    worker = load(kernels, kernels.names)[name]
    fields = {"bytes": size, "data": data.data_ptr()}
    start, turns = time.perf_counter(), 1
    # Long enough for the clock and for waking threads; by CPU time, which no neighbour makes long.
    while (spent := _run(worker, call, time.thread_time, 1, turns=turns, **fields)) < 1e-3:
        turns *= max(2, min(64, round(2e-3 / max(spent, 1e-5))))
    clock: Callable[[], float] = time.thread_time if threads == 1 else time.perf_counter
    best = 0.0
    while not best or time.perf_counter() - start < seconds:
        spent = _run(worker, call, clock, threads, turns=turns, **fields)
        best = max(best, threads * turns / spent)
    return best


def _run(worker: int, call: Call, clock: Callable[[], float], threads: int, **fields: int) -> float:
    _LAYOUT.fill(call, **fields)
    before = clock()
    _threads.run(worker, call, threads)
    return clock() - before


@dataclass(frozen=True)
class RooflineKernels:
    """The kernels of one instruction set."""

    isa: Isa

    @property
    def units(self) -> list[str]:
        """What can multiply."""
        return ["fma", *["dot"] * self.isa.has_bf16_dot, *["amx"] * self.isa.has_amx]

    @property
    def names(self) -> list[str]:
        """Names of the functions."""
        return [f"roof_{what}" for what in ("read", *self.units)]

    def ir(self) -> str:
        """Write the module of all of them."""
        multiplying = [
            _multiply_tiles() if unit == "amx" else _multiply(self.isa, unit) for unit in self.units
        ]
        return module([_read(self.isa), *multiplying])


def _start(name: str) -> tuple[Function, dict[str, Value], Value]:
    """Begin a kernel: each thread takes one part of the buffer, whose address comes last."""
    f, v = _LAYOUT.function(name)
    return f, v, f.at(v["data"], f.mul(f.take(v["task"]), v["bytes"]))


def _multiply(isa: Isa, unit: str) -> Function:
    """``a = a * x + y`` for as many sums as hide the latency; for dots ``a = a + x . y``."""
    f, v, own = _start(f"roof_{unit}")
    sums = vector(isa.lanes)
    dot = unit == "dot"
    operand = vector(2 * isa.lanes, "bfloat") if dot else sums
    x, y = f.load(operand, own), f.load(operand, f.at(own, 64))
    with f.loop(0, v["turns"], carry=[zero(sums)] * _chains(isa)) as loop:
        if dot:
            name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * isa.lanes}"
            loop.carry([f.intrinsic(name, sums, a, x, y) for a in loop.values])
        else:
            loop.carry([f.fma(a, x, y) for a in loop.values])
    for place, total in enumerate(loop.results):  # or nothing would need to be computed
        f.store(total, f.at(own, 1024 + 64 * place))
    return f


def _multiply_tiles() -> Function:
    """Four sums of 16x16 in tiles 0 to 3, operands in tiles 4 to 7."""
    f, v, own = _start("roof_amx")
    f.intrinsic("llvm.x86.ldtilecfg", "void", f.at(own, 128))
    for tile in range(4):
        f.intrinsic("llvm.x86.tilezero", "void", constants=f"i8 {tile}")
    for tile in range(4, 8):
        # with a stride of nothing, every row is the same 64 bytes
        f.intrinsic("llvm.x86.tileloadd64", "void", Value(str(tile), "i8"), own, i64(0))
    with f.loop(0, v["turns"]):
        for total, left, right in ((0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)):
            constants = f"i8 {total}, i8 {left}, i8 {right}"
            f.intrinsic("llvm.x86.tdpbf16ps", "void", constants=constants)
    f.intrinsic("llvm.x86.tilerelease", "void")
    return f


def _read(isa: Isa) -> Function:
    """Read a buffer from end to end, `turns` times."""
    f, v, own = _start("roof_read")
    kind = vector(isa.lanes, "i32")
    width = 4 * isa.lanes
    chains = [zero(kind)] * (_LOADS // 2)
    with f.loop(0, v["turns"], carry=chains) as turn:
        with f.loop(0, v["bytes"], step=_LOADS * width, carry=turn.values) as loop:
            place = f.at(own, loop.index)
            sums = list(loop.values)
            for number in range(_LOADS):
                found = f.load(kind, f.at(place, number * width))
                chain = number % len(sums)
                sums[chain] = f.let(kind, f"or {sums[chain]}, {found.name}")
            loop.carry(sums)
        turn.carry(loop.results)
    for number, total in enumerate(turn.results):
        f.store(total, f.at(own, width * number))
    return f


def _constants() -> bytes:
    """Operands that neither grow nor vanish, and the shape of all tiles: 16 rows of 64 bytes."""
    shape = struct.pack("<BB14x8H16x8B8x", 1, 0, *[64] * 8, *[16] * 8)
    return struct.pack("<16f16f", *[0.5] * 16, *[1.0] * 16) + shape


def _cache_bytes(index: int) -> int:
    """Size of one of the first CPU's caches; 0 where the system does not tell."""
    path = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size")
    try:
        return int(path.read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


def _first_cache() -> int:
    return _cache_bytes(0) or 32 << 10


def _last_cache() -> int:
    return _cache_bytes(3) or 16 << 20
