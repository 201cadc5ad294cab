"""Threads: any number gives the same bits, from several Python threads and in forked children."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import sparsetile as st
from sparsetile.ops.cpu import _threads
from support import some_values

BLOCKS = [1, 2, 4, 8, 16, 32]


@pytest.fixture(autouse=True)
def _threads_for_the_smallest_work(monkeypatch):
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1)


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


def test_the_portable_pool_computes_the_same(monkeypatch):
    given = operands(16, 70)
    torch.set_num_threads(2)
    expected = products(*given)
    monkeypatch.setattr(_threads, "_openmp", lambda: None)
    _threads._pool.cache_clear()
    try:
        assert "pooled" in _threads._pool().__qualname__
        assert all(torch.equal(a, b) for a, b in zip(expected, products(*given), strict=True))
    finally:
        _threads._pool.cache_clear()


def test_torch_decides_how_many_threads_run(monkeypatch):
    seen = []
    monkeypatch.setattr(_threads, "_pool", lambda: lambda worker, call, n: seen.append(n))
    torch.set_num_threads(2)
    _threads.run(0, None, _threads.thread_count(10**9))
    assert seen == [2]


def test_little_work_wakes_nobody(monkeypatch):
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1000)
    torch.set_num_threads(4)
    assert [_threads.thread_count(work) for work in (0, 999, 2500, 10**6)] == [1, 1, 2, 4]
