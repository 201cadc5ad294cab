"""What a dense product costs on tiles: the baseline that sparse products are compared with."""

import csv
import math
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from sparsetile.machine import MachineSpec, load_machine, preset
from sparsetile.plan._check import check_dtype, check_sizes
from sparsetile.plan._units import BYTES


class _Law(NamedTuple):
    """Factors of the four phases, fitted to the published rates of dense products."""

    syncs: float
    multiply: float
    move: float
    weights: float


_LAWS = {
    "float16": _Law(13.46, 1.2658, 1.8138, 2.6538),
    "float32": _Law(16.52, 1.2982, 1.7576, 3.9473),
}


def dense_cycles(
    m: int, k: int, n: int, *, dtype: str = "float16", machine: MachineSpec | str = "bow-ipu"
) -> float:
    """Cycles of a dense m×k by k×n product, as the vendor's own library computes it.

    Four phases: synchronisation; multiplication; moving the faces of the box that a tile has of an
    ideal three-dimensional cut; reading the weights once. Their factors are fitted to the dense
    rates that PopSparse (arXiv 2303.16999) shows for an IPU; what remains between the fit and those
    rates (8 % in the mean) is interpolated between the published sizes and dies out within a
    factor of two beyond them. For another machine the phases scale with its figures.

    Args:
        m: Rows of the result.
        k: Rows of the right operand.
        n: Columns of the result.
        dtype: `"float16"` (float16 sums) or `"float32"`.
        machine: A machine, the name of a preset, or a TOML file that describes one.

    Returns:
        Cycles.

    Raises:
        ValueError: If a size is below 1 or there is no such dtype or machine.

    Examples:
        >>> spec = preset("bow-ipu")
        >>> cycles = dense_cycles(4096, 4096, 1024, machine=spec)
        >>> round(2 * 4096 * 4096 * 1024 / spec.seconds(cycles) / 1e12)
        206
    """
    m, k, n = check_sizes("dense_cycles", m, k, n)
    check_dtype("dense_cycles", dtype)
    spec = load_machine(machine)
    return dense_law(m, k, n, dtype, spec) * math.exp(_rest(math.sqrt(m * k), n, dtype))


def dense_law(m: int, k: int, n: int, dtype: str, machine: MachineSpec) -> float:
    """Cycles of a dense product by the four phases alone; see `dense_cycles`.

    Examples:
        >>> law = dense_law(4096, 4096, 1024, "float16", preset("bow-ipu"))
        >>> 0.9 < dense_cycles(4096, 4096, 1024) / law < 1.1
        True
    """
    law, z = _LAWS[dtype], BYTES[dtype]
    work = m * k * n / machine.tiles
    macs = (machine.flops_float16 if dtype == "float16" else machine.flops_float32) / 2
    rate = 2 * machine.exchange_bytes_per_cycle
    return (
        law.syncs * machine.sync_cycles
        + law.multiply * work / macs
        + law.move * 3 * work ** (2 / 3) * z / rate
        + law.weights * m * k * z / (rate * machine.tiles)
    )


def _rest(m: float, n: int, dtype: str) -> float:
    """Logarithm of published cycles over the law's, between and a little beyond their sizes."""
    table = _published()[dtype]
    at, sizes = math.log2(m), [math.log2(size) for size in table]
    rest = float(np.interp(at, sizes, [_along(row, n) for row in table.values()]))
    outside = max(sizes[0] - at, at - sizes[-1], 0.0)
    return rest * max(0.0, 1 - outside)


def _along(row: dict[int, float], n: int) -> float:
    at, sizes = math.log2(n), [math.log2(size) for size in row]
    rest = float(np.interp(at, sizes, list(row.values())))
    outside = max(sizes[0] - at, at - sizes[-1], 0.0)
    return rest * max(0.0, 1 - outside)


@lru_cache(maxsize=1)
def _published() -> dict[str, dict[int, dict[int, float]]]:
    """By dtype, m = k and n: logarithm of published cycles over the law's."""
    machine = preset("bow-ipu")
    table: dict[str, dict[int, dict[int, float]]] = {}
    text = files("sparsetile.plan.dense").joinpath("published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        m, n, dtype = int(row["m"]), int(row["n"]), row["dtype"]
        cycles = 2 * m * m * n / (float(row["tflops"]) * 1e12) * machine.clock_hz
        law = dense_law(m, m, n, dtype, machine)
        table.setdefault(dtype, {}).setdefault(m, {})[n] = math.log(cycles / law)
    return table
