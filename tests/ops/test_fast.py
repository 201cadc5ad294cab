"""The short road past torch's dispatcher: taken when nobody would see it, and never else."""

import copy

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

import sparsetile as st
from sparsetile.matrix import random_pattern
from sparsetile.ops import _dispatch, _fast, _linear, backend, last_kernel, linear
from sparsetile.ops import linear_from_indices as from_indices
from support import without_type_checks
from support_ops import assert_close, dense_of, values_for

PATTERN = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)

# torch warns of its own tracer, which is to be retired, and compiles forward mode with it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


@pytest.fixture(autouse=True)
def nothing_known():
    _fast._known.clear()
    with without_type_checks():
        yield
    _fast._known.clear()


@pytest.fixture
def roads(monkeypatch):
    """Tells which road a call took: names are added as calls go the ordinary one."""
    ordinary = []
    real = _linear.apply_linear
    monkeypatch.setattr(_linear, "apply_linear", lambda *a: ordinary.append("ordinary") or real(*a))
    return ordinary


@pytest.fixture
def t():
    return {"x": torch.randn(5, 12), "values": values_for(PATTERN), "bias": torch.randn(8)}


def product(t, **more):
    return linear(t["x"], t["values"], PATTERN, t["bias"], **more)


def short(roads, call):
    """Whether a call took the short road; its result is compared with that of the ordinary one."""
    before = len(roads)
    got = call()
    took = len(roads) == before
    known = dict(_fast._known)
    _fast._known.clear()
    want = call()
    _fast._known.update(known)
    assert torch.equal(got, want)
    return took


def test_the_second_call_is_short(roads, t):
    assert not short(roads, lambda: product(t))
    assert short(roads, lambda: product(t))
    assert last_kernel().startswith("cpu:linear")


@pytest.mark.parametrize("shape", [(12,), (1, 12), (7, 12), (2, 3, 12), (0, 12)], ids=str)
def test_any_batch_is_short_and_right(roads, t, shape):
    t["x"] = torch.randn(shape)
    product(t)
    t["x"] = torch.randn(shape)
    assert short(roads, lambda: product(t))
    want = t["x"].double() @ dense_of(t["values"].double(), PATTERN).T + t["bias"]
    assert_close(product(t), want, torch.float32, "y")


def test_what_may_differ_between_short_calls(roads, t):
    product(t)
    product(t | {"bias": None})
    others = {
        "another n": {"x": torch.randn(9, 12)},
        "other strides of x": {"x": torch.randn(12, 5).mT},
        "other values": {"values": values_for(PATTERN) * 2},
        "no bias": {"bias": None},
    }
    for name, other in others.items():
        assert short(roads, lambda other=other: product(t | other)), name
    assert short(roads, lambda: product(t, activation="gelu"))


def test_a_layer_is_short_in_every_mode_without_gradients(roads):
    layer, x = st.nn.Linear(12, 8, blocksize=4, density=0.5), torch.randn(5, 12)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            layer(x)
            assert short(roads, lambda: layer(x)), mode
    assert not short(roads, lambda: layer(x))


@pytest.mark.parametrize("name", ["x", "values", "bias"])
def test_gradients_are_there_again_when_they_are_on_again(roads, t, name):
    t[name].requires_grad_()
    with torch.no_grad():
        product(t)
        assert short(roads, lambda: product(t))
    assert not short(roads, lambda: product(t))
    assert product(t).requires_grad


def test_a_change_of_pattern_in_place_is_followed(roads, t):
    crow, col = PATTERN.crow_indices.clone(), PATTERN.col_indices.clone()

    def call():
        return from_indices(t["x"], t["values"], crow, col, (8, 12))

    call()
    other = random_pattern(8, 12, blocksize=4, density=0.5, seed=5)
    assert other.nnzb == PATTERN.nnzb and other != PATTERN
    crow.copy_(other.crow_indices)
    col.copy_(other.col_indices)
    assert short(roads, call)
    assert torch.equal(call(), linear(t["x"], t["values"], other))


BAD = {
    "x has a wrong size": lambda t: {"x": torch.randn(5, 11)},
    "x has another dtype": lambda t: {"x": t["x"].double()},
    "x is a list": lambda t: {"x": t["x"].tolist()},
    "values miss a block": lambda t: {"values": t["values"][:-1]},
    "values are blocks of another shape": lambda t: {"values": t["values"].view(-1, 2, 8)},
    "values are a list": lambda t: {"values": t["values"].tolist()},
    "bias has a wrong size": lambda t: {"bias": torch.randn(12)},
    "bias is a number": lambda t: {"bias": 1.0},
    "x is elsewhere": lambda t: {"x": t["x"].to("meta")},
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_bad_input_is_refused_after_good(t, change):
    product(t)
    with pytest.raises((TypeError, ValueError)):
        product(t | change(t))


def test_indices_of_another_kind_are_refused_after_good(t):
    crow, col = PATTERN.crow_indices.clone(), PATTERN.col_indices.clone()

    def call(crow=crow, shape=(8, 12)):
        return from_indices(t["x"], t["values"], crow, col, shape)

    call()
    for bad in ({"crow": crow.long()}, {"crow": crow[:-1]}, {"shape": (16, 12)}):
        with pytest.raises((TypeError, ValueError)):
            call(**bad)


def test_sizes_may_be_numpys(roads, t):
    shape = np.int64(8), np.int32(12)
    crow, col = PATTERN.crow_indices, PATTERN.col_indices

    def call():
        return from_indices(t["x"], t["values"], crow, col, shape)

    call()
    assert short(roads, call)


class Tagged(torch.Tensor):
    """A subclass, whose operations go through torch's function protocol."""


class Seeing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def dual(t):
    return t | {"x": forward_ad.make_dual(t["x"], t["x"])}


OBSERVED = {
    "grad of x": lambda t: product(t | {"x": t["x"].clone().requires_grad_()}),
    "grad of values": lambda t: product(t | {"values": t["values"].clone().requires_grad_()}),
    "grad of bias": lambda t: product(t | {"bias": t["bias"].clone().requires_grad_()}),
    "a subclass": lambda t: product(t | {"x": t["x"].as_subclass(Tagged)}),
    "a lazy sign": lambda t: product(t | {"x": torch._neg_view(-t["x"])}),
    "a lazy sign of values": lambda t: product(t | {"values": torch._neg_view(-t["values"])}),
    "vmap": lambda t: torch.func.vmap(lambda x: product(t | {"x": x}))(t["x"]),
    "func.grad": lambda t: torch.func.grad(lambda x: product(t | {"x": x}).sum())(t["x"]),
    "make_fx": lambda t: make_fx(lambda x: product(t | {"x": x}))(t["x"]),
    "jit.trace": lambda t: torch.jit.trace(
        lambda x: product(t | {"x": x}), (t["x"],), check_trace=False
    ),
}
CONTEXTS = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a device": lambda: torch.device("cpu"),
    "a dispatch mode": Seeing,
    "forward mode": forward_ad.dual_level,
    "a profiler": lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    "another back end": lambda: backend("reference"),
}


@pytest.mark.parametrize("call", OBSERVED.values(), ids=OBSERVED.keys())
def test_observed_calls_go_the_ordinary_road(roads, t, call):
    product(t)
    roads.clear()
    call(t)
    assert roads


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_calls_inside_a_context_go_the_ordinary_road(roads, t, context):
    product(t)
    roads.clear()
    with context():
        product(t)
    assert roads == ["ordinary"]
    product(t)  # a context that may be remembered costs one more ordinary call
    assert short(roads, lambda: product(t))


def test_a_lazy_sign_is_never_lost(t):
    product(t)
    want = product(t)
    for name in t:
        lazy = torch._neg_view(-t[name])
        for _ in range(2):
            assert torch.equal(product(t | {name: lazy}), want), name


def test_a_traced_product_follows_its_input(t):
    product(t)
    traced = make_fx(lambda x: product(t | {"x": x}))(t["x"])
    x = torch.randn(5, 12)
    assert torch.equal(traced(x), product(t | {"x": x}))


def test_the_forced_back_end_is_obeyed_after_the_first_call(t):
    for _ in range(3):
        with backend("reference"):
            product(t)
            assert last_kernel() == "reference:linear"
        product(t)
        assert last_kernel().startswith("cpu:")


def test_many_patterns_are_not_all_kept(t, monkeypatch):
    monkeypatch.setattr(_fast, "_MOST", 4)
    for seed in range(10):
        pattern = random_pattern(8, 12, blocksize=4, density=0.5, seed=seed)
        linear(t["x"], t["values"], pattern)
        assert len(_fast._known) <= 4


def test_torch_without_its_guard_goes_the_ordinary_road(roads, t, monkeypatch):
    monkeypatch.setattr(_fast, "_Guards", None)
    assert not short(roads, lambda: product(t))
    assert not short(roads, lambda: product(t))


def test_copies_of_a_layer_do_not_share_what_is_known(roads):
    layer, x = st.nn.Linear(12, 8, blocksize=4, density=0.5), torch.randn(5, 12)
    with torch.no_grad():
        other = copy.deepcopy(layer)
        other.values.mul_(2)
        layer(x), other(x)
        assert short(roads, lambda: other(x))
        torch.testing.assert_close(other(x) - layer.bias, 2 * (layer(x) - layer.bias))


def test_choice_is_named_by_the_dispatch_module():
    assert _dispatch.forced() is None
    with backend("reference"):
        assert _dispatch.forced() == "reference"
