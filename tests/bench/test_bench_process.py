import os
import signal
from dataclasses import asdict

import pytest

from sparsetile.bench import _bench_process
from sparsetile.bench._bench_process import Process, ProcessError
from support_bench import case


@pytest.fixture
def child(monkeypatch, tmp_path):
    """A process of a module of ours in the place of the real one, quick to start."""

    def start(body):
        (tmp_path / "stand_in.py").write_text(f"import sys, json\nfor line in sys.stdin:\n{body}")
        monkeypatch.setattr(_bench_process, "_MODULE", "stand_in")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return Process("torch", 1)

    return start


def test_a_family_is_timed_in_a_process_of_its_own():
    question = {"case": asdict(case()), "names": ["sparsetile", "torch-dense"], "seed": 0}
    with Process("torch", 1) as process:
        answer = process.ask({"task": "time", "seconds": 0.02, **question}, 120)
        roof = process.ask(
            {"task": "roofline", "dtype": "float32", "threads": 1, "seconds": 0.02}, 120
        )
        pid = process._child.pid
    assert [one["peer"] for one in answer["done"]] == ["sparsetile", "torch-dense"]
    assert all(one["wall"] for one in answer["done"])
    assert roof["peak"] > 0
    with pytest.raises(OSError):
        os.kill(pid, 0)


def test_a_process_is_kept_from_one_question_to_the_next(child):
    with child("    import os; print(os.getpid(), flush=True)\n") as process:
        assert process.ask({}, 60) == process.ask({}, 60)


def test_a_process_is_renewed_before_it_has_kept_too_much(child, monkeypatch):
    monkeypatch.setattr(_bench_process, "_MOST", 2)
    with child("    import os; print(os.getpid(), flush=True)\n") as process:
        first, second, third = (process.ask({}, 60) for _ in range(3))
    assert first == second != third


def test_a_process_that_dies_is_told_with_its_last_words_and_started_anew(child):
    body = "    if 'die' in line: sys.exit('no room')\n    print(json.dumps('alive'), flush=True)\n"
    with child(body) as process:
        with pytest.raises(ProcessError, match="exit code 1: no room"):
            process.ask({"task": "die"}, 60)
        assert process.ask({}, 60) == "alive"


def test_a_signal_is_named(child):
    with child("    import os; os.kill(os.getpid(), 9)\n") as process:
        with pytest.raises(ProcessError, match=signal.Signals(9).name):
            process.ask({}, 60)


def test_a_process_that_hangs_is_ended(child):
    with child("    import time; time.sleep(600)\n") as process:
        process._start()
        pid = process._child.pid
        with pytest.raises(ProcessError, match="no answer in 0 s"):
            process.ask({}, 0.3)
        with pytest.raises(OSError):
            os.kill(pid, 0)


def test_each_family_has_the_threads_it_was_given():
    assert _bench_process._environment("torch", 2) == {"OMP_NUM_THREADS": "2"}
    assert _bench_process._environment("numba", 2)["NUMBA_NUM_THREADS"] == "2"
    assert _bench_process._environment("mkl", 2)["MKL_NUM_THREADS"] == "2"
    assert _bench_process._environment("jax", 2)["JAX_PLATFORMS"] == "cpu"
