"""Every product test runs on every back end, or asserts that the back end refuses by name."""

import contextlib
import importlib

import pytest
import torch

import sparsetile.ops as ops
from sparsetile.ops import _dispatch

BACKENDS = ("reference", "cpu")


@pytest.fixture(scope="session", params=BACKENDS)
def backend_name(request):
    with ops.backend(request.param):  # raises where it cannot run: never skip
        pass
    return request.param


@pytest.fixture(scope="session")
def compute(backend_name):
    """Calls a function on the back end; None where that must refuse the dtype or block."""
    module = importlib.import_module(_dispatch.MODULES[backend_name])

    def compute(function, products, dtype, blocksize, values_dtype=None):
        pairs = {op: dtype if op == "sddmm" else values_dtype or dtype for op in products}
        reasons = [module.unsupported(op, dtype, v, blocksize, CPU) for op, v in pairs.items()]
        refused = [reason for reason in reasons if reason is not None]
        with ops.backend(backend_name):
            if refused:
                with pytest.raises(NotImplementedError) as error:
                    function()
                assert any(reason in str(error.value) for reason in refused)
                return None
            result = function()
        assert ops.last_kernel().startswith(backend_name + ":")
        return result

    return compute


@pytest.fixture
def on_reference():
    with contextlib.ExitStack() as stack:
        stack.enter_context(ops.backend("reference"))
        yield


CPU = torch.device("cpu")
