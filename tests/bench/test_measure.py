import csv

import pytest
import torch

from sparsetile.bench._files import human_bytes, write_csv
from sparsetile.bench._measure import COLUMNS, Measurement, clock_name, interleave


def test_calls_take_turns():
    order = []
    interleave(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, seconds=0, rounds=(3, 3)
    )
    # each is called once to warm up, then twice a turn, of which the second call counts
    assert order == ["a", "b"] + ["a", "a", "b", "b"] * 3


def test_only_the_second_call_of_a_turn_counts():
    times = interleave({"a": lambda: None}, seconds=0, rounds=(3, 3))
    assert len(times["a"]) == 3


def test_rounds_end_when_the_time_is_over():
    times = interleave({"a": lambda: None}, seconds=0.0, rounds=(2, 1000))
    assert len(times["a"]) == 2


def test_stop_keeps_whole_rounds_only():
    calls = []
    times = interleave(
        {"a": lambda: calls.append(1), "b": lambda: calls.append(1)},
        seconds=10,
        rounds=(9, 9),
        stop=lambda: len(calls) >= 11,
    )
    assert len(times["a"]) == len(times["b"]) == 2


def test_stop_before_the_start_measures_nothing():
    assert interleave({"a": int}, seconds=1, stop=lambda: True) == {"a": []}


@pytest.mark.parametrize(("threads", "clock"), [(1, "thread"), (2, "wall")])
def test_clock_is_cpu_time_for_one_thread_only(threads, clock):
    torch.set_num_threads(threads)
    assert clock_name() == clock


def test_measurement_sums_up_and_compares_with_dense():
    row = Measurement.of([3.0, 1.0, 2.0], op="linear", m=4, k=4, n=2, dense_minimum=8.0)
    assert (row.minimum, row.median, row.speedup, row.repeats) == (1.0, 2.0, 8.0, 3)


def test_dense_is_as_fast_as_itself():
    assert Measurement.of([3.0, 2.0], op="linear", m=4, k=4, n=2).speedup == 1.0


def test_rows_have_the_columns_of_the_file(tmp_path):
    row = Measurement.of([1.0], op="linear", m=4, k=4, n=2)
    write_csv(tmp_path / "rows.csv", COLUMNS, [row.row()])
    with (tmp_path / "rows.csv").open() as file:
        (read,) = csv.DictReader(file)
    assert read["op"] == "linear"
    assert {"median", "p20", "p80", "machine", "commit", "command"} <= read.keys()


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path):
    path = tmp_path / "rows.csv"
    write_csv(path, ["a"], [{"a": 1}])
    with pytest.raises(KeyError):
        write_csv(path, ["a"], [{"a": 2}, {"b": 3}])
    assert path.read_text() == "a\n1\n"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2.5e9, "2.5 GB")]
)
def test_bytes_are_readable(count, text):
    assert human_bytes(int(count)) == text
