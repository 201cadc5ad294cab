import re

import pytest
import torch

from sparsetile.ops.cpu import Roofline, roofline
from sparsetile.ops.cpu._isa import LEVELS, host
from sparsetile.ops.cpu._jit import assembly
from sparsetile.ops.cpu._roofline import RooflineKernels

MULTIPLY = {"fma": "vfmadd", "dot": "vdpbf16ps", "amx": "tdpbf16ps"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_speed_is_measured(dtype):
    roof = roofline(dtype, threads=1, seconds=0.02)
    assert isinstance(roof, Roofline)
    assert roof.isa == host().name
    assert min(roof.peak, roof.l1, roof.l2, roof.l3, roof.memory) > 0
    assert roof.unit == (RooflineKernels(host()).units[-1] if dtype is torch.bfloat16 else "fma")


def test_several_threads_share_the_work():
    assert roofline(threads=2, seconds=0.02).threads == 2


def test_threads_are_those_of_torch():
    assert roofline(seconds=0.01).threads == torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (dict(dtype=torch.int8), r"torch.int8 was asked for, .* torch.float32.*; give one"),
        (dict(threads=0), "threads is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(args, message):
    with pytest.raises(ValueError, match=message):
        roofline(**args)


@pytest.mark.parametrize("level", ["avx2", "avx512", "avx512bf16", "amx"])
def test_the_loops_hold_multiplications_and_loads_alone(level):
    isa = LEVELS[level]
    kernels = RooflineKernels(isa)
    text = assembly(kernels.ir(), isa, "x86_64-unknown-linux-gnu")
    for unit in kernels.units:
        loop = hottest_block(text, f"roof_{unit}", MULTIPLY[unit])
        expected = 4 if unit == "amx" else min(16, isa.registers - 4)
        assert sum(MULTIPLY[unit] in line for line in loop) == expected
        assert len(loop) <= expected + 4
        assert not any("(%r" in line for line in loop)  # neither loads nor spills
    loop = hottest_block(text, "roof_read", "(%r")
    assert sum("(%r" in line for line in loop) == 16
    assert not any("(%rsp" in line for line in loop)


def hottest_block(text, name, part):
    """The instructions of the basic block of a function in which a part is found most."""
    body = text[text.index(f"\n{name}:") :].split(".Lfunc_end")[0]
    blocks = [
        [line for line in block.splitlines() if re.match(r"\t[a-z]", line)]
        for block in re.split(r"^\.LBB\w+:", body, flags=re.MULTILINE)
    ]
    return max(blocks, key=lambda lines: sum(part in line for line in lines))
