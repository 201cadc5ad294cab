"""The operators under torch.library's checks, torch.compile and torch.export."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode

from sparsetile.matrix import random_pattern
from sparsetile.ops import last_kernel, linear, linear_from_indices, sddmm, spmm
from support import without_type_checks
from support_ops import values_for

OPS = torch.ops.sparsetile
PATTERN = random_pattern(7, 13, blocksize=(3, 4), density=0.5, seed=0)
INDICES = PATTERN.crow_indices, PATTERN.col_indices


@pytest.fixture(autouse=True)
def _compiled(on_reference):
    """Compiled code is traced without the test suite's shape checks, as a user has it."""
    torch._dynamo.reset()
    with without_type_checks():
        yield
    torch._dynamo.reset()


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def weight():
    return values_for(PATTERN).requires_grad_()


CASES = {
    "linear": (
        OPS.linear.default,
        lambda: (leaf(2, 13), weight(), *INDICES, leaf(7), 7, 13, False),
    ),
    "linear, no bias, batch": (
        OPS.linear.default,
        lambda: (leaf(2, 3, 13), weight(), *INDICES, None, 7, 13, False),
    ),
    "linear, transposed": (
        OPS.linear.default,
        lambda: (leaf(2, 7), weight(), *INDICES, None, 7, 13, True),
    ),
    "spmm": (OPS.spmm.default, lambda: (weight(), *INDICES, leaf(2, 13, 3), 7, 13, False)),
    "spmm, a matrix each": (
        OPS.spmm.default,
        lambda: (leaf(2, PATTERN.nnzb, 3, 4), *INDICES, leaf(2, 7, 3), 7, 13, True),
    ),
    "sddmm": (OPS.sddmm.default, lambda: (leaf(2, 7, 3), leaf(2, 3, 13), *INDICES, 3, 4, False)),
    "sddmm, summed": (
        OPS.sddmm.default,
        lambda: (leaf(2, 7, 3), leaf(2, 3, 13), *INDICES, 3, 4, True),
    ),
}


@pytest.mark.parametrize("op, make", CASES.values(), ids=CASES.keys())
def test_operators_pass_opcheck(op, make):
    results = torch.library.opcheck(op, make())
    assert set(results.values()) == {"SUCCESS"}


class Layer(nn.Module):
    """A layer as room nn builds it: values a parameter, indices buffers."""

    def __init__(self):
        super().__init__()
        self.values = nn.Parameter(values_for(PATTERN, padding=0.0))
        self.bias = nn.Parameter(torch.randn(7))
        self.register_buffer("crow", PATTERN.crow_indices.clone())
        self.register_buffer("col", PATTERN.col_indices.clone())

    def forward(self, x):
        return linear_from_indices(x, self.values, self.crow, self.col, (7, 13), self.bias)


FUNCTIONS = {
    "linear": (lambda x, v, b: linear(x, v, PATTERN, b), lambda: (leaf(5, 13), weight(), leaf(7))),
    "spmm": (lambda v, x: spmm(v, PATTERN, x), lambda: (weight(), leaf(2, 13, 3))),
    "sddmm": (lambda a, b: sddmm(a, b, PATTERN), lambda: (leaf(2, 7, 3), leaf(3, 13))),
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function, make", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_products_compile_whole_forward_and_backward(function, make, dynamic):
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    leaves = make()
    y, want = compiled(*leaves), function(*leaves)
    assert torch.equal(y, want)
    got = torch.autograd.grad(y.sin().sum(), leaves)
    for a, b in zip(got, torch.autograd.grad(want.sin().sum(), leaves), strict=True):
        assert torch.equal(a, b)


def test_compiled_layer_sees_indices_changed_in_place_without_compiling_again():
    counter = CompileCounterWithBackend("aot_eager")
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    x = torch.randn(5, 13)
    compiled(x).sum().backward()
    with torch.no_grad():
        other = random_pattern(7, 13, blocksize=(3, 4), density=0.5, seed=9)
        assert other.nnzb == PATTERN.nnzb and other != PATTERN
        layer.crow.copy_(other.crow_indices)
        layer.col.copy_(other.col_indices)
    y = compiled(x)
    assert torch.equal(y, linear(x, layer.values, other, layer.bias))
    y.sum().backward()
    assert counter.frame_count == 1


def test_compiled_layer_takes_new_batch_sizes_with_one_more_graph():
    counter = CompileCounterWithBackend("aot_eager")
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend=counter)
    for n in (5, 6, 7, 9):
        x = torch.randn(n, 13)
        assert torch.equal(compiled(x), layer(x))
    assert counter.frame_count == 2


def test_compiled_autocast_casts_as_eager():
    def product(x, v, b):
        with torch.autocast("cpu", torch.bfloat16):
            return linear(x, v, PATTERN, b)

    leaves = leaf(5, 13), weight(), leaf(7)
    y = torch.compile(product, fullgraph=True, backend="aot_eager")(*leaves)
    assert torch.equal(y, product(*leaves))
    grads = torch.autograd.grad(y.float().sum(), leaves)
    assert [g.dtype for g in grads] == [torch.float32] * 3


@pytest.mark.parametrize("strict", [False, True])
def test_layer_exports_with_dynamic_batch(strict):
    layer, n = Layer(), torch.export.Dim("n")
    program = torch.export.export(
        layer, (torch.randn(5, 13),), dynamic_shapes=({0: n},), strict=strict
    )
    x = torch.randn(9, 13)
    assert torch.equal(program.module()(x), layer(x))
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert calls == [OPS.linear.default]


def test_fake_tensors_give_shapes_without_computing():
    linear(torch.randn(2, 13), weight(), PATTERN)
    before = last_kernel()
    with FakeTensorMode() as mode:
        x, values = torch.randn(2, 5, 13), torch.randn(PATTERN.nnzb, 3, 4)
        crow, col = (mode.from_tensor(t) for t in INDICES)
        y = linear_from_indices(x, values, crow, col, (7, 13))
    assert y.shape == (2, 5, 7)
    assert last_kernel() == before


def test_a_profiler_sees_the_operators():
    layer = Layer()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        layer(torch.randn(5, 13))
    assert "sparsetile::linear" in {event.name for event in profile.events()}


# torch's own compiler still imports what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")
def test_products_compile_with_the_default_compiler():
    x, values = leaf(5, 13), weight()
    compiled = torch.compile(lambda x, v: linear(x, v, PATTERN), fullgraph=True)
    y, want = compiled(x, values), linear(x, values, PATTERN)
    assert torch.equal(y, want)
    dy = torch.randn_like(y)
    got = torch.autograd.grad(y, (x, values), dy)
    for a, b in zip(got, torch.autograd.grad(want, (x, values), dy), strict=True):
        assert torch.equal(a, b)
