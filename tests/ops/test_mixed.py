"""float32 operands beside values of half the width: derivatives, checks, compilers."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, jvp, vmap

from sparsetile.matrix import BSR, random_pattern
from sparsetile.ops import linear, linear_from_indices, spmm
from support import without_type_checks
from support_ops import TOLERANCE, dense_of, values_for

HALF = (torch.bfloat16, torch.float16)
F32 = torch.float32
PATTERN = random_pattern(7, 13, blocksize=(3, 4), density=0.5, seed=0)
INDICES = PATTERN.crow_indices, PATTERN.col_indices

# torch compiles its own forward-mode formulas with a deprecated tool when they are first needed.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script. is deprecated")


@pytest.fixture(params=HALF, ids=str)
def half(request):
    return request.param


def test_values_are_read_as_they_are_and_x_is_not_rounded(on_reference, half):
    pattern = random_pattern(4, 4, blocksize=4, density=1.0, seed=0)
    y = linear(torch.full((1, 4), 1 + 2.0**-20), torch.ones(1, 4, 4, dtype=half), pattern)
    assert torch.equal(y, torch.full((1, 4), 4 + 2.0**-18))


def test_gradient_of_values_is_summed_in_float32_and_rounded_once(on_reference, half):
    # Sums in half would stop at 256 or 2048.
    pattern = random_pattern(4, 4, blocksize=4, density=1.0, seed=0)
    values = torch.ones(1, 4, 4, dtype=half, requires_grad=True)
    linear(torch.ones(4096, 4), values, pattern).sum().backward()
    assert torch.equal(values.grad, torch.full((1, 4, 4), 4096.0, dtype=half))


def leaves(half):
    x, bias = torch.randn(2, 13, requires_grad=True), torch.randn(7, requires_grad=True)
    return x, values_for(PATTERN, half, padding=0.0).requires_grad_(), bias


def product(x, values, bias):
    return linear(x, values, PATTERN, bias)


def twin(x, values, bias):
    return x @ dense_of(values.float(), PATTERN).T + bias


def close(got, want):
    """Compare pairs of results: each is rounded in its own dtype."""
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        rtol = TOLERANCE[a.dtype]
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol)


def test_second_derivatives_agree_with_dense(on_reference, half):
    def second(f):
        args = leaves(half)
        first = torch.autograd.grad(f(*args).sin().sum(), args, create_graph=True)
        return torch.autograd.grad(sum(g.float().cos().sum() for g in first), args)

    torch.manual_seed(1)
    got = second(product)
    torch.manual_seed(1)
    close(got, second(twin))


def test_transforms_agree_with_dense(on_reference, half):
    args = tuple(t.detach() for t in leaves(half))
    tangents = tuple(torch.randn_like(t) for t in args)
    close(jvp(product, args, tangents), jvp(twin, args, tangents))

    def scalar(f):
        return lambda *args: f(*args).sin().sum()

    close(grad(scalar(product), (0, 1, 2))(*args), grad(scalar(twin), (0, 1, 2))(*args))
    batch = torch.stack([args[1], -args[1]])
    got = vmap(product, in_dims=(None, 0, None))(args[0], batch, args[2])
    close(got, torch.stack([twin(args[0], each, args[2]) for each in batch]))
    per_sample = vmap(grad(scalar(product), 1), in_dims=(0, None, None))(*args)
    close(per_sample, [grad(scalar(twin), 1)(x, *args[1:]) for x in args[0]])


def test_products_with_a_bsr_take_half_values(on_reference, half):
    a = BSR(values_for(PATTERN, half, padding=0.0), PATTERN)
    w = dense_of(a.values.float(), PATTERN)
    for got, want in (
        (a @ (x := torch.randn(13)), w @ x),
        (a @ (x := torch.randn(2, 13, 3)), w @ x),
        ((x := torch.randn(5, 7)) @ a, x @ w),
    ):
        assert got.dtype == F32
        torch.testing.assert_close(got, want)


def test_autocast_casts_everything(on_reference, half):
    other = HALF[half is HALF[0]]
    with torch.autocast("cpu", other):
        y = product(*leaves(half))
    assert y.dtype == other


@pytest.mark.parametrize("values", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("x", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_no_other_mixture_is_taken(on_reference, x, values):
    args = torch.ones(2, 13, dtype=x), values_for(PATTERN, values)
    if x == values or (x == F32 and values in HALF):
        assert linear(*args, PATTERN).dtype == x
        return
    name = str(values).removeprefix("torch.")
    for call in (
        lambda: linear(*args, PATTERN),
        lambda: spmm(args[1], PATTERN, args[0].mT),
        lambda: torch.ops.sparsetile.linear(*args, *INDICES, None, 7, 13, False),
    ):
        with pytest.raises(TypeError, match=rf"values is {name}.*{'float32' if x == F32 else ''}"):
            call()


def test_bias_has_the_dtype_of_x(on_reference, half):
    args = torch.ones(2, 13), values_for(PATTERN, half), PATTERN, torch.ones(7, dtype=half)
    with pytest.raises(TypeError, match=r"bias is .*float32 beside values of bfloat16 or float16"):
        linear(*args)


@pytest.mark.parametrize(
    "op, make",
    {
        "linear": lambda x, v, b: (x, v, *INDICES, b, 7, 13, False),
        "spmm": lambda x, v, b: (v, *INDICES, x.detach().mT.requires_grad_(), 7, 13, False),
    }.items(),
)
def test_operators_pass_opcheck(on_reference, half, op, make):
    operator = getattr(torch.ops.sparsetile, op).default
    with without_type_checks():
        results = torch.library.opcheck(operator, make(*leaves(half)))
    assert set(results.values()) == {"SUCCESS"}


def test_it_compiles_whole_forward_and_backward(on_reference, half):
    torch._dynamo.reset()
    with without_type_checks():
        args = leaves(half)
        y = torch.compile(product, fullgraph=True, backend="aot_eager")(*args)
        want = product(*args)
    assert torch.equal(y, want)
    for a, b in zip(
        torch.autograd.grad(y.sin().sum(), args),
        torch.autograd.grad(want.sin().sum(), args),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_fake_tensors_have_the_dtype_of_x(half):
    with FakeTensorMode() as mode:
        crow, col = (mode.from_tensor(t) for t in INDICES)
        values = torch.empty(PATTERN.nnzb, 3, 4, dtype=half)
        y = linear_from_indices(torch.empty(2, 13), values, crow, col, (7, 13))
    assert (y.dtype, y.shape) == (F32, (2, 7))
