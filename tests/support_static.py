"""Static plans drawn at random, and what their products must be within."""

from itertools import pairwise

import numpy as np
import torch

from sparsetile.machine import MachineSpec
from sparsetile.plan._cost import Cost
from sparsetile.plan.static._plan import StaticPlan

VECTOR = {"float16": 4, "float32": 2}


def machine(tiles, memory=1 << 24, bus=1):
    return MachineSpec(
        name="test",
        tiles=tiles,
        memory_per_tile=memory,
        clock_hz=1e9,
        exchange_bytes_per_cycle=4,
        memory_bytes_per_cycle=24,
        flops_float16=128,
        flops_mixed=64,
        flops_float32=32,
        workers=6,
        tiles_per_bus=bus,
    )


def bounds(rng, size, parts, least):
    """Random bounds of parts, each of `least` or more."""
    inner = np.sort(rng.integers(0, size - least * parts + 1, parts - 1))
    inner += least * np.arange(1, parts)
    return (0, *inner.tolist(), size)


def make_plan(pattern, n, dtype, *, tiles=8, seed=0, intervals=None, bands=None, preprocess=True):
    """A valid plan with random intervals, bands and tiles."""
    rng = np.random.default_rng(seed)
    grain = VECTOR[dtype]
    grains, columns = -(-n // grain), pattern.grid[1]
    intervals = min(grains, tiles, intervals or int(rng.integers(1, 5)))
    bands = min(tiles // intervals, bands or int(rng.integers(1, 7)))
    split_tiles = bounds(rng, tiles, intervals, bands)
    band_tiles = tuple(
        tuple(low + at for at in bounds(rng, high - low, bands, 1))
        for low, high in pairwise(split_tiles)
    )
    return StaticPlan(
        machine=machine(tiles),
        pattern=pattern,
        n=n,
        dtype=dtype,
        preprocess=preprocess,
        column_starts=tuple(grain * at for at in bounds(rng, grains, intervals, 1)),
        split_tiles=split_tiles,
        band_starts=bounds(rng, columns, bands, 0),
        band_tiles=band_tiles,
        cost=Cost(()),
    )


def assert_product(y, A, x):
    """Fail unless `y` is the product of A and x as well as its dtype can tell.

    float32: 1e-5 of the sums of magnitudes, which bounds whatever order of addition. float16:
    partial sums are made in float32 and rounded once, and so is their sum. Rounding changes a
    number by at most 2**-11 of it, or half of the least number, 2**-25. Magnitudes of the partial
    sums of an element add up to at most those of its products, so their roundings to 2**-11 of
    these; the last one adds 2**-11 of the result.
    """
    dense, x = A.to_dense().double(), x.double()
    exact, magnitude = dense @ x, dense.abs() @ x.abs()
    error = (y.double() - exact).abs()
    if y.dtype == torch.float16:
        limit = 2**-11 * (magnitude + exact.abs()) + 1e-5 * magnitude + 64 * 2**-25
    else:
        limit = 1e-5 * magnitude
    assert bool((error <= limit).all())
