"""Thousands of random products in one process, whose memory must stop growing.

``python tests/soak.py --calls 10000`` lets three Python threads make, change and drop patterns and
values, and multiply by them in every format and direction on one to three threads; some weights
they share. A sample of the results is compared with dense float64. A wrong result, or memory that
grows in the second half, is an error.
"""

import argparse
import mmap
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.ops import backend, cpu, linear_from_indices
from sparsetile.ops._register import LINEAR, SDDMM, SPMM
from sparsetile.ops.cpu import _threads
from support_agreement import BF16, F16, F32, Sum
from support_ops import blocks_of, dense_of, pattern_from, strided, values_for

# Few enough kinds that all kernels are soon compiled: what grows after that is not code.
FORMATS = [
    ((1, 1), F32, F32),
    ((4, 4), F32, F32),
    ((16, 16), F32, F32),
    ((4, 4), BF16, BF16),
    ((16, 16), BF16, BF16),
    ((1, 1), F32, BF16),
    ((8, 4), F16, F16),
]
COLUMNS = (1, 5, 20, 70)
PYTHON_THREADS = 3
HELD = 4  # weights that a thread holds at a time
CHECKED = 8  # one result in so many is checked
MOST_GROWTH = 24 << 20  # bytes, in the second half of the calls


class Weight:
    """Blocks and indices that change in place."""

    def __init__(self, rng: random.Random) -> None:
        self.blocksize, self.dtype, stored = rng.choice(FORMATS)
        self.shape = rng.randint(1, 150), rng.randint(1, 150)
        self.share = rng.choice((0.05, 0.3, 1.0))
        self.pattern = self._pattern()
        self.indices = self.pattern.crow_indices.clone(), self.pattern.col_indices.clone()
        self.values = values_for(self.pattern, stored)

    def _pattern(self) -> Pattern:
        """Draw a pattern with as many blocks in each row."""
        (m, k), (r, c) = self.shape, self.blocksize
        order = torch.rand(-(-m // r), -(-k // c)).argsort(1)
        return pattern_from(self.shape, self.blocksize, order < max(1, self.share * order.shape[1]))

    def move(self) -> None:
        """Put the blocks elsewhere, in place."""
        self.pattern = self._pattern()
        self.indices[1].copy_(self.pattern.col_indices)
        self.values.copy_(values_for(self.pattern, self.values.dtype))


def multiply(weight: Weight, rng: random.Random) -> tuple[Tensor, Callable[[], Sum], str]:
    """Compute a random product; returns it, what it should be, and what it was."""
    (m, k), n, dtype = weight.shape, rng.choice(COLUMNS), weight.dtype
    transpose, layout = rng.random() < 0.5, rng.choice(("contiguous", "transposed"))
    ops = ("linear", "spmm", "sddmm") if weight.values.dtype == dtype else ("linear", "spmm")
    op, given = rng.choice(ops), (weight.values, *weight.indices)

    def drawn(*shape: int) -> Tensor:
        return strided(torch.randn(shape).to(dtype), layout)

    what = f"{op} {weight.blocksize} {given[0].dtype} {m}x{k} n={n} {transpose} {layout} "
    if op == "sddmm":
        a, b = drawn(2, m, n), drawn(2, n, k)
        s = SDDMM(a, b, *weight.indices, *weight.blocksize, False)
        return s, lambda: Sum.of(a, b).apply(lambda t: blocks_of(t, weight.pattern)), what
    w = dense_of(weight.values.double(), weight.pattern)
    left, width = (w.T, m) if transpose else (w, k)
    if op == "spmm":
        x = drawn(2, width, n)
        return SPMM(*given, x, m, k, transpose), lambda: Sum.of(left, x), what
    x = drawn(n, width)
    if transpose:
        y = LINEAR(x, *given, None, m, k, True)
    else:
        y = linear_from_indices(x, *given, weight.shape)
    return y, lambda: Sum.of(x, left.T), what


def work(seed: int, calls: int, shared: list[Weight]) -> None:
    """Make, change, use and drop weights."""
    rng, held = random.Random(seed), [Weight(random.Random(seed))]
    with backend("cpu"):
        for call in range(calls):
            torch.set_num_threads(rng.choice((1, 2, 3)))
            weight, what = rng.choice(held), rng.random()
            if what < 0.1:
                held = [*held, Weight(rng)][-HELD:]
            elif what < 0.2:
                weight.values.neg_()
            elif what < 0.3:
                weight.move()
            elif what < 0.4:
                weight = rng.choice(shared)
            y, want, name = multiply(weight, rng)
            if call % CHECKED == 0:
                want().agrees(y, weight.dtype, name)


def resident() -> int:
    """Bytes of this process in memory; zero where the system does not tell."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else 0


def main() -> None:
    """Run both halves and compare the memory after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    _threads.WORTH_A_THREAD = 1
    shared = [Weight(random.Random(asked.seed + i)) for i in range(5)]
    after = []
    with ThreadPoolExecutor(PYTHON_THREADS) as pool:
        for half in range(2):
            seeds = [asked.seed + 2 * i + half for i in range(PYTHON_THREADS)]
            calls = asked.calls // (2 * PYTHON_THREADS)
            list(pool.map(lambda seed, calls=calls: work(seed, calls, shared), seeds))
            after.append(resident())
    growth = after[1] - after[0]
    print(f"{cpu.instruction_sets()[0]}: {asked.calls} products, {after[1] >> 20} MB, +{growth}")
    assert growth <= MOST_GROWTH, f"memory grew by {growth} bytes, more than {MOST_GROWTH}"


if __name__ == "__main__":
    main()
