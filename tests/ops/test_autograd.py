"""Derivatives: first, second, forward mode, only what is needed, and torch.func's transforms."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacrev, jvp, vmap

from sparsetile.matrix import random_pattern
from sparsetile.ops import linear, linear_from_indices, sddmm, spmm
from sparsetile.ops._register import LINEAR
from support import inside
from support_ops import TOLERANCE, blocks_of, dense_of, values_for

# torch compiles its own forward-mode formulas with a deprecated tool when they are first needed.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script. is deprecated")

F64 = torch.float64
PATTERNS = {
    "ragged": random_pattern(7, 8, blocksize=(3, 4), density=0.5, seed=0),
    "unstructured": random_pattern(5, 6, blocksize=1, density=0.4, seed=0),
}


@pytest.fixture(params=PATTERNS.values(), ids=PATTERNS.keys())
def pattern(request):
    return request.param


def operands(pattern, *, lead=(2,), n=3):
    """Float64 leaves of all three products; the padding holds a number that must not matter."""
    m, k = pattern.shape
    tensors = {
        "x": torch.randn(*lead, k, dtype=F64),
        "values": values_for(pattern, F64, padding=3.0),
        "bias": torch.randn(m, dtype=F64),
        "X": torch.randn(*lead, k, n, dtype=F64),
        "a": torch.randn(*lead, m, n, dtype=F64),
        "b": torch.randn(*lead, n, k, dtype=F64),
    }
    return {name: t.requires_grad_() for name, t in tensors.items()}


def products(pattern):
    """Each product as a function of its floating operands, beside its dense twin."""
    stored = inside(pattern)

    def dense(values):
        return dense_of(values * stored, pattern)

    return {
        "linear": (
            ("x", "values", "bias"),
            lambda x, values, bias: linear(x, values, pattern, bias),
            lambda x, values, bias: x @ dense(values).T + bias,
        ),
        "spmm": (
            ("values", "X"),
            lambda values, X: spmm(values, pattern, X),
            lambda values, X: dense(values) @ X,
        ),
        "sddmm": (
            ("a", "b"),
            lambda a, b: sddmm(a, b, pattern),
            lambda a, b: blocks_of(a @ b, pattern),
        ),
    }


def assert_same(got, want):
    """Compare nested results in float64."""
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_first_derivatives_agree_with_differences(on_reference, pattern, op):
    names, product, _ = products(pattern)[op]
    leaves = operands(pattern)
    inputs = tuple(leaves[name] for name in names)
    assert torch.autograd.gradcheck(product, inputs, check_forward_ad=True)


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_second_derivatives_agree_with_differences(on_reference, pattern, op):
    names, product, _ = products(pattern)[op]
    leaves = operands(pattern)
    inputs = tuple(leaves[name] for name in names)
    assert torch.autograd.gradgradcheck(product, inputs)


@pytest.mark.parametrize("wanted", ["x", "values", "bias"])
def test_linear_differentiates_only_what_asks(on_reference, pattern, wanted):
    leaves = {name: t.detach() for name, t in operands(pattern).items()}
    leaves[wanted].requires_grad_()
    y = linear(leaves["x"], leaves["values"], pattern, leaves["bias"])
    with _Calls() as calls:
        y.sum().backward()
    assert calls.ops == {"x": ["linear"], "values": ["sddmm"], "bias": []}[wanted]


def test_linear_keeps_no_input_for_a_frozen_weight(on_reference, pattern):
    leaves = operands(pattern)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        linear(leaves["x"], leaves["values"].detach(), pattern)
    assert all(t is not leaves["x"] for t in saved)


def test_no_graph_is_built_without_grad(on_reference, pattern):
    leaves = operands(pattern)
    with torch.no_grad():
        y = linear(leaves["x"], leaves["values"], pattern, leaves["bias"])
    assert y.grad_fn is None


def test_products_run_in_inference_mode(on_reference, pattern):
    leaves = operands(pattern)
    with torch.inference_mode():
        y = linear(leaves["x"], leaves["values"], pattern)
    assert y.is_inference()


def test_the_operator_itself_is_differentiable(on_reference, pattern):
    leaves = operands(pattern)
    m, k = pattern.shape
    indices = pattern.crow_indices, pattern.col_indices
    y = LINEAR(leaves["x"], leaves["values"], *indices, None, m, k, False)
    want = torch.autograd.grad(linear(leaves["x"], leaves["values"], pattern).sum(), leaves["x"])
    assert_same(torch.autograd.grad(y.sum(), leaves["x"]), want)


def test_forward_mode_carries_tangents(on_reference, pattern):
    leaves = {name: t.detach() for name, t in operands(pattern).items()}
    tangent = torch.randn_like(leaves["x"])
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(leaves["x"], tangent)
        got = forward_ad.unpack_dual(linear(dual, leaves["values"], pattern)).tangent
    assert_same(got, linear(tangent, leaves["values"], pattern))


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_func_grad_jvp_and_hessian_agree_with_dense(on_reference, pattern, op):
    names, product, twin = products(pattern)[op]
    leaves = operands(pattern)
    inputs = tuple(leaves[name].detach() for name in names)
    tangents = tuple(torch.randn_like(t) for t in inputs)
    everything = tuple(range(len(inputs)))

    def transformed(f):
        def scalar(*args):
            return f(*args).sin().sum()

        return {
            "grad": grad(scalar, everything)(*inputs),
            "jvp": jvp(f, inputs, tangents),
            "hessian": hessian(lambda first: scalar(first, *inputs[1:]))(inputs[0]),
            "jacrev twice": jacrev(jacrev(lambda first: scalar(first, *inputs[1:])))(inputs[0]),
        }

    got, want = transformed(product), transformed(twin)
    for name in want:
        assert_same(got[name], want[name])


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_vmap_over_each_operand_agrees_with_a_loop(on_reference, pattern, op):
    names, product, _ = products(pattern)[op]
    leaves = operands(pattern)
    inputs = [leaves[name].detach() for name in names]
    for which in range(len(inputs)):
        batch = torch.stack([inputs[which] * factor for factor in (1.0, -2.0, 0.5)], dim=-1)
        in_dims = tuple(-1 if i == which else None for i in range(len(inputs)))
        args = [batch if i == which else t for i, t in enumerate(inputs)]
        got = vmap(product, in_dims=in_dims)(*args)
        loop = [
            product(*(t[..., i] if j == which else t for j, t in enumerate(args)))
            for i in range(batch.shape[-1])
        ]
        assert_same(got, torch.stack(loop))


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_vmap_over_all_operands_agrees_with_a_loop(on_reference, pattern, op):
    names, product, _ = products(pattern)[op]
    leaves = operands(pattern)
    batches = [torch.stack([leaves[name].detach() * s for s in (1.0, -2.0)]) for name in names]
    loop = [product(*(t[i] for t in batches)) for i in range(2)]
    assert_same(vmap(product)(*batches), torch.stack(loop))


@pytest.mark.parametrize("op", ["linear", "spmm", "sddmm"])
def test_gradients_per_sample_agree_with_a_loop(on_reference, pattern, op):
    names, product, _ = products(pattern)[op]
    leaves = operands(pattern, lead=(3, 2))
    samples = {"linear": {"x"}, "spmm": {"X"}, "sddmm": {"a", "b"}}[op]
    inputs = [leaves[name].detach() for name in names]
    in_dims = tuple(0 if name in samples else None for name in names)
    gradient = grad(lambda *args: product(*args).sin().sum(), tuple(range(len(names))))
    got = vmap(gradient, in_dims=in_dims)(*inputs)
    loop = [
        gradient(*(t[i] if d == 0 else t for t, d in zip(inputs, in_dims, strict=True)))
        for i in range(3)
    ]
    assert_same(got, tuple(torch.stack(each) for each in zip(*loop, strict=True)))


def test_vmap_over_indices_is_refused(on_reference, pattern):
    leaves = {name: t.detach() for name, t in operands(pattern).items()}
    m, k = pattern.shape
    crow, col = (torch.stack([t, t]) for t in (pattern.crow_indices, pattern.col_indices))

    def product(crow, col):
        return linear_from_indices(leaves["x"], leaves["values"], crow, col, (m, k))

    with pytest.raises(ValueError, match="crow_indices"):
        vmap(product)(crow, col)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_accumulate_in_float32(on_reference, dtype):
    pattern = random_pattern(4, 4096, blocksize=4, density=1.0, seed=0)
    ones = torch.ones(pattern.nnzb, 4, 4, dtype=dtype)
    y = linear(torch.ones(1, 4096, dtype=dtype), ones, pattern)
    assert abs(y[0, 0].item() / 4096 - 1) <= TOLERANCE[dtype]


class _Calls(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes which of our operators run."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "sparsetile":
            self.ops.append(func._opname)
        return func(*args, **(kwargs or {}))
