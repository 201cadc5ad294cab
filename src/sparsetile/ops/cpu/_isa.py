"""What the processor can do, as far as the kernels care."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Isa:
    """An instruction set: how wide its float vectors are and how many registers hold them."""

    name: str
    lanes: int  # float32 numbers in a vector
    registers: int
    cpu: str  # LLVM's name of the processor
    features: str  # LLVM's feature string


@cache
def host() -> Isa:
    """Describe the processor this runs on.

    Raises:
        ImportError: If there is no LLVM, or no kernels for this processor.
    """
    import llvmlite.binding as llvm

    cpu = llvm.get_host_cpu_name()
    has = llvm.get_host_cpu_features()
    flags = has.flatten()
    if has.get("avx512f") and has.get("avx512vl") and has.get("avx512dq"):
        return Isa("avx512", 16, 32, cpu, flags)
    if has.get("avx2") and has.get("fma"):
        return Isa("avx2", 8, 16, cpu, flags)
    if llvm.get_process_triple().startswith(("aarch64", "arm64")):
        return Isa("neon", 4, 32, cpu, flags)
    raise ImportError(
        f"the kernels need AVX2 with FMA, AVX-512 or 64-bit Arm, and this processor is {cpu}"
    )


@cache
def second_cache() -> int:
    """Return the bytes of a core's second cache; one mebibyte where the system does not tell."""
    size = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        return int(size.read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 1 << 20
