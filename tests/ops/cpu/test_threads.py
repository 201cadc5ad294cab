"""Threads: any number gives the same bits, from several Python threads and in forked children."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import sparsetile as st
from sparsetile.ops.cpu import _jit, _threads
from sparsetile.ops.cpu._index import index_of
from support import some_values

BLOCKS = [1, 2, 4, 8, 16, 32]


@pytest.fixture(autouse=True)
def mask(monkeypatch):
    """Threads for the smallest work; the processors that the process may use are the test's."""
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1)
    for name in _threads._BINDING:
        monkeypatch.delenv(name, raising=False)

    def use(count):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)), raising=False)

    use(8)
    return use


def products(pattern, values, x, dy):
    indices = (pattern.crow_indices, pattern.col_indices)
    m, k = pattern.shape
    with st.backend("cpu"):
        return [
            st.linear(x, values, pattern),
            torch.ops.sparsetile.linear(dy, values, *indices, None, m, k, True),
            torch.ops.sparsetile.sddmm(dy.T, x, *indices, *pattern.blocksize, True),
            st.spmm(values, pattern, x.T.contiguous()),
        ]


def operands(b, n):
    pattern = st.random_pattern(150, 130, blocksize=(b, b), density=0.3, seed=0)
    values = some_values(pattern)
    return pattern, values, torch.randn(n, 130), torch.randn(n, 150)


@pytest.mark.parametrize("n", [3, 70])
@pytest.mark.parametrize("b", BLOCKS)
def test_results_do_not_depend_on_the_number_of_threads(b, n):
    given = operands(b, n)
    alone = products(*given)
    for threads in (2, 3, 6):
        torch.set_num_threads(threads)
        for one, several in zip(alone, products(*given), strict=True):
            assert torch.equal(one, several)


def test_python_threads_do_not_disturb_each_other():
    cases = [operands(b, 40) for b in BLOCKS]
    expected = [products(*case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for want, got in zip(expected, pool.map(lambda c: products(*c), cases), strict=True):
                assert all(torch.equal(a, b) for a, b in zip(want, got, strict=True))


@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize("b", [1, 4, 16])
def test_python_threads_may_meet_at_the_first_use_of_a_pattern(monkeypatch, b, n):
    given = operands(b, n)
    known = st.random_pattern(150, 130, blocksize=b, density=0.3, seed=0)
    expected = products(known, *given[1:])
    monkeypatch.setattr(_jit, "_loaded", {})  # kernels are loaded anew too
    start = threading.Barrier(4)

    def compute(_):
        torch.set_num_threads(2)  # each thread has its own setting
        start.wait()
        return products(*given)

    with ThreadPoolExecutor(4) as pool:
        results = [*pool.map(compute, range(4)), *pool.map(compute, range(4))]
    for got in results:
        assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_computes_after_the_parent_used_threads():
    given = operands(16, 70)
    torch.set_num_threads(2)
    expected = products(*given)
    child = os.fork()
    if child == 0:
        same = all(torch.equal(a, b) for a, b in zip(expected, products(*given), strict=True))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_parent_and_child_do_not_share_scratch():
    given = operands(16, 200)
    expected = products(*given)
    child = os.fork()
    same = True
    for _ in range(40):
        got = products(*given)
        same = same and all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    if child == 0:
        os._exit(0 if same else 1)
    assert same
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def portable(monkeypatch):
    """No OpenMP library is found."""
    monkeypatch.setattr(_threads, "_openmp", lambda: None)
    _threads._pool.cache_clear()
    yield
    _threads._pool.cache_clear()


def test_the_portable_pool_computes_the_same(monkeypatch, portable):
    given = operands(16, 70)
    expected = products(*given)
    torch.set_num_threads(3)
    assert "pooled" in _threads._pool().__qualname__
    assert all(torch.equal(a, b) for a, b in zip(expected, products(*given), strict=True))


@pytest.mark.parametrize(("allowed", "helpers"), [(1, 1), (2, 1), (6, 5)])
def test_the_portable_pool_is_as_large_as_the_mask(monkeypatch, portable, mask, allowed, helpers):
    sizes = []

    class Executor(ThreadPoolExecutor):
        def __init__(self, size, **more):
            sizes.append(size)
            super().__init__(size, **more)

    monkeypatch.setattr(_threads, "ThreadPoolExecutor", Executor)
    mask(allowed)
    _threads._pool()
    assert sizes == [helpers]


def test_the_calling_thread_works_beside_the_portable_pool(monkeypatch, portable):
    names = []
    work = lambda call: names.append(threading.current_thread().name)  # noqa: E731
    monkeypatch.setattr(_threads, "_function", lambda worker: work)
    _threads.run(0, None, 3)
    assert len(names) == 3
    assert names.count(threading.current_thread().name) == 1


@pytest.fixture
def ran(monkeypatch):
    """Numbers of threads that OpenMP was asked for; its library need not be here."""
    asked = []
    monkeypatch.setattr(_threads, "_openmp", lambda: lambda worker, call, n, flags: asked.append(n))
    _threads._pool.cache_clear()
    yield asked
    _threads._pool.cache_clear()


@pytest.mark.parametrize(("allowed", "threads"), [(8, 4), (4, 4), (3, 3)])
def test_torch_decides_how_many_threads_run_within_the_mask(ran, mask, allowed, threads):
    mask(allowed)
    torch.set_num_threads(4)
    _threads.run(0, None, _threads.thread_count(10**9))
    assert ran == [threads]


def test_one_processor_needs_no_pool(monkeypatch, ran, mask):
    alone = []
    monkeypatch.setattr(_threads, "_function", lambda worker: alone.append)
    mask(1)
    torch.set_num_threads(4)
    _threads.run(0, "call", _threads.thread_count(10**9))
    assert (alone, ran) == (["call"], [])


def test_the_mask_is_the_one_of_now(mask):
    torch.set_num_threads(4)
    mask(2)
    assert _threads.thread_count(10**9) == 2
    mask(4)
    assert _threads.thread_count(10**9) == 4


def test_where_openmp_ties_threads_the_mask_of_one_says_nothing(monkeypatch, mask):
    mask(1)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    torch.set_num_threads(4)
    monkeypatch.setenv("OMP_PROC_BIND", "false")
    assert _threads.thread_count(10**9) == 1
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert _threads.thread_count(10**9) == 4


@pytest.mark.parametrize(("known", "count"), [(5, 5), (None, 1)])
def test_a_system_without_masks_is_asked_otherwise(monkeypatch, known, count):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: known, raising=False)
    assert _threads.processors() == count
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert _threads.processors() == 7


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the platform has no masks")
def test_products_run_within_a_real_mask():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import torch; torch.set_num_threads(4)\n"
        "from sparsetile.ops.cpu import _threads\n"
        "print(_threads.thread_count(10**9), _threads.processors())"
    )
    env = {name: v for name, v in os.environ.items() if name not in _threads._BINDING}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert (done.stdout.split(), done.stderr) == (["1", "1"], "")


def test_little_work_wakes_nobody(monkeypatch):
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1000)
    torch.set_num_threads(4)
    assert [_threads.thread_count(work) for work in (0, 999, 2500, 10**6)] == [1, 1, 2, 4]


def test_plans_give_out_one_address_for_good():
    # Several Python threads may ask at once for what is made on demand, and keep its address.
    index = index_of(torch.arange(301), torch.zeros(300, dtype=torch.int64), 1, transpose=False)
    start = threading.Barrier(4)

    def ask(parts):
        start.wait()
        return index.bounds(parts)

    for parts in range(1, 60):
        with ThreadPoolExecutor(4) as pool:
            given = list(pool.map(ask, [parts] * 4))
        assert all(bounds is given[0] for bounds in given)
