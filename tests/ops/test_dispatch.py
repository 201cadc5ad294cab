"""Back ends: which one runs, how one is forced, and what is said when one cannot run."""

import asyncio
import logging
import threading
import types

import pytest
import torch

from sparsetile.matrix import random_pattern
from sparsetile.ops import _dispatch, _fast, backend, backends, last_kernel, linear, spmm
from support_ops import values_for

PATTERN = random_pattern(8, 8, blocksize=4, density=0.5, seed=0)
CACHES = (_dispatch._choose, _dispatch._load, _dispatch._from_environment)


@pytest.fixture
def fresh(monkeypatch):
    """A process in which nothing has been chosen yet."""
    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


def forget():
    for cache in CACHES:
        cache.cache_clear()
    _fast._known.clear()


def product(dtype=torch.float32):
    return linear(torch.ones(2, 8, dtype=dtype), values_for(PATTERN, dtype), PATTERN)


def only_float32(name):
    """A back end that computes with the reference but refuses all but float32."""
    reference = _dispatch._load("reference")[0]

    def computes(*args):
        result = reference.linear(*args)
        _dispatch.ran(f"{name}:linear")
        return result

    def unsupported(op, dtype, values_dtype, blocksize, device):
        return None if dtype == torch.float32 else f"it has no kernel for {dtype}"

    module = types.ModuleType(name)
    module.linear, module.unsupported = computes, unsupported
    return module


def pretend(fresh, module):
    """Replace the back end `cpu`: a module, or an error that its import raises."""
    real = _dispatch.importlib.import_module

    def load(name):
        if name != _dispatch.MODULES["cpu"]:
            return real(name)
        if isinstance(module, Exception):
            raise module
        return module

    fresh.setattr(_dispatch.importlib, "import_module", load)


def test_forced_back_end_runs():
    with backend("reference"):
        product()
    assert last_kernel() == "reference:linear"


def test_forced_back_end_runs_backward_too():
    values = values_for(PATTERN).requires_grad_()
    with backend("reference"):
        spmm(values, PATTERN, torch.ones(8, 2)).sum().backward()
    assert last_kernel() == "reference:sddmm"


def test_inner_choice_wins_and_ends(fresh):
    pretend(fresh, only_float32("cpu"))
    with backend("reference"):
        with backend("auto"):
            product()
            assert last_kernel() == "cpu:linear"
        product()
        assert last_kernel() == "reference:linear"


def test_choice_ends_after_an_error():
    with pytest.raises(ZeroDivisionError), backend("reference"):
        raise ZeroDivisionError
    assert _dispatch._forced.get() is None


def test_choice_belongs_to_one_thread(fresh):
    pretend(fresh, only_float32("cpu"))
    ran = []
    with backend("reference"):
        thread = threading.Thread(target=lambda: (product(), ran.append(last_kernel())))
        thread.start()
        thread.join()
    assert ran == ["cpu:linear"]


def test_choice_belongs_to_one_task(fresh):
    pretend(fresh, only_float32("cpu"))
    ran = {}

    async def run(name, kernel):
        with backend(name):
            await asyncio.sleep(0)
            product()
            ran[kernel] = last_kernel()

    async def both():
        await asyncio.gather(run("reference", "first"), run("cpu", "second"))

    asyncio.run(both())
    assert ran == {"first": "reference:linear", "second": "cpu:linear"}


def test_unknown_name_lists_the_choices():
    with pytest.raises(ValueError, match=r"'gpu'.*cpu, reference or auto"):
        backend("gpu")


def test_environment_chooses(fresh):
    fresh.setenv("SPARSETILE_BACKEND", "reference")
    product()
    assert last_kernel() == "reference:linear"


def test_context_wins_over_environment(fresh):
    pretend(fresh, only_float32("cpu"))
    fresh.setenv("SPARSETILE_BACKEND", "reference")
    with backend("cpu"):
        product()
    assert last_kernel() == "cpu:linear"


def test_unknown_name_in_environment_lists_the_choices(fresh):
    fresh.setenv("SPARSETILE_BACKEND", "fast")
    with pytest.raises(ValueError, match=r"SPARSETILE_BACKEND.*'fast'.*cpu, reference or auto"):
        product()


def test_fallback_is_logged_once_for_each_kind(fresh, caplog):
    pretend(fresh, only_float32("cpu"))
    with caplog.at_level(logging.INFO, logger="sparsetile"):
        for _ in range(3):
            product(torch.float64)
    assert last_kernel() == "reference:linear"
    messages = [r.getMessage() for r in caplog.records if r.name == "sparsetile"]
    assert len(messages) == 1
    assert "float64" in messages[0] and "no kernel" in messages[0] and "reference" in messages[0]


def test_forced_back_end_says_why_it_cannot(fresh):
    pretend(fresh, only_float32("cpu"))
    with backend("cpu"), pytest.raises(NotImplementedError, match=r"no kernel for torch.float64"):
        product(torch.float64)


def test_missing_back_end_warns_once_and_falls_back(fresh):
    pretend(fresh, ImportError("No module named 'llvmlite'"))
    with pytest.warns(RuntimeWarning, match="llvmlite") as warned:
        product()
        product(torch.float64)
    assert len(warned) == 1
    assert last_kernel() == "reference:linear"


@pytest.mark.filterwarnings("ignore:sparsetile")
def test_missing_back_end_cannot_be_forced(fresh):
    pretend(fresh, ImportError("No module named 'llvmlite'"))
    with pytest.raises(RuntimeError, match="llvmlite"):
        backend("cpu")
    assert "llvmlite" in backends()["cpu"]


def test_back_ends_are_listed_fastest_first():
    assert list(backends()) == ["cpu", "reference"]
    assert backends()["reference"] is None
