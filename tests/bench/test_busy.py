import pytest
import torch

from sparsetile.bench import _busy
from sparsetile.bench._busy import Neighbours, busy_warning


@pytest.mark.parametrize(
    ("others", "threads", "cpus", "busy"),
    [(0.1, 2, 2, False), (0.5, 2, 2, True), (3.0, 4, 8, False), (6.0, 4, 8, True)],
)
def test_machine_is_busy_when_the_timed_threads_lack_cpus(others, threads, cpus, busy):
    assert bool(busy_warning(others, threads, cpus)) == busy


def neighbours(monkeypatch, start, end):
    moments = iter([start, end])
    monkeypatch.setattr(_busy, "_now", lambda: next(moments))
    return Neighbours()


def test_own_work_is_not_others_work(monkeypatch):
    assert neighbours(monkeypatch, (0.0, 5.0, 1.0), (10.0, 35.0, 21.0)).cpus() == 1.0


@pytest.mark.parametrize("end", [None, (0.01, 9.0, 1.0)])
def test_nothing_is_said_where_nothing_is_known(monkeypatch, end):
    torch.set_num_threads(2)
    assert neighbours(monkeypatch, (0.0, 5.0, 1.0), end).warning() == ""


def test_cpu_time_of_one_thread_needs_no_warning(monkeypatch):
    assert neighbours(monkeypatch, (0.0, 0.0, 0.0), (1.0, 99.0, 0.0)).warning() == ""


def test_system_without_the_file_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(_busy, "_STAT", tmp_path / "stat")
    assert Neighbours().cpus() is None
