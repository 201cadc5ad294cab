import math

import pytest

from sparsetile.bench._bench_row import COLUMNS, bound, row_of, verdict, work
from support_bench import FACTS, ROOF, case, timed


def test_a_row_has_every_column():
    row = row_of(case(), timed(), FACTS, ROOF)
    assert set(COLUMNS) <= set(row)
    assert [row[name] for name in ("op", "peer", "m", "k", "n", "r", "c")] == [
        "linear", "sparsetile", 64, 48, 8, 4, 4
    ]  # fmt: skip


def test_times_are_microseconds_and_speed_is_by_the_best():
    one = timed()
    one.wall = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3]
    one.cpu = one.dense_wall = one.dense_cpu = [1e-3] * 6
    row = row_of(case(threads=2), one, FACTS, ROOF)
    assert [row[n] for n in ("p20_us", "median_us", "p80_us", "min_us", "cpu_us")] == (
        pytest.approx([2000, 3500, 5000, 1000, 1000])
    )
    assert row["gflops"] == pytest.approx(2 * 96 * 16 * 8 / 1e-3 / 1e9)
    assert row["peak_fraction"] == pytest.approx(row["gflops"] / 100)


def test_one_thread_is_judged_by_its_cpu_time_several_by_the_wall():
    one = timed(seconds=4e-3, dense=2e-3)
    one.cpu = [1e-3] * 10
    alone = row_of(case(threads=1), one, FACTS, ROOF)
    assert (alone["dense_ratio"], alone["verdict"]) == (2.0, "faster")
    both = row_of(case(threads=2), one, FACTS, ROOF)
    assert (both["dense_ratio"], both["verdict"]) == (0.5, "slower")


def test_the_ratio_is_of_each_round_so_a_slow_minute_does_not_tip_it():
    one = timed()
    one.cpu = [1.0, 1.0, 9.0, 9.0, 9.0]
    one.dense_cpu = [2.0, 2.0, 18.0, 18.0, 18.0]
    assert row_of(case(), one, FACTS, ROOF)["dense_ratio"] == 2.0


def test_dense_work_is_that_of_the_full_matrix():
    full = 2 * 64 * 48 * 8
    assert work(case(), timed("torch-dense"))[0] == full
    assert work(case(op="train-step"), timed("torch-dense"))[0] == 3 * full
    assert work(case(), timed())[0] == 2 * 96 * 16 * 8


def test_a_peer_without_times_has_its_reason_and_empty_cells():
    one = timed(verdict="no bfloat16", rounds=0)
    row = row_of(case(), one, FACTS, ROOF)
    assert row["verdict"] == "no bfloat16"
    assert {row[n] for n in ("median_us", "gflops", "dense_ratio", "bound")} == {""}


def test_without_a_roofline_only_what_needs_one_is_empty():
    row = row_of(case(), timed(), FACTS, None)
    assert (row["peak_fraction"], row["bound"]) == ("", "")
    assert row["gflops"] > 0


@pytest.mark.parametrize(
    ("moved", "reused", "name", "speed"),
    [
        (1e6, 1e6, "fma", 100.0),
        (1e6, 1e12, "l1", 0.4),
        (1e6, 1.0, "fma", 100.0),
        (2e7, 1.0, "l3", 50.0 * 1e6 / 2e7),
        (1e9, 1.0, "memory", 20.0 * 1e6 / 1e9),
    ],
)
def test_the_slowest_part_is_the_bound(moved, reused, name, speed):
    flops = 1e9 if name in ("fma", "l1") else 1e6
    found = bound(flops, moved, reused, ROOF)
    assert found[0] == name
    assert found[1] == pytest.approx(speed)


def test_two_threads_have_two_second_caches():
    assert bound(1.0, 1.5e6, 0.0, ROOF)[0] == "l3"
    assert bound(1.0, 1.5e6, 0.0, ROOF | {"threads": 2})[0] == "l2"


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ([1.3] * 9, "faster"),
        ([0.8] * 9, "slower"),
        ([1.01] * 9, "within the noise"),
        ([1.3, 0.9, 1.2, 0.8, 1.4, 0.95], "within the noise"),
        ([1.1, 1.15], "within the noise"),
        ([1.5, 1.6], "faster"),
        ([0.1], "slower"),
        ([0.5, 1.5, 0.5], "within the noise"),
    ],
)
def test_no_winner_is_called_inside_the_noise(ratios, said):
    assert verdict(ratios) == said


def test_no_winner_is_called_while_others_use_the_cpus():
    assert row_of(case(threads=2), timed(), FACTS, ROOF)["verdict"] == "faster"
    row = row_of(case(threads=2), timed(disturbed=True), FACTS, ROOF)
    assert (row["dense_ratio"], row["verdict"]) == (2.0, "within the noise")


def test_numbers_are_finite():
    row = row_of(case(), timed(), FACTS, ROOF)
    assert all(math.isfinite(v) for v in row.values() if isinstance(v, float))
