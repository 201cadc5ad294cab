import os
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from sparsetile import __main__
from sparsetile.bench import _busy, _cli, _errors, _info
from sparsetile.bench._stop import Stop
from sparsetile.matrix import random_pattern

TINY = (
    "--layers 1 --width 32 --heads 2 --sequence 16 --vocabulary 300 --batch 4 "
    "--table-seconds 0 --steps-per-update 3"
).split()


def call(*args, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
    code = __main__.main()
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def cli(monkeypatch, capsys):
    return lambda *args: call(*args, monkeypatch=monkeypatch, capsys=capsys)


@pytest.fixture
def story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("one for the master, two for the dame, and three for the boy\n" * 1500)
    return path


@pytest.mark.parametrize("command", ["info", "demo", "table", "picture"])
def test_every_command_has_help(command):
    done = CliRunner().invoke(_cli.app, [command, "--help"])
    assert done.exit_code == 0
    assert "Usage" in done.output


def test_version_is_printed(cli):
    code, out, _ = cli("--version")
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", out)


def test_info_says_what_runs_here_without_colour(cli):
    code, out, _ = cli("info")
    assert code == 0
    for word in ("torch", "processor", "threads", "reference: ready", "kernel cache"):
        assert word in out
    assert "\x1b" not in out


def test_info_shows_why_a_back_end_cannot_run(monkeypatch):
    monkeypatch.setattr(_info, "backends", lambda: {"cpu": "no llvmlite", "reference": None})
    assert _info.facts()["back ends"] == "cpu: no llvmlite; reference: ready"


def test_own_check_of_the_library_ends_as_one_line(cli, monkeypatch):
    monkeypatch.setattr(
        _info, "facts", lambda: random_pattern(8, 8, blocksize=4, density=2.0, seed=0)
    )
    code, _, err = cli("info")
    assert code == 1
    assert err.count("\n") == 1
    assert err.startswith("sparsetile: density")


def test_error_from_elsewhere_keeps_its_traceback(cli, monkeypatch):
    monkeypatch.setattr(_info, "facts", lambda: int("no number"))
    with pytest.raises(ValueError, match="no number"):
        cli("info")


def test_table_says_when_the_machine_was_busy(cli, monkeypatch):
    monkeypatch.setattr(_busy.Neighbours, "warning", lambda self: "busy")
    small = "table -m 8 -k 8 -n 1 --blocksize 4 --density 0.5 --seconds 0.1"
    _, out, err = cli(*small.split())
    assert err == "sparsetile: busy\n"
    assert "busy" not in out


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_command_line_without_its_extra_names_the_pip_command(missing, monkeypatch, cli):
    monkeypatch.setattr(__main__, "find_spec", lambda name: None if name == missing else name)
    code, out, err = cli("info")
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert missing in err and "pip install 'sparsetile[cli]'" in err


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        ("demo", "transformers", "hf"),
        ("demo", "matplotlib", "plot"),
        ("picture", "matplotlib", "plot"),
    ],
)
def test_command_without_its_extra_names_the_pip_command(command, missing, extra, monkeypatch, cli):
    monkeypatch.setattr(_errors, "find_spec", lambda name: None if name == missing else name)
    code, _, err = cli(command)
    assert code == 1
    assert f"needs {missing}" in err and f"pip install 'sparsetile[{extra}]'" in err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("table --density 0", "--density 0: must be from"),
        ("table --density 1.5", "--density 1.5: must be from"),
        ("table --density nan", "--density nan: must be from"),
        ("table --density a,b", "must be numbers with commas"),
        ("table --blocksize 2.5", "must be a whole number"),
        ("table --blocksize 0", "--blocksize 0: must be from 1"),
        ("table -m 8", "give both or none"),
        ("table -o no/such/folder/a.csv", "make no/such/folder first"),
        ("picture -o a.txt", "must end in .svg, .png or .pdf"),
        ("demo --density 0", "--density 0: must be above 0"),
        ("demo --width 30 --heads 8", "take --width 32"),
        ("demo --vocabulary 10", "at least 300"),
        ("demo --blocksize 4096", "at most the width"),
        ("demo stray.txt", "name text files after --text"),
        ("demo --table-seconds 0 --text no-such-file.txt", "cannot read the text file"),
    ],
)
def test_bad_value_is_one_line_that_names_the_flag(args, says, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = cli(*args.split())
    assert code == 1
    assert says in err
    assert err.splitlines()[-1].startswith("sparsetile: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "args", ["fly", "demo --speed 3", "demo --minutes soon", "demo --objective x"]
)
def test_wrong_usage_exits_with_2(args, cli):
    code, _, err = cli(*args.split())
    assert code == 2
    assert "Traceback" not in err


def test_folder_that_cannot_be_made_is_refused(cli, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = cli("demo", "-o", tmp_path / "file" / "report")
    assert code == 1
    assert "cannot be made" in err


def test_table_of_own_layer_is_printed_and_written(cli, tmp_path):
    code, out, _ = cli(
        *"table -m 32 -k 64 -n 8 --blocksize 4 --density 0.5 --seconds 0.1 -o".split(),
        tmp_path / "out.csv",
    )
    assert code == 0
    assert "32×64" in out and "4×4" in out
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_picture_is_drawn_beside_its_numbers(cli, tmp_path, ending):
    path = tmp_path / f"picture.{ending}"
    code, out, _ = cli(
        *"picture --size 64 -n 8 --blocksize 4,16 --density 0.5,0.25 --seconds 0.1 -o".split(), path
    )
    assert code == 0
    assert out.split() == [str(path), str(path.with_suffix(".csv"))]
    assert path.stat().st_size > 1000
    assert len(path.with_suffix(".csv").read_text().splitlines()) == 6


@pytest.mark.parametrize("objective", ["clm", "mlm"])
def test_demo_trains_reports_and_reads_its_model_back(cli, story, tmp_path, objective):
    folder = tmp_path / "report"
    code, out, err = cli(
        "demo", *TINY, "--objective", objective, "--text", story, "-o", folder,
        "--seconds-per-run", "1.5",
    )  # fmt: skip
    assert code == 0, err
    page = (folder / "report.html").read_text()
    assert "In equal time" in page or "that is a draw" in page
    assert "bit for bit" in page and "does NOT" not in page
    assert {p.name for p in folder.iterdir()} == {
        "report.html", "timings.csv", "loss.csv", "memory.csv", "patterns.csv",
        "model.safetensors", "config.json", "sparse.json", "tokenizer.json",
    }  # fmt: skip
    assert out.count("⟶") == 6  # explained, then five lines
    assert "The saved model (DynSparse after " in out
    assert "Training 3 models" in err and "Training" not in out


def test_ctrl_c_stops_cleanly_and_the_report_is_written(story, tmp_path):
    folder = tmp_path / "report"
    process = subprocess.Popen(
        [sys.executable, "-m", "sparsetile", "demo", *TINY, "--text", str(story), "-o", str(folder),
         "--seconds-per-run", "200"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Training"):
            break
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Report:" in out
    assert "Stopped with Ctrl-C" in (folder / "report.html").read_text()
    assert "dense,train,1," in (folder / "loss.csv").read_text()


def test_first_ctrl_c_asks_and_the_second_interrupts():
    with Stop() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_means_what_it_did_after_the_work():
    before = signal.getsignal(signal.SIGINT)
    with Stop():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
