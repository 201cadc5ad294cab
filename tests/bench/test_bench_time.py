import time

import pytest
import torch

from sparsetile.bench import _bench_time
from sparsetile.bench._bench_case import CannotError, Case, Operands, difference
from sparsetile.bench._bench_time import time_family
from sparsetile.bench._peers import Call
from sparsetile.bench._peers import prepare as real
from support_bench import case

PAIR = ["sparsetile", "torch-dense"]


def swap(monkeypatch, **calls):
    """Put calls of our own in the place of peers; the name's dashes are underscores."""

    def prepare(name, given):
        make = calls.get(name.replace("-", "_"))
        return real(name, given) if make is None else make(given)

    monkeypatch.setattr(_bench_time, "prepare", prepare)


def run(names=PAIR, one=None, seconds=0.02):
    done, _ = time_family(one or case(), names, seconds=seconds, seed=0)
    return {timed.peer: timed for timed in done}


def test_peers_are_timed_in_the_same_rounds_as_dense():
    done = run()
    own, dense = done["sparsetile"], done["torch-dense"]
    assert (own.backend, own.verdict) == ("cpu", "")
    assert own.kernel.startswith("linear_f32_b4x4")
    assert len(own.wall) == len(own.cpu) == len(own.dense_wall) >= 5
    assert own.dense_wall == dense.wall
    assert own.nnzb == 96


def test_a_family_without_dense_is_compared_with_it_all_the_same():
    done = run(["scipy-csr"])
    assert list(done) == ["scipy-csr"]
    assert len(done["scipy-csr"].dense_wall) == len(done["scipy-csr"].wall) > 0


def test_where_no_peer_can_do_the_case_no_time_is_spent(monkeypatch):
    monkeypatch.setattr(Operands, "truth", lambda self: pytest.fail("not needed"))
    done = run(["scipy-csr", "scipy-bsr"], case(dtype="bfloat16"))
    assert {timed.verdict for timed in done.values()} == {"no bfloat16"}


def test_a_wrong_result_is_not_timed(monkeypatch):
    def wrong(given):
        return Call(lambda: given.truth()[0] * 1.01, lambda found: (found,), "bad")

    swap(monkeypatch, torch_csr=wrong)
    done = run([*PAIR, "torch-csr"])
    assert (done["torch-csr"].verdict, done["torch-csr"].wall) == ("wrong result", [])
    assert done["sparsetile"].wall


def test_nan_is_a_wrong_result():
    bad = torch.tensor([1.0, float("nan")])
    assert difference((bad,), (torch.ones(2),)) == float("inf")


def test_a_peer_that_fails_says_how_and_the_others_go_on(monkeypatch):
    def broken(given):
        raise RuntimeError("out of\n  luck")

    swap(monkeypatch, torch_csr=broken)
    done = run([*PAIR, "torch-csr"])
    assert done["torch-csr"].verdict == "error: RuntimeError: out of luck"
    assert done["sparsetile"].wall


@pytest.mark.parametrize(
    ("dtype", "text"), [("bfloat16", "not for 'BFloat16'"), ("float16", "no 'Half' here")]
)
def test_a_dtype_that_a_library_lacks_is_named_in_our_words(monkeypatch, dtype, text):
    def broken(given):
        raise NotImplementedError(text)

    swap(monkeypatch, torch_csr=broken)
    assert run([*PAIR, "torch-csr"], case(dtype=dtype))["torch-csr"].verdict == f"no {dtype}"


def test_without_a_dense_product_nothing_is_compared(monkeypatch):
    def cannot(given):
        raise CannotError("not today")

    swap(monkeypatch, torch_dense=cannot)
    done = run()
    assert done["torch-dense"].verdict == "not today"
    assert done["sparsetile"].verdict == "no dense product to compare with (not today)"


def test_a_slow_peer_takes_fewer_rounds_and_none_from_the_others(monkeypatch):
    calls = []

    def slow(given):
        def call():
            calls.append(1)
            time.sleep(0.03)
            return given.truth()[0]

        return Call(call, lambda found: (found,), "slow")

    swap(monkeypatch, torch_csr=slow)
    done = run([*PAIR, "torch-csr"])
    assert 1 <= len(done["torch-csr"].wall) < 5
    assert len(done["torch-csr"].dense_wall) == len(done["torch-csr"].wall)
    assert len(done["sparsetile"].wall) >= 5
    assert len(calls) < 10


def test_short_calls_are_timed_many_at_once(monkeypatch):
    calls = []

    def short(given):
        right = given.truth()[0]
        return Call(lambda: calls.append(1) or right, lambda found: (found,), "short")

    swap(monkeypatch, torch_csr=short)
    done = run([*PAIR, "torch-csr"])
    assert len(calls) > 10 * len(done["torch-csr"].wall)


@pytest.mark.parametrize(
    ("threads", "others", "said"), [(2, 64.0, True), (2, 0.0, False), (1, 64.0, False)]
)
def test_several_threads_are_disturbed_by_busy_neighbours(monkeypatch, threads, others, said):
    monkeypatch.setattr(_bench_time.Neighbours, "cpus", lambda self: others)
    assert {timed.disturbed for timed in run(one=case(threads=threads)).values()} == {said}


def test_operands_are_the_same_in_every_process():
    a, b = Operands(case(), seed=3), Operands(case(), seed=3)
    assert torch.equal(a.pattern.col_indices, b.pattern.col_indices)
    for name in ("values", "x", "g"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert not torch.equal(a.x, Operands(case(), seed=4).x)


def test_memory_is_told_before_it_is_taken():
    small, large = case(), Case("linear", 1 << 16, 1 << 16, 64, 4, 4, 0.5, "float32", 1)
    assert small.memory < 1e6
    assert large.memory > 4 * (1 << 32)
