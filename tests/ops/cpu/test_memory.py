"""A call takes its result and panels, no more; what was made of a pattern goes with it."""

import functools
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import sparsetile as st
from soak import resident
from sparsetile.ops._register import LINEAR, SDDMM, SPMM
from sparsetile.ops.cpu import _plans, _scratch
from sparsetile.ops.cpu._isa import second_cache
from support_agreement import BF16, F16, F32
from support_ops import most_bytes

FORMATS = {"f32": (F32, F32), "bf16": (BF16, BF16), "f16": (F16, F16), "f32*bf16": (F32, BF16)}
SIDE = 256
PAGE = 2 << 20  # scratch comes in pages of this size
STEPS, SETTLED = 200, 30
MANY = 20_000  # columns whose panels would fill ten pages


@pytest.fixture(params=FORMATS.values(), ids=FORMATS.keys())
def format(request):
    return request.param


@pytest.fixture(autouse=True)
def _on_cpu():
    with st.backend("cpu"), torch.no_grad():
        yield


def products(b, dtype, values_dtype):
    """Every product as a function of x[n, SIDE]."""
    pattern = st.random_pattern(SIDE, SIDE, blocksize=b, density=0.1, seed=0)
    indices = pattern.crow_indices, pattern.col_indices
    values = torch.randn(pattern.nnzb, b, b).to(values_dtype)
    every = {
        "linear": lambda x: st.linear(x, values, pattern),
        "linear_t": lambda x: LINEAR(x, values, *indices, None, SIDE, SIDE, True),
        "spmm": lambda x: st.spmm(values, pattern, x.T),
        "spmm_t": lambda x: SPMM(values, *indices, x.T, SIDE, SIDE, True),
    }
    if dtype == values_dtype:
        every["sddmm"] = lambda x: SDDMM(x.T, x, *indices, b, b, False)
    return every


def scratch_after(product, x):
    """Bytes of scratch of a fresh Python thread that computed one product."""

    def measure():
        with st.backend("cpu"), torch.no_grad():
            product(x)
        return sum(size for _, size, _ in _scratch._local.buffers.values())

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(measure).result()


@pytest.mark.parametrize("b", [1, 4, 16])
def test_a_call_takes_its_result_and_panels(format, b):
    few, many = torch.randn(20, SIDE).to(format[0]), torch.randn(MANY, SIDE).to(format[0])
    for name, product in products(b, *format).items():
        y = [product(few) for _ in range(3)][-1]  # compiled, and the weights are at rest
        sums = 4 * y.numel() if name == "sddmm" else 0  # in float32, until all are added
        assert most_bytes(functools.partial(product, few)) <= max(y.nbytes, sums), name
        # panels fill half of the second cache; what else there is fits a page each
        assert scratch_after(product, many) <= second_cache() // 2 + 4 * PAGE, name


def test_the_meter_sees_what_is_dense(format):
    ones = torch.ones(SIDE, 1, dtype=format[0])
    assert most_bytes(lambda: ones @ ones.T) >= SIDE * SIDE * ones.element_size()


@pytest.mark.parametrize("n", [5, 40])
def test_plans_go_with_their_pattern(format, n):
    x = torch.randn(n, SIDE).to(format[0])
    before = plans()
    calls = products(4, *format)
    for product in calls.values():
        product(x)
        product(x)
    made = weakref.WeakSet(plans() - before)
    assert len(made) >= 2
    del calls, product, before
    products(4, *format)["linear"](x)  # a memory forgets when it is asked for something new
    SDDMM(x.T, x, *[t.clone() for t in other_indices()], 4, 4, False)
    gc.collect()
    assert not made & plans()
    assert not made


def plans():
    kept = (*_plans._products._kept.values(), *_plans._samples._kept.values())
    return {entry.made for entry in kept}


def other_indices():
    pattern = st.random_pattern(SIDE, SIDE, blocksize=4, density=0.1, seed=1)
    return pattern.crow_indices, pattern.col_indices


def training(pattern, stored, dtype):
    """A function that takes one step, with the pattern at hand or another one."""
    values = torch.randn(pattern.nnzb, *pattern.blocksize).to(stored).requires_grad_()
    x = torch.randn(20, pattern.shape[1]).to(dtype)

    @torch.enable_grad()
    def step(pattern):
        x.requires_grad_()
        y = st.linear(x, values, pattern)
        _, dvalues = torch.autograd.grad(y.float().sum(), (x, values))
        with torch.no_grad():
            values.sub_(dvalues, alpha=0.01)

    return step


def growth(step):
    """Bytes by which the process grew in so many steps, after it had settled."""
    for _ in range(SETTLED):
        step()
    before = resident()
    for _ in range(STEPS):
        step()
    return resident() - before


@pytest.mark.parametrize("b", [1, 16])
def test_values_that_change_leave_nothing(format, b):
    pattern = st.random_pattern(2 * SIDE, 2 * SIDE, blocksize=b, density=0.2, seed=0)
    step = training(pattern, *reversed(format))
    assert growth(lambda: step(pattern)) < 4 << 20


@pytest.mark.parametrize("b", [1, 4])
def test_patterns_that_change_leave_nothing(b):
    pattern = st.random_pattern(SIDE, SIDE, blocksize=b, density=0.5, seed=0)
    step = training(pattern, F32, F32)

    def another():
        indices = pattern.crow_indices.clone(), pattern.col_indices.clone()
        return st.Pattern(pattern.shape, pattern.blocksize, *indices)

    # three plans, each of an index a block: nothing of them stays
    assert growth(lambda: step(another())) < max(4 << 20, STEPS * pattern.nnzb * 4)
