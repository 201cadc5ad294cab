"""What the processor can do, as far as the kernels care."""

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

VARIABLE = "SPARSETILE_ISA"


@dataclass(frozen=True)
class Isa:
    """An instruction set: how wide its float vectors are, how many registers hold them, and more.

    On x86 each instruction set of :data:`LEVELS` includes those before it.
    """

    name: str
    lanes: int  # float32 numbers in a vector
    registers: int
    cpu: str  # LLVM's name of the processor
    features: str  # LLVM's feature string
    has_bf16_dot: bool = False  # sums of products of bfloat16 pairs: ``vdpbf16ps``
    has_amx: bool = False  # tiles of bfloat16, and leave of the system to use them


# Each on the first processor that had it; code for another processor is compiled for this one.
LEVELS = {
    isa.name: isa
    for isa in (
        Isa("avx2", 8, 16, "haswell", ""),
        Isa("avx512", 16, 32, "skylake-avx512", ""),
        Isa("avx512bf16", 16, 32, "cooperlake", "", has_bf16_dot=True),
        Isa("amx", 16, 32, "sapphirerapids", "", has_bf16_dot=True, has_amx=True),
        Isa("neon", 4, 32, "neoverse-n1", ""),
    )
}
# What LLVM must report for an x86 level, besides all that the levels before it need.
_NEEDS = {
    "avx2": ("avx2", "fma", "f16c"),
    "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx512bf16": ("avx512bf16",),
    "amx": ("amx-tile", "amx-bf16"),
}


@cache
def host() -> Isa:
    """Choose the instruction set of this process: ``SPARSETILE_ISA``, else the processor's best.

    Raises:
        ImportError: If there is no LLVM, or no kernels for this processor.
        ValueError: If ``SPARSETILE_ISA`` names none, or one that cannot run here.
    """
    import llvmlite.binding as llvm

    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features()
    able = supported()
    if not able:
        raise ImportError(
            "the kernels need AVX2 with FMA and F16C, AVX-512 or 64-bit Arm, "
            f"and this processor is {cpu}"
        )
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in able:
        why = f"cannot run on this processor, {cpu}" if wanted in LEVELS else "is not known"
        raise ValueError(
            f"{VARIABLE}: the instruction set {wanted!r} {why}; "
            f"choose one of {', '.join(able)}, or unset it for {able[-1]}"
        )
    if wanted and wanted != able[-1]:
        return LEVELS[wanted]
    return replace(LEVELS[able[-1]], cpu=cpu, features=features.flatten())


def instruction_sets() -> tuple[str, tuple[str, ...]]:
    """Return the name of the instruction set in use, and of all that can run here."""
    return host().name, supported()


@cache
def supported() -> tuple[str, ...]:
    """List the instruction sets that can run here, the best last; see :data:`LEVELS`."""
    import llvmlite.binding as llvm

    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        return ("neon",)
    able = levels(llvm.get_host_cpu_features())
    return able[:-1] if able[-1:] == ("amx",) and not _may_use_tiles() else able


def levels(features: Mapping[str, bool]) -> tuple[str, ...]:
    """List the x86 instruction sets of a processor with these features, the best last."""
    able = []
    for name, needs in _NEEDS.items():
        if not all(features.get(feature) for feature in needs):
            break
        able.append(name)
    return tuple(able)


def _may_use_tiles() -> bool:
    """Ask Linux for leave to use the tile registers; the process and its children keep it."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


@cache
def second_cache() -> int:
    """Return the bytes of a core's second cache; one mebibyte where the system does not tell."""
    size = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        return int(size.read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 1 << 20
