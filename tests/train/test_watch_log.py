"""Logs of a run: rows are whole, stand there once, and survive a resume."""

import csv
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from sparsetile.nn import sparsify_
from sparsetile.train import (
    SET,
    CsvLog,
    FlopMeter,
    History,
    Snapshot,
    TensorBoardLog,
    count_flops,
)
from support import without_type_checks


class Run:
    """A small run that can be stopped, saved and gone on with."""

    def __init__(self, every=3):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
        self.model = sparsify_(model, density=0.25, blocksize=4)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.trainer = SET(total_steps=100, every=every).attach(self.model, self.optimizer)

    def steps(self, count):
        for _ in range(count):
            generator = torch.Generator().manual_seed(self.trainer.step_count)
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 16, generator=generator)).square().sum().backward()
            self.optimizer.step()
        return self

    def save(self):
        parts = (self.model, self.optimizer, self.trainer)
        return torch.utils._pytree.tree_map(
            lambda x: x.clone() if isinstance(x, torch.Tensor) else x,
            [part.state_dict() for part in parts],
        )

    def load(self, states):
        for part, state in zip((self.model, self.optimizer, self.trainer), states, strict=True):
            part.load_state_dict(state)
        return self


def rows(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def steps_in(path):
    return [int(row["step"]) for row in rows(path)]


def test_csv_has_a_row_for_each_update_with_what_was_seen(tmp_path):
    run, path = Run(), tmp_path / "run.csv"
    history = run.trainer.add_callback(History())
    run.trainer.add_callback(CsvLog(str(path)))
    run.steps(10)
    assert steps_in(path) == [3, 6, 9]
    for row, seen in zip(rows(path), history.snapshots, strict=True):
        assert list(row) == list(seen.row())
        assert row["flops"] == ""
        for name, value in seen.row().items():
            if value is not None:
                assert float(row[name]) == pytest.approx(value, rel=1e-5)


def test_csv_has_a_row_every_so_many_steps_and_operations(tmp_path):
    run, path = Run(), tmp_path / "run.csv"
    run.trainer.add_callback(CsvLog(path, every=4, flops=FlopMeter(run.model, batch=8)))
    run.steps(9)
    each = count_flops(run.model, batch=8).total
    assert [(int(r["step"]), float(r["flops_with_head"])) for r in rows(path)] == [
        (4, 4 * each),
        (8, 8 * each),
    ]


def test_one_meter_counts_once_for_all_logs(tmp_path):
    run = Run()
    meter = run.trainer.add_callback(FlopMeter(run.model))
    run.trainer.add_callback(CsvLog(tmp_path / "run.csv", flops=meter))
    history = run.trainer.add_callback(History(every=1, flops=meter))
    run.steps(3)
    each = count_flops(run.model).total
    assert [seen.flops.total for seen in history.snapshots] == [each, 2 * each, 3 * each]


def test_row_before_an_update_shows_the_state_before_it(tmp_path):
    run = Run()
    history = run.trainer.add_callback(History(every=3))
    run.steps(4)
    assert [(seen.step, seen.updates) for seen in history.snapshots] == [(3, 0)]


@pytest.mark.parametrize("stop", [5, 6, 7])
@pytest.mark.parametrize("every", [None, 1, 2])
def test_resumed_csv_is_that_of_a_run_that_never_stopped(tmp_path, stop, every):
    whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
    run = Run()
    run.trainer.add_callback(CsvLog(whole, every=every))
    run.steps(12)
    first = Run()
    first.trainer.add_callback(CsvLog(broken, every=every))
    states = first.steps(stop).save()
    first.steps(4)  # rows after what was saved
    second = Run().load(states)
    second.trainer.add_callback(CsvLog(broken, every=every))
    second.steps(12 - stop)
    assert broken.read_text() == whole.read_text()


def test_going_back_to_a_state_forgets_later_rows(tmp_path):
    run, path = Run(), tmp_path / "run.csv"
    history = run.trainer.add_callback(History(every=1))
    run.trainer.add_callback(CsvLog(path, every=1))
    states = run.steps(3).save()
    run.steps(4).load(states).steps(2)
    assert steps_in(path) == [seen.step for seen in history.snapshots] == [1, 2, 3, 4, 5]


def test_half_a_row_is_removed_when_the_run_goes_on(tmp_path):
    path = tmp_path / "run.csv"
    run = Run()
    run.trainer.add_callback(CsvLog(path, every=1))
    states = run.steps(4).save()
    whole = path.read_text()
    with path.open("a") as file:
        file.write("5,1,3")  # what a full disk leaves
    second = Run().load(states)
    second.trainer.add_callback(CsvLog(path, every=1))
    second.steps(1)
    assert path.read_text().startswith(whole)
    assert steps_in(path) == [1, 2, 3, 4, 5]
    assert [p.name for p in tmp_path.iterdir()] == ["run.csv"]


def test_new_run_replaces_an_old_one_at_its_first_step(tmp_path):
    path = tmp_path / "run.csv"
    Run().trainer.add_callback(CsvLog(path, every=1))
    assert not path.exists()
    run = Run()
    run.trainer.add_callback(CsvLog(path, every=1))
    run.steps(5)
    again = Run()
    again.trainer.add_callback(CsvLog(path, every=1))
    assert len(rows(path)) == 5
    again.steps(2)
    assert steps_in(path) == [1, 2]


def test_file_that_is_moved_away_is_begun_anew(tmp_path):
    run, path = Run(), tmp_path / "run.csv"
    run.trainer.add_callback(CsvLog(path, every=1))
    run.steps(2)
    path.rename(tmp_path / "first.csv")
    run.steps(2)
    assert (steps_in(tmp_path / "first.csv"), steps_in(path)) == ([1, 2], [3, 4])


def test_file_of_another_kind_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "loss.csv"
    path.write_text("step,loss\n1,2.5\n")
    with pytest.raises(ValueError, match=r"other columns.*'step,loss'.*name another file"):
        CsvLog(path)
    assert path.read_text() == "step,loss\n1,2.5\n"


def scalars(folder):
    """All points of the event files of a folder, as TensorBoard would show them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        name: [(point.step, point.value) for point in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_tensorboard_reads_back_what_was_seen(tmp_path):
    run = Run()
    history = run.trainer.add_callback(History())
    log = run.trainer.add_callback(TensorBoardLog(tmp_path / "board"))
    run.steps(10)
    log.close()
    found = scalars(tmp_path / "board")
    assert found["run/coverage"] == [
        (seen.step, pytest.approx(seen.coverage)) for seen in history.snapshots
    ]
    assert found["coverage/0"] == [
        (seen.step, pytest.approx(seen.layers["0"].coverage)) for seen in history.snapshots
    ]
    names = {f"run/{name}" for name in Snapshot.row(history.snapshots[0]) if "flops" not in name}
    assert {name for name in found if name.startswith("run/")} == names - {"run/step"}


def test_tensorboard_hides_what_a_resumed_run_does_again(tmp_path):
    first = Run()
    log = first.trainer.add_callback(TensorBoardLog(tmp_path, every=1))
    states = first.steps(4).save()
    first.steps(4)
    log.close()
    second = Run().load(states)
    log = second.trainer.add_callback(TensorBoardLog(tmp_path, every=1))
    second.steps(2)
    log.close()
    assert [step for step, _ in scalars(tmp_path)["run/coverage"]] == [1, 2, 3, 4, 5, 6]


def test_missing_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match="pip install tensorboard, or use CsvLog"):
        TensorBoardLog(tmp_path)


BAD = {
    "every": (lambda: History(every=0), "every must be 1 or more, got 0"),
    "every_text": (lambda: CsvLog("run.csv", every="2"), "every must be an int"),
    "flops": (lambda: History(flops=3.0), "flops must be a FlopMeter or None, got float"),
    "path": (lambda: CsvLog(3), "path must be a string or a Path, got int"),
    "folder": (lambda: CsvLog("no/such/run.csv"), "folder that does not exist"),
    "board": (lambda: TensorBoardLog(None), "folder must be a string or a Path, got NoneType"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_log_is_refused(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = BAD[case]
    refusals = (TypeError, ValueError, FileNotFoundError)
    with without_type_checks(), pytest.raises(refusals, match=message):
        call()
