"""The code that LLVM makes of each kernel: as many FMAs as meant, nothing spilled, no calls."""

import re

import pytest
import torch

from sparsetile.ops.cpu import _jit
from sparsetile.ops.cpu._dot import DotKernel
from sparsetile.ops.cpu._isa import LEVELS
from sparsetile.ops.cpu._number import numbers_of
from sparsetile.ops.cpu._outer import OuterKernel
from sparsetile.ops.cpu._panel import PanelKernel
from sparsetile.ops.cpu._panel_plan import tile_rows
from sparsetile.ops.cpu._sliced import SlicedKernel

AVX2, AVX512, AVX512BF16, NEON = (LEVELS[name] for name in ("avx2", "avx512", "avx512bf16", "neon"))
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
TRIPLES = {"neon": "aarch64-unknown-linux-gnu"}
# What multiplies and adds a vector: of float32 numbers, of pairs of bfloat16.
MULTIPLY_ADD = re.compile(r"vfmadd\d+ps|vdpbf16ps|fmla")
# Whole vectors that go to the stack.
SPILL = re.compile(r"vmov\w+\s+%[xyz]mm\d+, \d*\(%rsp|st[rp]\s+q\d+,.*\[sp")


def panel(isa, block, vectors, transposed, dtype=F32, stored=None):
    numbers = numbers_of(isa, dtype, stored or dtype, inner=block[1])
    most = {"avx2": (8, 4, 4), "neon": (16, 8)}.get(isa.name, (16, 8, 8))
    rows = tile_rows(block[0], most[vectors - 1])
    units = (block[0], block[1] // numbers.per_unit)
    kernel = PanelKernel(isa.lanes, numbers, units, rows, vectors, transposed, True, True)
    return kernel.ir(), rows * vectors * min(units[1], kernel.unroll)


def sliced(isa, block, together, vectors, dtype=F32):
    numbers = numbers_of(isa, dtype, dtype, inner=block[1])
    units = (block[0], block[1] // numbers.per_unit)
    kernel = SlicedKernel(isa.lanes, numbers, units, together, vectors, False, True, True)
    return kernel.ir(), together * vectors * units[0] * units[1]


def outer(isa, block, sums, expected, dtype=F32):
    numbers = numbers_of(isa, dtype, dtype, inner=2)
    narrow = 2 * block[1] <= isa.lanes
    return OuterKernel(isa.lanes, numbers, sums, block, narrow, False, False).ir(), expected


def dot(isa, block, together, vectors):
    numbers = numbers_of(isa, F32, F32, inner=1)
    kernel = DotKernel(isa.lanes, numbers, block, together, vectors, False, False)
    # the first vector of each sum is a product, not an FMA
    return kernel.ir(), isa.lanes * (vectors - 1)


CASES = {
    **{
        f"panel-{isa.name}-b{b}-T{t}{'-transposed' if way else ''}": (
            isa,
            panel(isa, (b, b), t, way),
        )
        for isa in (AVX512, AVX2, NEON)
        for b in (8, 16, 32, 64)
        for t in ((1, 2) if isa is NEON else (1, 2, 3))
        for way in (False, True)
    },
    **{
        f"panel-{isa.name}-b{b}-{name}": (isa, panel(isa, (b, b), 2, False, *dtypes))
        for isa in (AVX512BF16, AVX2, NEON)
        for b in (8, 16)
        for name, dtypes in {
            "bf16": (BF16, BF16),
            "f16": (F16, F16),
            "f32*bf16": (F32, BF16),
        }.items()
    },
    "sliced-avx512-b1": (AVX512, sliced(AVX512, (1, 1), 8, 2)),
    "sliced-avx512-b2": (AVX512, sliced(AVX512, (2, 2), 4, 2)),
    "sliced-avx512-b4": (AVX512, sliced(AVX512, (4, 4), 2, 2)),
    "sliced-avx2-b4": (AVX2, sliced(AVX2, (4, 4), 1, 2)),
    "sliced-neon-b1": (NEON, sliced(NEON, (1, 1), 8, 2)),
    "sliced-neon-b4": (NEON, sliced(NEON, (4, 4), 2, 2)),
    "sliced-avx512bf16-b4-bf16": (AVX512BF16, sliced(AVX512BF16, (4, 4), 2, 2, BF16)),
    "sliced-neon-b4-f16": (NEON, sliced(NEON, (4, 4), 2, 2, F16)),
    # sums at once × two terms a turn
    "outer-avx512-b4": (AVX512, outer(AVX512, (4, 4), 24, 16 * 2)),
    "outer-avx512-b8": (AVX512, outer(AVX512, (8, 8), 24, 24 * 2)),
    "outer-avx512-b16": (AVX512, outer(AVX512, (16, 16), 24, 24 * 2)),
    "outer-avx512-b32": (AVX512, outer(AVX512, (32, 32), 24, 16 * 2)),
    "outer-avx512bf16-b16-bf16": (AVX512BF16, outer(AVX512BF16, (16, 16), 24, 24 * 2, BF16)),
    "outer-avx2-b16": (AVX2, outer(AVX2, (16, 16), 10, 8 * 2)),
    "outer-neon-b16": (NEON, outer(NEON, (16, 16), 24, 16 * 2)),
    "dot-avx512-b1": (AVX512, dot(AVX512, (1, 1), 4, 4)),
    "dot-avx512-b2": (AVX512, dot(AVX512, (2, 2), 4, 4)),
    "dot-neon-b1": (NEON, dot(NEON, (1, 1), 4, 4)),
}


def hottest_block(ir, isa):
    """The basic block that multiplies and adds most, as lines."""
    text = _jit.assembly(ir, isa, TRIPLES.get(isa.name, "x86_64-unknown-linux-gnu"))
    blocks = re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE)
    lines = [[line.strip() for line in block.splitlines()] for block in blocks]
    return max(lines, key=multiply_adds)


def multiply_adds(lines):
    return sum(MULTIPLY_ADD.match(line) is not None for line in lines)


def widened(ir):
    """Numbers that a module's kernels keep on the stack on purpose."""
    return sum(int(size) // 4 for size in re.findall(r"alloca \[(\d+) x i8]", ir))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_hot_loop_holds_the_expected_fmas_and_no_spill(case):
    isa, (ir, expected) = case
    lines = hottest_block(ir, isa)
    assert multiply_adds(lines) == expected
    assert not [line for line in lines if re.match(r"(call|bl)\b", line)]
    # 16-bit blocks are widened to a small buffer there
    stored = sum(line.startswith("stp") + 1 for line in lines if SPILL.match(line))
    assert stored * isa.lanes <= widened(ir)
