"""The code that LLVM makes of each kernel: as many FMAs as meant, nothing spilled, no calls."""

import re

import pytest

from sparsetile.ops.cpu import _jit
from sparsetile.ops.cpu._dot import DotKernel
from sparsetile.ops.cpu._isa import Isa
from sparsetile.ops.cpu._outer import OuterKernel
from sparsetile.ops.cpu._panel import PanelKernel
from sparsetile.ops.cpu._panel_plan import tile_rows
from sparsetile.ops.cpu._sliced import SlicedKernel

AVX512 = Isa("avx512", 16, 32, "skylake-avx512", "")
AVX2 = Isa("avx2", 8, 16, "haswell", "")


def panel(isa, block, vectors, transposed):
    rows = tile_rows(block[0], vectors, isa.registers)
    kernel = PanelKernel(isa.lanes, block, rows, vectors, transposed, True, True)
    return kernel.ir(), rows * vectors * min(block[1], kernel.unroll)


def sliced(isa, block, together, vectors):
    kernel = SlicedKernel(isa.lanes, block, together, vectors, False, True, True)
    return kernel.ir(), together * vectors * block[0] * block[1]


def outer(isa, block, sums, expected):
    narrow = 2 * block[1] <= isa.lanes
    return OuterKernel(isa.lanes, sums, block, narrow, False, False).ir(), expected


def dot(isa, block, together, vectors):
    kernel = DotKernel(isa.lanes, block, together, vectors, False, False)
    # the first vector of each sum is a product, not an FMA
    return kernel.ir(), isa.lanes * (vectors - 1)


CASES = {
    **{
        f"panel-{isa.name}-b{b}-T{t}{'-transposed' if way else ''}": (
            isa,
            panel(isa, (b, b), t, way),
        )
        for isa in (AVX512, AVX2)
        for b in (8, 16, 32, 64)
        for t in (1, 2, 3)
        for way in (False, True)
    },
    "sliced-avx512-b1": (AVX512, sliced(AVX512, (1, 1), 8, 2)),
    "sliced-avx512-b2": (AVX512, sliced(AVX512, (2, 2), 4, 2)),
    "sliced-avx512-b4": (AVX512, sliced(AVX512, (4, 4), 2, 2)),
    "sliced-avx2-b4": (AVX2, sliced(AVX2, (4, 4), 1, 2)),
    # sums at once × two terms a turn
    "outer-avx512-b4": (AVX512, outer(AVX512, (4, 4), 24, 16 * 2)),
    "outer-avx512-b8": (AVX512, outer(AVX512, (8, 8), 24, 24 * 2)),
    "outer-avx512-b16": (AVX512, outer(AVX512, (16, 16), 24, 24 * 2)),
    "outer-avx512-b32": (AVX512, outer(AVX512, (32, 32), 24, 16 * 2)),
    "outer-avx2-b16": (AVX2, outer(AVX2, (16, 16), 10, 8 * 2)),
    "dot-avx512-b1": (AVX512, dot(AVX512, (1, 1), 4, 4)),
    "dot-avx512-b2": (AVX512, dot(AVX512, (2, 2), 4, 4)),
}


def hottest_block(ir, isa):
    """The basic block with the most FMAs, as lines."""
    blocks = re.split(r"^\.LBB\w+:", _jit.assembly(ir, isa), flags=re.MULTILINE)
    lines = [[line.strip() for line in block.splitlines()] for block in blocks]
    return max(lines, key=fmas)


def fmas(lines):
    return sum(line.startswith("vfmadd") for line in lines)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_hot_loop_holds_the_expected_fmas_and_no_spill(case):
    isa, (ir, expected) = case
    lines = hottest_block(ir, isa)
    assert fmas(lines) == expected
    assert not [line for line in lines if "(%rsp" in line and "mm" in line]
    assert not [line for line in lines if line.startswith("call")]


@pytest.mark.parametrize("block", [4, 16])
def test_kernels_compile_for_64_bit_arm(block):
    isa = Isa("neon", 4, 32, "neoverse-n1", "")
    rows = tile_rows(block, 3, isa.registers)
    kernel = PanelKernel(isa.lanes, (block, block), rows, 3, False, True, True)
    text = _jit.assembly(kernel.ir(), isa, triple="aarch64-unknown-linux-gnu")
    assert len(re.findall(r"\bfmla\b", text)) == rows * 3 * min(block, kernel.unroll)
