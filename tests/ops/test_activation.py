"""Activations: inside the product without a gradient, after it with one, the same to rounding."""

import pytest
import torch
from torch.func import grad, jvp, vmap
from torch.nn import functional as F

from sparsetile.matrix import random_pattern
from sparsetile.ops import linear, linear_from_indices
from support import without_type_checks
from support_ops import assert_close, dense_of, dense_twin, pattern_from, values_for

OP = torch.ops.sparsetile.linear.default
PATTERN = random_pattern(7, 13, blocksize=(3, 4), density=0.5, seed=0)
INDICES = PATTERN.crow_indices, PATTERN.col_indices
TWINS = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "silu": F.silu,
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)

# torch compiles its own forward-mode formulas with a deprecated tool when they are first needed.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script. is deprecated")


@pytest.fixture(params=TWINS)
def name(request):
    return request.param


def operands(dtype=torch.float32, pattern=PATTERN, n=5):
    m, k = pattern.shape
    x, bias = torch.randn(n, k), torch.randn(m)
    return x.to(dtype), values_for(pattern, dtype), bias.to(dtype)


def dense(x, values, bias, name, pattern=PATTERN):
    w = dense_of(dense_twin(values, pattern), pattern)
    return TWINS[name](F.linear(x.double(), w, None if bias is None else bias.double()))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("wanted", [False, True], ids=["fused", "with gradient"])
def test_it_is_torchs_function_of_the_product(compute, name, dtype, wanted):
    x, values, bias = operands(dtype)
    x.requires_grad_(wanted)
    y = compute(
        lambda: linear(x, values, PATTERN, bias, activation=name), ("linear",), dtype, (3, 4)
    )
    if y is not None:
        assert y.requires_grad is wanted
        assert_close(y.detach(), dense(x.detach(), values, bias, name), dtype, "y")


@pytest.mark.parametrize("b", [1, 2, 4, 8, 16, 64])
@pytest.mark.parametrize("n", [1, 3, 33])
def test_it_is_right_at_usual_blocks_and_sizes(compute, name, b, n):
    pattern = random_pattern(3 * b, 4 * b, blocksize=b, density=0.6, seed=0)
    x, values, bias = operands(pattern=pattern, n=n)
    for given in (bias, None):
        y = compute(
            lambda given=given: linear(x, values, pattern, given, activation=name),
            ("linear",),
            x.dtype,
            (b, b),
        )
        assert_close(y, dense(x, values, given, name, pattern), x.dtype, "y")


def test_rows_without_blocks_are_the_function_of_the_bias(compute, name):
    pattern = pattern_from((8, 8), (4, 4), [[0, 0], [0, 0]])
    x, values, bias = operands(pattern=pattern)
    y = compute(
        lambda: linear(x, values, pattern, bias, activation=name), ("linear",), x.dtype, (4, 4)
    )
    assert_close(y, TWINS[name](bias.double()).expand(5, 8), x.dtype, "y")


def test_it_is_applied_before_the_one_rounding(compute):
    # 256 + 1 rounds to 256 in bfloat16, so relu(257 - 256) would be 0 after a rounding in between.
    pattern = random_pattern(1, 257, blocksize=1, density=1.0, seed=0)
    x, values = torch.ones(1, 257).bfloat16(), torch.ones(257, 1, 1).bfloat16()
    bias = torch.tensor([-256.0]).bfloat16()
    y = compute(
        lambda: linear(x, values, pattern, bias, activation="relu"), ("linear",), x.dtype, (1, 1)
    )
    assert y is None or y.item() == 1.0


def test_gradients_are_those_of_the_composition(on_reference, name):
    leaves = [t.double().nan_to_num(0.0).requires_grad_() for t in operands(torch.float64)]

    def fused(x, values, bias):
        return linear(x, values, PATTERN, bias, activation=name)

    assert torch.autograd.gradcheck(fused, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(fused, leaves)


def test_transforms_see_the_composition(on_reference, name):
    x, values, bias = (t.nan_to_num(0.0) for t in operands(torch.float64))

    def fused(x):
        return linear(x, values, PATTERN, bias, activation=name)

    def twin(x):
        return TWINS[name](linear(x, values, PATTERN, bias))

    tangent = torch.randn_like(x)
    torch.testing.assert_close(jvp(fused, (x,), (tangent,)), jvp(twin, (x,), (tangent,)))
    torch.testing.assert_close(vmap(fused)(x), twin(x))
    got = vmap(grad(lambda x: fused(x).sum()))(x)
    torch.testing.assert_close(got, vmap(grad(lambda x: twin(x).sum()))(x))


def test_autocast_applies_it_in_the_dtype_of_autocast(on_reference, name):
    x, values, bias = operands()
    with torch.autocast("cpu", torch.bfloat16):
        y = linear(x, values, PATTERN, bias, activation=name)
    assert_close(y, dense(x, values, bias, name), torch.bfloat16, "y")


@pytest.mark.parametrize("wanted", [False, True], ids=["fused", "with gradient"])
def test_it_compiles_whole(on_reference, name, wanted):
    torch._dynamo.reset()
    leaves = [t.nan_to_num(0.0).requires_grad_(wanted) for t in operands()]

    def product(x, values, bias):
        return linear(x, values, PATTERN, bias, activation=name)

    with without_type_checks():
        y = torch.compile(product, fullgraph=True, backend="aot_eager")(*leaves)
        want = product(*leaves)
    torch.testing.assert_close(y, want)
    if wanted:
        got = torch.autograd.grad(y.sum(), leaves)
        torch.testing.assert_close(got, torch.autograd.grad(want.sum(), leaves))


class Layer(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.values = torch.nn.Parameter(values_for(PATTERN, padding=0.0))
        self.register_buffer("crow", INDICES[0].clone())
        self.register_buffer("col", INDICES[1].clone())
        self.name = name

    def forward(self, x):
        return linear_from_indices(
            x, self.values, self.crow, self.col, (7, 13), activation=self.name
        )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("wanted", [False, True], ids=["no_grad", "grad"])
def test_it_exports_as_one_operator(on_reference, name, strict, wanted):
    torch._dynamo.reset()
    layer, n = Layer(name), torch.export.Dim("n")
    with without_type_checks(), torch.set_grad_enabled(wanted):
        program = torch.export.export(
            layer, (torch.randn(5, 13),), dynamic_shapes=({0: n},), strict=strict
        )
        x = torch.randn(9, 13)
        torch.testing.assert_close(program.module()(x), layer(x))
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert calls == [OP]


@pytest.mark.parametrize("wanted", [False, True], ids=["fused", "with gradient"])
def test_the_operator_passes_opcheck(on_reference, name, wanted):
    x, values, bias = (t.nan_to_num(0.0).requires_grad_(wanted) for t in operands())
    with without_type_checks():
        results = torch.library.opcheck(OP, (x, values, *INDICES, bias, 7, 13, False, name))
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("given", ["tanh", "", "ReLU", torch.relu, 1])
def test_an_unknown_one_is_named(given):
    x, values, bias = operands()
    with without_type_checks():
        for call in (
            lambda: linear(x, values, PATTERN, bias, activation=given),
            lambda: linear_from_indices(x, values, *INDICES, (7, 13), bias, activation=given),
        ):
            with pytest.raises(ValueError, match=r"linear.*activation.*'relu', 'gelu'.*None"):
                call()


def test_the_operator_names_an_unknown_one():
    x, values, bias = operands()
    with pytest.raises(ValueError, match="activation is 'tanh'"):
        OP(x, values, *INDICES, bias, 7, 13, False, "tanh")
