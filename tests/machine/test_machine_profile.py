"""A profile adds up, prints, becomes rows and draws."""

import builtins
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from sparsetile.machine import Repeat, run
from support_machine import copy, count_up, exchange, idle, ints, program, small, variable

X = variable("x", [2, 2, 2, 2])
N = variable("n", [1, 0, 0, 0])
MACHINE = small(sync_cycles=10, exchange_cycles=5, clock_hz=2e9)


@pytest.fixture(scope="module")
def profile():
    steps = (
        exchange(copy(X, X, (0, 6, 2), (2, 3, 1)), name="send"),
        Repeat(N, (idle([X], [X], "work", ints(40, 20, 10, 10)),)),
        count_up(N),
    )
    p = program(*steps, inputs=[X, N], outputs=[X], machine=MACHINE, name="test")
    return run(p, {X: np.zeros(8, "i4"), N: np.array([3], "i4")}).profile


def test_cycles_add_up(profile):
    assert [(p.name, p.kind, p.times, p.cycles) for p in profile.phases] == [
        ("send", "exchange", 1, 2 + 5),
        ("work", "compute", 3, 120),
        ("count n", "compute", 1, 1),
        ("sync", "sync", 5, 50),
    ]
    assert profile.cycles == 178
    assert profile.seconds == 178 / 2e9
    assert profile.tile_cycles.tolist() == [123, 62, 31, 33]


def test_mean_and_balance(profile):
    send, work, _, sync = profile.phases
    assert work.mean_cycles == 60
    assert work.balance == 0.5
    assert send.mean_cycles == (2 + 1 + 0 + 2) / 4 + 5
    assert sync.balance == 1
    assert profile.balance == pytest.approx((6.25 + 60 + 1 + 50) / 178)


def test_bytes_add_up(profile):
    assert profile.bytes_moved == 8
    assert profile.bytes_moved_on_tile == 4


def test_table_is_aligned(profile):
    lines = str(profile).splitlines()
    assert lines[0] == (
        "test on small: 178 cycles, 0.1 µs; fullest tile 16 of 1,024 bytes, in send"
    )
    assert len({len(line) for line in lines[1:]}) == 1
    assert re.split(r"  +", lines[3]) == [
        "work", "compute", "3", "120", "67.4 %", "0.50", "0", "0", "12",
    ]  # fmt: skip


def test_short_form_names_the_program(profile):
    assert repr(profile) == "<Profile of 'test' on small: 178 cycles>"
    assert repr(profile.phases[1]) == "Phase('work', 'compute', times=3, cycles=120)"


def test_rows_hold_what_phases_do(profile):
    rows = profile.to_rows()
    assert len({tuple(row) for row in rows}) == 1
    assert [row["cycles"] for row in rows] == [phase.cycles for phase in profile.phases]
    assert rows[0] | {"phase": "send", "machine": "small", "bytes_moved": 8} == rows[0]


def test_profile_of_nothing_is_empty(tmp_path):
    nothing = run(program(), {}).profile
    assert (nothing.cycles, nothing.phases, nothing.balance) == (0, (), 1.0)
    assert "0 cycles" in str(nothing)
    nothing.draw(tmp_path / "nothing.svg")


def test_svg_shows_phases_tiles_and_the_limit(profile, tmp_path):
    profile.draw(tmp_path / "profile.svg")
    text = (tmp_path / "profile.svg").read_text("utf-8")
    ElementTree.fromstring(text)
    for shown in ("work × 3", "120", "178 cycles", "a tile has 1,024", "tile 0", "exchange"):
        assert shown in text


def test_same_profile_draws_the_same_svg(profile, tmp_path):
    for name in ("one.svg", "two.svg"):
        profile.draw(tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_png_is_written(profile, tmp_path):
    profile.draw(str(tmp_path / "profile.PNG"))
    assert (tmp_path / "profile.PNG").read_bytes().startswith(b"\x89PNG")


def test_many_phases_share_a_bar(tmp_path):
    steps = [idle([X], [X], f"step {i}", np.full(4, 100 + i)) for i in range(40)]
    profile = run(program(*steps, inputs=[X], outputs=[X]), {X: np.zeros(8, "i4")}).profile
    profile.draw(tmp_path / "many.svg")
    text = (tmp_path / "many.svg").read_text("utf-8")
    assert "17 smaller phases" in text
    assert "step 39" in text
    assert "step 16<" not in text


def test_other_pictures_are_refused(profile, tmp_path):
    with pytest.raises(ValueError, match=r"'profile.txt'; it can be written as .svg, .png, .pdf"):
        profile.draw(tmp_path / "profile.txt")


def test_missing_matplotlib_says_how_to_get_it(profile, tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'sparsetile\[plot\]'"):
        profile.draw(tmp_path / "profile.svg")


def test_one_name_and_kind_is_one_phase():
    steps = idle([X], [X], "a"), idle([X], [X], "b"), idle([X], [X], "a")
    profile = run(program(*steps, inputs=[X], outputs=[X]), {X: np.zeros(8, "i4")}).profile
    assert [(p.name, p.times) for p in profile.phases] == [("a", 2), ("b", 1)]
