import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from sparsetile.bench import _peers, _peers_jax, _peers_mkl, _peers_numba
from sparsetile.bench._bench_case import OPS, CannotError, Operands, difference, tolerance
from sparsetile.bench._errors import CommandError
from sparsetile.bench._peers import PEERS, choose_peers, peers_of, prepare
from support_bench import case

SHAPES = [dict(r=4, c=4), dict(r=1, c=1), dict(r=16, c=1), dict(r=8, c=8, m=60, k=41)]


def right(name, given):
    call = prepare(name, given)
    gap = difference(call.result(call.run()), given.truth())
    return gap <= tolerance(torch.bfloat16 if name == "torch-dense-bf16" else given.x.dtype)


@pytest.fixture
def foreign(monkeypatch):
    """Stand-ins for the libraries that the `bench` extra brings: what they compute, in plain code.

    numba compiles the very loops that run here uncompiled.
    """
    numba = ModuleType("numba")
    numba.njit = lambda **_: lambda function: function
    numba.prange = range
    mkl = ModuleType("sparse_dot_mkl")
    mkl.dot_product_mkl = lambda w, x: w @ x
    jax, sparse = ModuleType("jax"), ModuleType("jax.experimental.sparse")
    jax.device_put = lambda part: part
    jax.jit = lambda function: function
    sparse.BCSR = Bcsr
    fakes = {"numba": numba, "sparse_dot_mkl": mkl, "jax": jax, "jax.experimental.sparse": sparse}
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)
    _peers_numba._kernels.cache_clear()
    yield
    _peers_numba._kernels.cache_clear()


class Bcsr:
    def __init__(self, parts, *, shape):
        from scipy.sparse import csr_array

        self.matrix = csr_array(parts, shape=shape)

    def __matmul__(self, x):
        return Later(self.matrix @ x)


class Later(np.ndarray):
    def __new__(cls, values):
        return values.view(cls)

    def block_until_ready(self):
        return self


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_gives_the_right_answer_or_says_why_not(foreign, name, op, shape):
    given = Operands(case(op=op, **shape), seed=1)
    try:
        assert right(name, given)
    except CannotError as reason:
        assert str(reason) and name not in ("sparsetile", "torch-dense")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", OPS)
def test_own_and_dense_products_are_right_in_16_bits(op, dtype):
    given = Operands(case(op=op, dtype=dtype), seed=1)
    assert right("sparsetile", given)
    assert right("torch-dense", given)


@pytest.mark.parametrize("values", ["bfloat16", "float16"])
@pytest.mark.parametrize("op", ["linear", "dx", "spmm"])
def test_mixed_dtypes_are_right(op, values):
    given = Operands(case(op=op, dtype=f"float32*{values}"), seed=1)
    assert given.values.dtype == getattr(torch, values)
    assert right("sparsetile", given)
    assert right("torch-dense", given)
    assert right("torch-csr", given)


def test_mixed_dtypes_have_no_gradients():
    with pytest.raises(CannotError, match="inference"):
        prepare("sparsetile", Operands(case(op="linear+grad", dtype="float32*bfloat16"), seed=0))


@pytest.mark.parametrize("name", ["scipy-csr", "mkl-csr", "numba", "jax-bcsr"])
def test_libraries_without_bfloat16_say_so(foreign, name):
    with pytest.raises(CannotError, match="no bfloat16"):
        prepare(name, Operands(case(dtype="bfloat16"), seed=0))


def test_a_train_step_moves_the_weight():
    given = Operands(case(op="train-step"), seed=0)
    call = prepare("sparsetile", given)
    (dx, blocks), (again, _) = call.run(), call.run()
    assert blocks.shape == given.values.shape
    assert not torch.equal(dx, again)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("none", ["sparsetile", "torch-dense"]),
        ("numba, torch-csr", ["sparsetile", "torch-dense", "torch-csr", "numba"]),
        ("all", list(PEERS)),
    ],
)
def test_peers_are_chosen_by_name(text, names):
    assert choose_peers(text) == names


def test_an_unknown_peer_is_refused_with_the_names_there_are():
    with pytest.raises(CommandError, match=r"--peers cuda: .*'cuda'; the peers are .*numba.*give"):
        choose_peers("cuda")


def test_dense_in_bfloat16_is_not_timed_twice():
    names = list(PEERS)
    assert set(names) - set(peers_of(names, "bfloat16")) == {"torch-dense-bf16"}
    assert peers_of(names, "float32") == names


def test_a_peer_is_installed_when_python_finds_all_it_needs(monkeypatch):
    monkeypatch.setattr(_peers, "find_spec", lambda name: None if name == "jaxlib" else object())
    assert not PEERS["jax-bcsr"].installed()
    assert PEERS["numba"].installed()


def test_versions_name_the_packages_of_a_peer(monkeypatch):
    monkeypatch.setattr(_peers, "version", lambda name: f"{len(name)}.0")
    assert PEERS["mkl-csr"].versions() == "sparse_dot_mkl 14.0, mkl 3.0"
    assert PEERS["sparsetile"].versions() == ""


def test_mkl_is_told_where_its_library_is(monkeypatch):
    part = SimpleNamespace(name="libmkl_rt.so.3", locate=lambda: "/lib/libmkl_rt.so.3")
    monkeypatch.setattr(_peers_mkl, "files", lambda name: [SimpleNamespace(name="x"), part])
    assert _peers_mkl.environment(2) == {
        "MKL_NUM_THREADS": "2",
        "MKL_RT": "/lib/libmkl_rt.so.3",
    }


def test_jax_gets_as_many_cpus_as_threads(monkeypatch):
    given = []
    monkeypatch.setattr(_peers_jax.os, "sched_getaffinity", lambda _: {3, 1, 2}, raising=False)
    monkeypatch.setattr(
        _peers_jax.os, "sched_setaffinity", lambda _, cpus: given.append(cpus), raising=False
    )
    _peers_jax.limit_threads(2)
    assert given == [[1, 2]]
