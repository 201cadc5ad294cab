"""What this machine is and which kernels run on it."""

import os
import warnings
from collections.abc import Sequence

import torch

from sparsetile.bench._machine import commit, cpu_name, package_versions
from sparsetile.matrix import random_pattern
from sparsetile.ops import backends, last_kernel, linear

BLOCKSIZES = (1, 4, 8, 16, 32, 64)
# Of the hundred features LLVM knows, those that decide which kernels are made.
_TELLING = (
    "avx2",
    "fma",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512bf16",
    "avx512fp16",
    "amx-tile",
    "amx-bf16",
    "neon",
    "sve",
)


def facts() -> dict[str, str]:
    """The facts a result depends on, as name and text.

    Returns:
        Versions, processor, threads, back ends, kernels and cache folder, in reading order.

    Examples:
        >>> "torch" in facts()["versions"]
        True
    """
    found = {
        "versions": ", ".join(f"{name} {v}" for name, v in package_versions().items()),
        "processor": f"{cpu_name()}, {os.cpu_count()} CPUs",
    }
    if commit():
        found["commit"] = commit()
    try:
        from llvmlite import binding

        features = binding.get_host_cpu_features()
        has = [name for name in _TELLING if features.get(name)]
        found["LLVM"] = ".".join(map(str, binding.llvm_version_info))
        found["LLVM target"] = f"{binding.get_host_cpu_name()}: {', '.join(has) or 'no vectors'}"
    except (ImportError, OSError) as error:
        found["LLVM"] = f"none ({error})"
    found["threads"] = f"{torch.get_num_threads()}, of torch's pool"
    found["back ends"] = "; ".join(
        f"{name}: {'ready' if reason is None else reason}" for name, reason in _backends().items()
    )
    for what, names in kernels().items():
        found[f"kernels, {what}"] = names
    if _backends()["cpu"] is None:
        from sparsetile.ops.cpu import cache_folder, instruction_sets

        chosen, able = instruction_sets()
        found["instruction set"] = f"{chosen}; SPARSETILE_ISA chooses from {', '.join(able)}"
        found["kernel cache"] = str(cache_folder())
    return found


def kernels(blocksizes: Sequence[int] = BLOCKSIZES) -> dict[str, str]:
    """Which back end runs the products, found by running small ones.

    Args:
        blocksizes: Sides of the blocks to try.

    Returns:
        For the forward product and for training, the block sizes by back end.
    """
    found: dict[str, dict[str, list[str]]] = {"forward": {}, "weight gradient": {}}
    for blocksize in blocksizes:
        pattern = random_pattern(64, 64, blocksize=blocksize, density=1.0, seed=0)
        values = torch.zeros(pattern.nnzb, blocksize, blocksize, requires_grad=True)
        y = linear(torch.zeros(64, 64), values, pattern)
        ran = [last_kernel()]
        y.sum().backward()
        ran.append(last_kernel())
        for what, name in zip(found, ran, strict=True):
            backend = name.partition(":")[0]
            found[what].setdefault(backend, []).append(f"{blocksize}×{blocksize}")
    return {
        what: "; ".join(f"{backend}: {', '.join(sizes)}" for backend, sizes in by.items())
        for what, by in found.items()
    }


def _backends() -> dict[str, str | None]:
    with warnings.catch_warnings():
        # A missing back end warns; here its reason is shown in its place.
        warnings.simplefilter("ignore", RuntimeWarning)
        return backends()
