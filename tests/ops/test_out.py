"""Products into a given tensor: the same numbers, in place, and refusals that say why."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from sparsetile.matrix import random_pattern
from sparsetile.ops import _out, linear, linear_from_indices, sddmm, spmm
from support import without_type_checks
from support_ops import values_for

OPS = torch.ops.sparsetile
PATTERN = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)  # 3 blocks
INDICES = PATTERN.crow_indices, PATTERN.col_indices
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
NAN = float("nan")

# torch compiles its own forward-mode formulas with a deprecated tool when they are first needed.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script. is deprecated")


def operands(dtype=torch.float32, lead=(5,)):
    return {
        "x": torch.randn(*lead, 12).to(dtype),
        "values": values_for(PATTERN, dtype),
        "bias": torch.randn(8).to(dtype),
        "X": torch.randn(*lead, 12, 3).to(dtype),
        "a": torch.randn(*lead, 8, 6).to(dtype),
        "b": torch.randn(*lead, 6, 12).to(dtype),
    }


PRODUCTS = {
    "linear": lambda t, **out: linear(t["x"], t["values"], PATTERN, t["bias"], **out),
    "linear, activation": lambda t, **out: linear(
        t["x"], t["values"], PATTERN, activation="silu", **out
    ),
    "linear_from_indices": lambda t, **out: linear_from_indices(
        t["x"], t["values"], *INDICES, (8, 12), t["bias"], **out
    ),
    "spmm": lambda t, **out: spmm(t["values"], PATTERN, t["X"], **out),
    "sddmm": lambda t, **out: sddmm(t["a"], t["b"], PATTERN, **out),
}


@pytest.fixture(params=PRODUCTS.values(), ids=PRODUCTS.keys())
def product(request):
    return request.param


def room(shape, dtype, how):
    """A tensor to write into, and the whole buffer that it is a part of."""
    if how == "contiguous":
        buffer = torch.full(shape, NAN, dtype=dtype)
        return buffer, buffer
    wide = torch.full((*shape[:-1], shape[-1] + 5), NAN, dtype=dtype)
    if how == "columns":
        return wide[..., 2:-3], wide
    if how == "transposed":
        buffer = torch.full((*shape[:-2], shape[-1], shape[-2]), NAN, dtype=dtype)
        return buffer.mT, buffer
    if how == "stepped":
        buffer = torch.full((*shape[:-1], 2 * shape[-1]), NAN, dtype=dtype)
        return buffer[..., ::2], buffer
    assert how == "cut"  # leading dimensions that are no one dimension
    buffer = torch.full((shape[0], shape[1] + 2, *shape[2:]), NAN, dtype=dtype)
    return buffer[:, :-2], buffer


@pytest.mark.parametrize("how", ["contiguous", "columns", "transposed", "stepped", "cut"])
@pytest.mark.parametrize("lead", [(5,), (2, 3)], ids=str)
def test_it_writes_what_it_would_return(compute, product, lead, how):
    t = operands(lead=lead)
    want = product(t)
    out, buffer = room(want.shape, want.dtype, how)
    got = compute(lambda: product(t, out=out), (), want.dtype, (4, 4))
    assert got is out
    torch.testing.assert_close(out, want)
    assert buffer.isnan().sum() == buffer.numel() - out.numel()  # nothing beside it


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_writes_every_dtype(on_reference, product, dtype):
    t = operands(dtype)
    want = product(t)
    assert torch.equal(product(t, out=torch.full_like(want, NAN)), want)


def test_it_writes_float32_beside_half_values(on_reference):
    t = operands() | {"values": values_for(PATTERN, torch.bfloat16)}
    for name in ("linear", "spmm"):
        want = PRODUCTS[name](t)
        assert torch.equal(PRODUCTS[name](t, out=torch.full_like(want, NAN)), want)


def test_empty_results_are_written_to(on_reference, product):
    t = operands(lead=(0,))
    out = torch.empty_like(product(t))
    assert product(t, out=out) is out


def test_a_vector_is_written_to(on_reference):
    t = operands(lead=())
    column = torch.full((8, 3), NAN)[:, 1]
    linear(t["x"], t["values"], PATTERN, t["bias"], out=column)
    assert torch.equal(column, linear(t["x"], t["values"], PATTERN, t["bias"]))


def test_columns_of_one_matrix_are_apart(on_reference):
    both = torch.randn(5, 12 + 8)
    values = values_for(PATTERN)
    want = linear(both[:, :12], values, PATTERN)
    linear(both[:, :12], values, PATTERN, out=both[:, 12:])
    assert torch.equal(both[:, 12:], want)
    both = torch.randn(2, 3, 8 + 12)
    want = linear(both[..., 8:], values, PATTERN)
    linear(both[..., 8:], values, PATTERN, out=both[..., :8])
    assert torch.equal(both[..., :8], want)


@st.composite
def views(draw):
    """Two views of one buffer, of any sizes and steps, the second perhaps of wider elements."""
    shapes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), min_size=1, max_size=3)
    buffer = torch.zeros(400)
    return [
        buffer.view(draw(st.sampled_from((torch.float32, torch.bfloat16)))).as_strided(
            [n for n, _ in axes], [step for _, step in axes], draw(st.integers(0, 40))
        )
        for axes in (draw(shapes), draw(shapes))
    ]


def places(t):
    """Every byte that each element of a view lies in, one by one."""
    offsets = torch.arange(t.untyped_storage().nbytes() // t.element_size())
    starts = offsets.as_strided(t.shape, t.stride(), t.storage_offset()) * t.element_size()
    return (starts[..., None] + torch.arange(t.element_size())).flatten().tolist()


@settings(max_examples=300, deadline=None)
@given(pair=views())
def test_shared_memory_is_never_missed(pair):
    a, b = map(places, pair)
    if _out._distinct(pair[0]):
        assert len(set(a)) == len(a)
    if not _out._share(*pair):
        assert not set(a) & set(b)


OVERLAPPING = {
    "itself": torch.empty(8).expand(5, 8),
    "windows": torch.empty(40).as_strided((5, 8), (4, 1)),
}


@pytest.mark.parametrize("out", OVERLAPPING.values(), ids=OVERLAPPING.keys())
def test_elements_that_share_memory_are_refused(out):
    t = operands()
    with pytest.raises(ValueError, match=r"linear: out .*strides.*share memory"):
        linear(t["x"], t["values"], PATTERN, out=out)


@pytest.mark.parametrize("name", ["x", "values", "bias", "crow", "col"])
def test_memory_shared_with_an_operand_is_refused(name):
    memory = torch.zeros(300)
    t = {
        "x": torch.randn(5, 12),
        "values": torch.randn(3, 4, 4),
        "bias": torch.randn(8),
        "crow": INDICES[0],
        "col": INDICES[1],
    }
    place = memory[20 : 20 + t[name].numel()].view(t[name].dtype).view(t[name].shape)
    t[name] = place.copy_(t[name])
    for out in (memory[:40].view(5, 8), memory[:100].view(5, 20)[:, :8]):
        with pytest.raises(ValueError, match=f"linear: out shares memory with {name}"):
            linear_from_indices(
                t["x"], t["values"], t["crow"], t["col"], (8, 12), t["bias"], out=out
            )


def test_columns_that_meet_are_refused():
    both, values = torch.randn(5, 20), torch.randn(3, 4, 4)
    with pytest.raises(ValueError, match="out shares memory with x"):
        linear(both[:, :12], values, PATTERN, out=both[:, 11:19])


def test_memory_shared_between_two_storages_is_refused():
    memory = np.zeros(100, dtype=np.float32)
    x, out = torch.from_numpy(memory[:60]).view(5, 12), torch.from_numpy(memory[59:99]).view(5, 8)
    with pytest.raises(ValueError, match="out shares memory with x"):
        linear(x, values_for(PATTERN), PATTERN, out=out)
    linear(x, values_for(PATTERN), PATTERN, out=torch.from_numpy(memory[60:]).view(5, 8))


BAD = {
    "a list": (lambda out: out.tolist(), TypeError, "out must be a torch.Tensor, got list"),
    "another dtype": (lambda out: out.double(), TypeError, "out is float64.*float32"),
    "a wrong shape": (lambda out: out[:-1].clone(), ValueError, r"out has shape.*never resized"),
    "no shape yet": (lambda out: out.new_empty(0), ValueError, r"out has shape \[0\]"),
    "another device": (lambda out: out.to("meta"), ValueError, "out is on meta"),
    "sparse": (lambda out: out.to_sparse(), TypeError, "out has layout"),
    "lazily negative": (
        lambda out: torch.complex(out, out).conj().imag,
        ValueError,
        "out is a lazy view with torch's negative bit",
    ),
    "lazily conjugate": (lambda out: torch.complex(out, out).conj(), ValueError, "conjugate bit"),
}


@pytest.mark.parametrize("make, error, says", BAD.values(), ids=BAD.keys())
def test_what_does_not_fit_is_named(product, make, error, says):
    t = operands()
    out = make(torch.ones_like(product(t)))
    with without_type_checks(), pytest.raises(error, match=says):
        product(t, out=out)


def test_a_gradient_cannot_be_wanted(product):
    t = operands()
    out = torch.empty_like(product(t))
    wanting = {name: each.clone().requires_grad_() for name, each in t.items()}
    with pytest.raises(RuntimeError, match=r"out was given.*requires grad.*no_grad"):
        product(wanting, out=out)
    with pytest.raises(RuntimeError, match="out was given"):
        product(t, out=out.clone().requires_grad_())
    with torch.no_grad():
        assert torch.equal(product(wanting, out=out), product(t))


def test_no_tangent_can_be_carried(product):
    t = operands()
    out = torch.empty_like(product(t))
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="out was given"):
        product(t | {"values": forward_ad.make_dual(t["values"], t["values"])}, out=out)


def test_transforms_refuse_it(product):
    t = operands()
    out = torch.empty_like(product(t))
    with pytest.raises(RuntimeError, match=r"out was given inside a transform of torch.func"):
        torch.func.vmap(lambda v: product(t | {"values": v}, out=out))(t["values"][None])


def test_autocast_leaves_it_alone(on_reference, product):
    t = operands()
    want = product(t)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(product(t, out=torch.empty_like(want)), want)


def test_writing_counts_a_version(on_reference, product):
    t = operands()
    out = torch.empty_like(product(t))
    before = out._version
    product(t, out=out)
    assert out._version > before


def test_it_runs_in_inference_mode(on_reference, product):
    t = operands()
    with torch.inference_mode():
        want = product(t)
        assert torch.equal(product(t, out=torch.empty_like(want)), want)


def test_inference_tensors_are_written_only_in_inference_mode(product):
    t = operands()
    with torch.inference_mode():
        out = torch.empty_like(product(t))
    with pytest.raises(RuntimeError, match=r"out was made in torch.inference_mode.*clone"):
        product(t, out=out)


CASES = {
    "linear": lambda t: (t["x"], t["values"], *INDICES, t["bias"], 8, 12, False),
    "linear, silu": lambda t: (t["x"], t["values"], *INDICES, None, 8, 12, False, "silu"),
    "spmm": lambda t: (t["values"], *INDICES, t["X"], 8, 12, False),
    "sddmm": lambda t: (t["a"], t["b"], *INDICES, 4, 4, False),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_pass_opcheck(on_reference, name):
    op, args = name.split(",")[0], CASES[name](operands())
    out = torch.empty_like(getattr(OPS, op)(*args))
    with without_type_checks():
        results = torch.library.opcheck(getattr(OPS, f"{op}_out").default, args, {"out": out})
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
def test_it_compiles_whole(on_reference, product, dynamic):
    torch._dynamo.reset()
    t = operands()

    def write(t, out):
        return product(t, out=out) + 1

    want = product(t)
    out = torch.full_like(want, NAN)
    with without_type_checks():
        y = torch.compile(write, fullgraph=True, backend="aot_eager", dynamic=dynamic)(t, out)
    assert torch.equal(out, want) and torch.equal(y, want + 1)


def test_shapes_are_checked_without_data():
    with FakeTensorMode() as mode:
        t = {name: mode.from_tensor(each) for name, each in operands().items()}
        args = (t["x"], t["values"], *map(mode.from_tensor, INDICES), None, 8, 12, False)
        OPS.linear_out(*args, out=torch.empty(5, 8))
        with pytest.raises(Exception, match="out has shape"):
            OPS.linear_out(*args, out=torch.empty(5, 9))
