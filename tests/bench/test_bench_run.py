import csv
from typing import ClassVar

import pytest

from sparsetile.bench import _bench_run, _peers
from sparsetile.bench._bench_file import File
from sparsetile.bench._bench_process import Process, ProcessError
from sparsetile.bench._bench_run import Settings, Sweep, run, went_wrong
from sparsetile.bench._bench_time import Timed
from sparsetile.bench._peers import PEERS
from support_bench import ROOF, case


class Fake(Process):
    """Answers at once what a real process would find out."""

    made: ClassVar[list] = []

    def __init__(self, family, threads):
        self.name, self.asked, self.closed = (family, threads), [], False
        Fake.made.append(self)

    def ask(self, question, seconds):
        self.asked.append(question)
        if question["task"] == "roofline":
            return ROOF
        self.before(question)
        times = [1e-3] * 8
        done = [
            dict(peer=name, backend="b", kernel="k", nnzb=9, wall=times, cpu=times,
                 dense_wall=times, dense_cpu=times, verdict="")
            for name in question["names"]
        ]  # fmt: skip
        return {"done": done, "others": 1.9}

    def before(self, question):
        pass

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    Fake.made = []
    monkeypatch.setattr(_peers, "find_spec", lambda name: object())


def sweep_of(cases, peers=tuple(PEERS), file=None, fake=Fake, seconds=1.0):
    sweep, shown = Sweep(), []
    run(
        cases,
        Settings(list(peers), seconds),
        File(None) if file is None else file,
        sweep,
        lambda place, one, rows: shown.append((place, len(rows))),
        fake,
    )
    return sweep, shown


def test_every_family_has_one_process_for_all_cells():
    sweep, shown = sweep_of([case(), case(n=9)])
    assert [fake.name[0] for fake in Fake.made] == ["torch", "scipy", "mkl", "numba", "jax"]
    assert shown == [(1, len(PEERS)), (2, len(PEERS))]
    assert len(sweep.rows) == 2 * len(PEERS)
    assert all(fake.closed for fake in Fake.made)


def test_other_threads_have_other_processes():
    sweep_of([case(threads=1), case(threads=2)], peers=["sparsetile", "torch-dense"])
    assert [fake.name for fake in Fake.made] == [("torch", 1), ("torch", 2)]


def test_the_seconds_of_a_cell_are_shared_by_its_peers():
    sweep_of([case()], seconds=10.0)
    spent = {fake.name[0]: fake.asked[0]["seconds"] for fake in Fake.made}
    assert spent["torch"] == pytest.approx(5.0)
    assert sum(spent.values()) == pytest.approx(10.0)


def test_the_roofline_is_measured_once_a_dtype():
    cases = [case(), case(n=9), case(dtype="float32*bfloat16"), case(dtype="bfloat16")]
    sweep, _ = sweep_of(cases, peers=["sparsetile", "torch-dense"])
    asked = [q["dtype"] for q in Fake.made[0].asked if q["task"] == "roofline"]
    assert asked == ["float32", "bfloat16"]
    assert set(sweep.roofs) == {("float32", 1), ("bfloat16", 1)}


def test_dense_in_bfloat16_is_held_against_the_bounds_of_bfloat16():
    sweep, _ = sweep_of([case()], peers=["sparsetile", "torch-dense", "torch-dense-bf16"])
    assert set(sweep.roofs) == {("float32", 1), ("bfloat16", 1)}


def test_a_peer_that_is_not_installed_is_listed_and_no_process_started(monkeypatch):
    monkeypatch.setattr(_peers, "find_spec", lambda name: None if name == "numba" else object())
    sweep, _ = sweep_of([case()])
    row = next(row for row in sweep.rows if row["peer"] == "numba")
    assert (row["verdict"], row["median_us"]) == ("not installed", "")
    assert "numba" not in [fake.name[0] for fake in Fake.made]


def test_a_process_that_fails_leaves_a_reason_and_the_sweep_goes_on():
    class Failing(Fake):
        def before(self, question):
            if question["case"]["n"] == 8:
                raise ProcessError("no answer in 60 s")

    sweep, _ = sweep_of([case(), case(n=9)], peers=["sparsetile", "torch-dense"], fake=Failing)
    assert [row["verdict"] for row in sweep.rows[:2]] == ["failed: no answer in 60 s"] * 2
    assert sweep.rows[2]["median_us"] == pytest.approx(1000)


def test_a_cell_that_needs_too_much_memory_is_not_tried(monkeypatch):
    monkeypatch.setattr(_bench_run, "free_memory", lambda: 1000)
    sweep, _ = sweep_of([case()], peers=["sparsetile", "torch-dense"])
    assert {row["verdict"].split(" ")[0] for row in sweep.rows} == {"needs"}
    assert Fake.made == []


def test_a_finished_sweep_is_not_measured_again(tmp_path):
    path = tmp_path / "a.csv"
    sweep_of([case(), case(n=9)], file=File(path))
    text, Fake.made = path.read_text(), []
    sweep, shown = sweep_of([case(), case(n=9)], file=File(path))
    assert Fake.made == []
    assert (sweep.skipped, shown) == (2, [(1, 0), (2, 0)])
    assert path.read_text() == text


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path):
    class Interrupted(Fake):
        def before(self, question):
            if question["case"]["n"] == 9:
                raise KeyboardInterrupt

    path, peers = tmp_path / "a.csv", ["sparsetile", "torch-dense"]
    with pytest.raises(KeyboardInterrupt):
        sweep_of([case(), case(n=9)], peers, File(path), Interrupted)
    assert all(fake.closed for fake in Fake.made)
    with path.open() as file:
        assert [row["n"] for row in csv.DictReader(file)] == ["8", "8"]
    _, shown = sweep_of([case(), case(n=9)], peers, File(path))
    assert shown == [(1, 0), (2, 2)]


def test_only_the_family_that_lacks_a_row_is_timed_again(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    monkeypatch.setattr(_peers, "find_spec", lambda name: None if name == "numba" else object())
    sweep_of([case()], file=File(path))
    monkeypatch.setattr(_peers, "find_spec", lambda name: object())
    Fake.made = []
    sweep, _ = sweep_of([case()], file=File(path))
    assert {fake.name[0] for fake in Fake.made} == {"numba", "torch"}  # torch for the roofline
    assert [row["peer"] for row in sweep.rows] == ["numba"]
    assert len(File(path)) == len(PEERS)


def test_a_busy_machine_is_told_for_several_threads_only():
    assert Sweep(busy=[(1, 2.0)]).busy_warning() == ""
    warning = Sweep(busy=[(2, 64.0), (1, 0.0)]).busy_warning()
    assert warning.startswith("in 1 of 2 timings the machine was busy")


@pytest.mark.parametrize(
    ("verdict", "bad"),
    [("faster", False), ("no bfloat16", False), ("wrong result", True), ("failed: x", True)],
)
def test_faults_are_told_from_limits(verdict, bad):
    assert went_wrong(verdict) is bad


def test_free_memory_is_known_on_linux():
    free = _bench_run.free_memory()
    assert free is None or free > 1 << 20


def test_timed_is_plain_data():
    assert Timed("x").wall == []
