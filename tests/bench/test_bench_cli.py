import csv
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from sparsetile import __main__
from sparsetile.bench import _bench_run, _cli
from sparsetile.bench._bench_row import COLUMNS

TINY = "bench linear -m 48 -n 8 --blocksize 4 --density 1/2 --peers none --seconds 0.05".split()


@pytest.fixture
def cli(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        code = __main__.main()
        return code, *capsys.readouterr()

    return call


def test_a_benchmark_is_measured_written_and_gone_on_with(cli, tmp_path):
    path = tmp_path / "out.csv"
    code, out, err = cli(*TINY, "-o", path)
    assert (code, out.splitlines()[-1]) == (0, str(path))
    assert out.startswith("roofline, float32, 1 thread: fma ")
    assert "1 of 1" in err
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert [row["peer"] for row in rows] == ["sparsetile", "torch-dense"]
    assert rows[0]["backend"] == "cpu"
    assert rows[0]["command"].startswith("sparsetile bench linear")
    assert all(float(row["gflops"]) > 0 for row in rows)
    before = path.read_text()
    code, out, err = cli(*TINY, "-o", path)
    assert code == 0
    assert "1 of 1 cells were in" in out
    assert path.read_text() == before


def test_the_command_has_help():
    done = CliRunner().invoke(_cli.app, ["bench", "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["bench", "gemm"], "op gemm"),
        (["bench", "linear", "--peers", "cuda"], "--peers cuda"),
        (["bench", "linear", "-o", "no/such/folder/a.csv"], "--output no/such/folder/a.csv"),
        (["bench", "linear", "-o", "."], "--output .: is a folder"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(cli, monkeypatch, args, said):
    monkeypatch.setattr(_bench_run, "run", None)
    code, _, err = cli(*args)
    assert code == 1
    assert err.startswith(f"sparsetile: {said}")
    assert err.count("\n") == 1


def test_a_fault_of_our_own_is_an_error_in_the_end(cli, monkeypatch, tmp_path):
    def failing(cases, settings, file, sweep, show):
        sweep.rows += [{"peer": "sparsetile", "verdict": "wrong result"}]

    monkeypatch.setattr(_bench_run, "run", failing)
    monkeypatch.setattr("sparsetile.bench._bench_show.result_table", lambda rows: "")
    code, _, err = cli(*TINY)
    assert code == 1
    assert "1 of 1 cells went wrong here, not with a peer; the first: wrong result" in err


def test_ctrl_c_leaves_a_whole_file_and_says_how_to_go_on(tmp_path):
    path = tmp_path / "out.csv"
    sizes = ",".join(str(n) for n in range(8, 400))
    args = [*TINY[:4], "-n", sizes, *TINY[6:], "-o", str(path)]
    run = subprocess.Popen(
        [sys.executable, "-m", "sparsetile", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not path.exists():  # pytest's own limit ends this, should it never come
        assert run.poll() is None, run.stderr.read()
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate()
    assert run.returncode == 130
    assert "the same command goes on" in err.splitlines()[-1]
    assert "Traceback" not in err
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) % 2 == 0
    assert 0 < len(rows) < 2 * 392
    assert list(tmp_path.iterdir()) == [path]
