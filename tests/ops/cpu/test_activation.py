"""Activations in registers, against torch in float64 over all of float32's range."""

import ctypes
import re
from dataclasses import dataclass

import pytest
import torch

from sparsetile.ops._activation import ACTIVATIONS
from sparsetile.ops.cpu import _jit
from sparsetile.ops.cpu._activation import activate
from sparsetile.ops.cpu._emit import Function, module, vector
from sparsetile.ops.cpu._isa import LEVELS, host

STEP = 2.0**-23  # between float32 numbers, relative


@dataclass(frozen=True)
class Kernel:
    """A function that applies an activation to ``count`` numbers in place."""

    name: str
    lanes: int

    def ir(self):
        f = Function("apply", [("x", "ptr"), ("count", "i64")])
        with f.loop(0, f.args[1], step=self.lanes) as loop:
            at = f.at(f.args[0], f.mul(loop.index, 4))
            f.store(activate(f, self.name, f.load(vector(self.lanes), at)), at)
        return module([f])


def applied(name, x, lanes):
    address = _jit.load(Kernel(name, lanes), ["apply"])["apply"]
    x = torch.nn.functional.pad(x, (0, -len(x) % lanes))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(address)
    call(x.data_ptr(), len(x))
    return x


def grid():
    """Every exponent and sign of float32, and dense stretches where the functions bend."""
    steps = torch.linspace(1, 2, 65, dtype=torch.float64)[:-1]
    powers = torch.arange(-149, 128, dtype=torch.float64).exp2()
    bends = torch.linspace(0, 110, 100_001).double()
    sizes = torch.cat([(powers[:, None] * steps).flatten(), bends])
    return torch.cat([sizes, -sizes]).float()


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("name", ["", *ACTIVATIONS])
def test_each_follows_torch_in_float64(name, lanes):
    x = grid()
    got = applied(name, x, lanes)[: len(x)].double()
    want = ACTIVATIONS[name](x.double()) if name else x.double()
    # far out, gelu_tanh rounds the large argument of its exponential
    relative = 32 if name == "gelu_tanh" else 4
    # and where 1 + tanh and 1 + erf nearly vanish torch has no digits left: see the test below
    assert ((got - want).abs() <= relative * STEP * want.abs() + 1e-14).all()


TAILS = {
    "gelu": lambda x: torch.special.erfc(-x / 2**0.5) / 2 * x,
    "gelu_tanh": lambda x: x * torch.sigmoid((8 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)),
    "silu": lambda x: x * torch.sigmoid(x),
}


@pytest.mark.parametrize(("name", "most"), [("gelu", 4), ("gelu_tanh", 128), ("silu", 4)])
def test_tails_are_near_the_last_place(name, most):
    x = -torch.linspace(0, 100, 400_001)
    got = applied(name, x, host().lanes)[: len(x)].double()
    exact = TAILS[name](x.double())
    assert ((got - exact).abs() <= most * STEP * exact.abs() + 2.0**-142).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_infinities_nan_and_zeros_are_as_torch_has_them(name):
    nan_with_payload = torch.tensor([0x7FC00001, 0x7F800001, -1], dtype=torch.int32)
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0, 3e38, -3e38])
    x = torch.cat([special, nan_with_payload.view(torch.float32)])
    got = applied(name, x, host().lanes)[: len(x)]
    want = ACTIVATIONS[name](x.double()).float()
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_code_makes_no_calls_and_takes_no_branches(name, isa):
    text = _jit.assembly(Kernel(name, LEVELS[isa].lanes).ir(), LEVELS[isa])
    assert not re.search(r"\bcall", text)
    assert len(re.findall(r"^\s+j[a-z]+\s", text, re.MULTILINE)) <= 3  # those of the loop


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_code_makes_no_calls_on_64_bit_arm(name):
    text = _jit.assembly(Kernel(name, 4).ir(), LEVELS["neon"], triple="aarch64-unknown-linux-gnu")
    assert not re.search(r"\bblr?\b", text)
