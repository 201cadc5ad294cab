import sys

import pytest

from sparsetile.bench import _waiting
from sparsetile.bench._waiting import Waiting


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(_waiting.time, "monotonic", lambda: now[0])
    return now


def test_a_plain_line_is_said_every_ten_seconds(clock, capsys):
    with Waiting("Timing", 30.0) as waiting:
        stop = waiting.between(lambda: False)
        for _ in range(25):
            clock[0] += 1.0
            assert not stop()
    assert capsys.readouterr().err.splitlines() == [
        "  Timing: 0:10 of about 0:30",
        "  Timing: 0:20 of about 0:30",
    ]


def test_work_that_takes_longer_says_so(clock, capsys):
    with Waiting("Timing", 5.0) as waiting:
        clock[0] += 12.0
        waiting.between(lambda: False)()
    assert capsys.readouterr().err == "  Timing: 0:12, planned 0:05, not done yet\n"


def test_a_terminal_gets_a_bar(monkeypatch, clock, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Waiting("Timing", 30.0) as waiting:
        clock[0] += 15.0
        waiting.between(lambda: False)()
    assert "0:15 of about 0:30" in capsys.readouterr().err


def test_stop_is_passed_on():
    with Waiting("Timing", 30.0) as waiting:
        assert waiting.between(lambda: True)()
