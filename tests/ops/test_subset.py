"""The product by some of the stored blocks: result and dX of those, gradients of all of them."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from sparsetile.matrix import Pattern, random_pattern
from sparsetile.ops import backend, linear, linear_subset
from support import SHAPES, inside, some_pattern, without_type_checks
from support_ops import assert_close, blocks_of, dense_of, dense_twin, most_bytes, values_for

F64 = torch.float64
OP = torch.ops.sparsetile.linear_subset.default


class Chosen:
    """A pattern and some of its blocks: what a layer keeps."""

    def __init__(self, pattern, taking):
        self.pattern, (self.m, self.k) = pattern, pattern.shape
        self.mask = torch.zeros(pattern.nnzb, dtype=torch.bool)
        self.mask[taking] = True
        self.blocks = self.mask.nonzero()[:, 0].int()
        rows = pattern.row_indices[self.mask]
        crow = torch.searchsorted(rows, torch.arange(pattern.grid[0] + 1))
        self.subset = Pattern(
            pattern.shape, pattern.blocksize, crow, pattern.col_indices[self.mask]
        )

    def indices(self):
        p, s = self.pattern, self.subset
        return p.crow_indices, p.col_indices, self.blocks, s.crow_indices, s.col_indices

    def __call__(self, x, values, bias=None, **kwargs):
        return linear_subset(x, values, *self.indices(), self.pattern.shape, bias, **kwargs)

    def dense(self, x, values, bias=None):
        y = x @ dense_of(values * self.mask[:, None, None], self.pattern).T
        return y if bias is None else y + bias


RAGGED = Chosen(random_pattern(7, 13, blocksize=(3, 4), density=0.6, seed=0), slice(0, None, 2))


def operands(chosen, dtype=torch.float32, padding=0.0):
    x = torch.randn(2, 3, chosen.k, dtype=dtype)
    values = values_for(chosen.pattern, dtype, padding=padding)
    bias = torch.randn(chosen.m, dtype=dtype)
    return x.requires_grad_(), values.requires_grad_(), bias.requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("taking", [slice(0, None, 2), slice(0, 0), slice(None)], ids=str)
def test_result_and_gradients_agree_with_dense_float64(compute, kind, dtype, taking):
    pattern = some_pattern(kind)
    chosen = Chosen(pattern, taking)
    leaves = operands(chosen, dtype, padding=float("nan"))
    dy = torch.randn(2, 3, chosen.m, dtype=dtype)

    def product():
        y = chosen(*leaves)
        return y, *torch.autograd.grad(y, leaves, dy)

    got = compute(product, ("linear", "sddmm"), dtype, pattern.blocksize)
    if got is None:
        return
    x, values, bias = leaves[0].double(), dense_twin(leaves[1], pattern), leaves[2].double()
    weight = dense_of(values * chosen.mask[:, None, None], pattern)
    rows, d_rows = x.flatten(0, 1), dy.double().flatten(0, 1)
    want = (
        x @ weight.T + bias,
        dy.double() @ weight,
        blocks_of(d_rows.T @ rows, pattern),  # at every stored block
        d_rows.sum(0),
    )
    for name, a, b in zip(("y", "dx", "dvalues", "dbias"), got, want, strict=True):
        assert_close(a, b.detach(), dtype, name)


def test_derivatives_of_what_takes_part_agree_with_differences(on_reference):
    x, values, bias = operands(RAGGED, F64, padding=3.0)
    mask = RAGGED.mask

    def product(x, some, bias):
        whole = values.detach().clone()
        return RAGGED(x, whole.index_put((mask,), some), bias)

    some = values.detach()[mask].requires_grad_()
    assert torch.autograd.gradcheck(product, (x, some, bias))


def test_left_out_blocks_have_a_gradient_and_no_part_in_the_result(on_reference):
    x, values, bias = operands(RAGGED)
    y = RAGGED(x, values, bias)
    y.square().sum().backward()
    left_out, stored = ~RAGGED.mask, inside(RAGGED.pattern)
    assert (values.grad[left_out] != 0)[stored[left_out]].all()
    other = values.detach().clone()
    other[left_out] = 100.0
    assert torch.equal(RAGGED(x, other, bias), y)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 1), (1, 2)], ids=str)
def test_only_what_is_wanted_is_differentiated(on_reference, wanted):
    leaves = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(operands(RAGGED))]
    RAGGED(*leaves).sum().backward()
    assert [t.grad is not None for t in leaves] == [i in wanted for i in range(3)]


def test_whole_set_is_the_whole_product(on_reference):
    chosen = Chosen(RAGGED.pattern, slice(None))
    leaves = operands(chosen)
    for activation in (None, "gelu"):
        y = chosen(*leaves, activation=activation)
        want = linear(*leaves[:2], chosen.pattern, leaves[2], activation=activation)
        assert torch.equal(y, want)
        got = torch.autograd.grad(y.sum(), leaves)
        for a, b in zip(got, torch.autograd.grad(want.sum(), leaves), strict=True):
            assert torch.equal(a, b)


def test_second_derivative_is_refused(on_reference):
    x, values, bias = operands(RAGGED)
    (dx,) = torch.autograd.grad(RAGGED(x, values, bias).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        dx.sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_computes_in_its_dtype_and_keeps_gradients_wide(on_reference, dtype):
    leaves = operands(RAGGED)
    with torch.autocast("cpu", dtype):
        y = RAGGED(*leaves)
    assert y.dtype == dtype
    assert_close(y, RAGGED.dense(*leaves).double(), dtype, "y")
    y.float().square().sum().backward()
    assert all(t.grad.dtype == torch.float32 for t in leaves)


def test_half_values_beside_float32(on_reference):
    x, values, bias = operands(RAGGED)
    half = values.detach().bfloat16().requires_grad_()
    y = RAGGED(x, half, bias)
    assert_close(y, RAGGED.dense(x, half.float(), bias).double(), torch.float32, "y")
    y.sum().backward()
    assert half.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("b", [1, 4, 16])
def test_nothing_dense_is_made(compute, b):
    chosen = Chosen(
        random_pattern(256, 256, blocksize=b, density=1 / 64, seed=0), slice(0, None, 2)
    )
    values = torch.randn(chosen.pattern.nnzb, b, b, requires_grad=True)
    x = torch.randn(4, 256, requires_grad=True)
    taken = compute(
        lambda: most_bytes(lambda: chosen(x, values).sum().backward()),
        ("linear", "sddmm"),
        torch.float32,
        (b, b),
    )
    assert taken is None or taken < 256 * 256


@pytest.fixture
def compiling(on_reference):
    torch._dynamo.reset()
    with without_type_checks():
        yield
    torch._dynamo.reset()


def test_operator_passes_opcheck(compiling):
    x, values, bias = operands(RAGGED)
    p, s = RAGGED.pattern, RAGGED.subset
    chosen = values.detach()[RAGGED.mask]
    args = (x, chosen, s.crow_indices, s.col_indices, bias, 7, 13)
    results = torch.library.opcheck(OP, (*args, values, p.crow_indices, p.col_indices))
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_compiles_whole_forward_and_backward(compiling, dynamic):
    leaves = operands(RAGGED)
    compiled = torch.compile(RAGGED.__call__, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    y, want = compiled(*leaves), RAGGED(*leaves)
    assert torch.equal(y, want)
    got = torch.autograd.grad(y.sin().sum(), leaves)
    for a, b in zip(got, torch.autograd.grad(want.sin().sum(), leaves), strict=True):
        assert torch.equal(a, b)


def test_compiled_product_sees_another_set_without_compiling_again(compiling):
    counter = CompileCounterWithBackend("aot_eager")
    one, other = (Chosen(RAGGED.pattern, s) for s in (slice(0, 3), slice(2, 5)))
    now = [t.clone() for t in one.indices()]

    def product(x, values, bias):
        return linear_subset(x, values, *now, (7, 13), bias)

    compiled = torch.compile(product, fullgraph=True, backend=counter)
    leaves = operands(one)
    for chosen in (one, other):
        for index, new in zip(now, chosen.indices(), strict=True):
            index.copy_(new)
        y = compiled(*leaves)
        assert torch.equal(y, chosen(*leaves))
        y.sum().backward()
    assert counter.frame_count == 1


def call(**changed):
    p, s = RAGGED.pattern, RAGGED.subset
    args = {
        "x": torch.ones(2, 13),
        "values": torch.ones(p.nnzb, 3, 4),
        "crow_indices": p.crow_indices,
        "col_indices": p.col_indices,
        "blocks": RAGGED.blocks,
        "blocks_crow": s.crow_indices,
        "blocks_col": s.col_indices,
        "shape": (7, 13),
    }
    return linear_subset(**(args | changed))


BAD = {
    "x a list": ({"x": [1.0]}, TypeError, "x must be a torch.Tensor"),
    "x of a wrong size": ({"x": torch.ones(2, 7)}, ValueError, "x has shape .* 13"),
    "x of another dtype": ({"x": torch.ones(2, 13).double()}, TypeError, "x is float64 but values"),
    "values a list": ({"values": [1.0]}, TypeError, "values must be a torch.Tensor"),
    "values integer": ({"values": torch.ones(3, 3, 4).int()}, TypeError, "values is int32"),
    "values too few": ({"values": torch.ones(3, 3, 4)}, ValueError, r"col_indices must .*\[3\]"),
    "blocks a mask": ({"blocks": RAGGED.mask}, TypeError, "blocks must be an int32 vector.*bool"),
    "blocks a list": ({"blocks": [0, 1]}, TypeError, "blocks must be a torch.Tensor"),
    "blocks elsewhere": (
        {"blocks": RAGGED.blocks.to("meta")},
        ValueError,
        "blocks is on meta but values is on cpu",
    ),
    "fewer blocks": ({"blocks": RAGGED.blocks[1:]}, ValueError, "col_indices must be contiguous"),
    "bias": ({"bias": torch.ones(13)}, ValueError, r"bias.*\[7\]|bias.*\(7,\)"),
    "activation": ({"activation": "tanh"}, ValueError, "activation is 'tanh'; allowed are"),
}


@pytest.mark.parametrize("changed, error, words", BAD.values(), ids=BAD.keys())
def test_bad_calls_are_refused_by_name(changed, error, words):
    with without_type_checks(), backend("reference"), pytest.raises(error, match=words) as caught:
        call(**changed)
    assert "linear" in str(caught.value)
