"""The command `sparsetile train`, as it is typed."""

import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sparsetile import __main__
from sparsetile.bench import _cli
from sparsetile.bench.pretrain import OPTIONS, _pretrain, _session, flag
from sparsetile.bench.pretrain._logs import read_rows
from support_pretrain import write_story

FLAGS = (
    "--preset tiny --layers 1 --width 32 --heads 2 --sequence 16 --vocabulary 300 --batch 4 "
    "--density 0.25 --steps 5 --every 2 --no-plots"
).split()


@pytest.fixture
def train(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_story(tmp_path)

    def call(*more, flags=(*FLAGS, "--text", "story.txt")):
        monkeypatch.setattr(sys, "argv", ["sparsetile", "train", *flags, *map(str, more)])
        code = __main__.main()
        return code, *capsys.readouterr()

    return call


def test_help_names_every_option_with_its_default_and_ends_with_examples():
    done = CliRunner().invoke(_cli.app, ["train", "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    for name, option in OPTIONS.items():
        assert flag(name) in done.output
        assert option.metadata["help"].split()[0] in done.output
    for words in ("default: mini", "default: 0.0025", "--resume", "dynsparse", "─ Sparsity ─"):
        assert words in done.output
    assert "sparsetile train --resume -o run" in done.output[done.output.index("Examples") :]


def test_run_prints_its_result_on_stdout_and_the_way_there_on_stderr(train, tmp_path):
    code, out, err = train("-o", "run", "--log-every", 1)
    assert code == 0, err
    for words in ("held-out loss", "by token counts alone", "perplexity", "ms a step", "twin",
                  "coverage", "Everything is in run"):  # fmt: skip
        assert words in out
    assert "step 5/5  loss" in err and "coverage" in err and "step" not in out.split("\n")[0]
    assert (tmp_path / "run" / "config.toml").is_file()


def test_folder_of_a_run_is_not_written_to_unasked(train, tmp_path):
    assert train("-o", "run")[0] == 0
    (tmp_path / "run" / "mine.txt").write_text("mine")
    before = (tmp_path / "run" / "train.csv").read_text()
    code, _, err = train("-o", "run", "--seed", 1)
    assert code == 1
    assert re.search(r"run: holds a run already .*step 5.*--resume.*--overwrite", err)
    assert (tmp_path / "run" / "train.csv").read_text() == before
    assert train("-o", "run", "--seed", 1, "--overwrite")[0] == 0
    assert (tmp_path / "run" / "train.csv").read_text() != before
    assert (tmp_path / "run" / "mine.txt").read_text() == "mine"


def test_config_of_a_run_makes_it_again(train, tmp_path):
    assert train("-o", "run")[0] == 0
    assert train("-o", "again", flags=("--config", "run/config.toml"))[0] == 0
    losses = [[row["loss"] for row in read_rows(tmp_path / name / "train.csv")]
              for name in ("run", "again")]  # fmt: skip
    assert losses[0] == losses[1] and losses[0]


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(train, tmp_path):
    write_story(tmp_path)
    command = [sys.executable, "-m", "sparsetile", "train", *FLAGS, "--text", "story.txt", "-o"]
    process = subprocess.Popen(
        [*command, "run", "--steps", "100000", "--log-every", "1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "step 3/" in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err and out == ""
    stopped = int(re.search(r"stopped after step ([\d,]+) of 100,000", err)[1])
    assert "go on with: sparsetile train --resume -o run" in err
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert checkpoint.name == f"step-{stopped:08d}"
    code, _, err = train("--resume", "-o", "run", "--steps", 9, flags=())
    assert code == 1
    assert "--steps 9: the run in run began with 100000, and a resumed run keeps its" in err


def test_stopped_run_is_resumed_by_its_folder_alone(train, monkeypatch):
    class Asked:
        requested = True

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    with monkeypatch.context() as patch:
        patch.setattr("sparsetile.bench._stop.Stop", Asked)
        assert train("-o", "run")[0] == 130
    code, out, err = train("--resume", "-o", "run", flags=())
    assert code == 0, err
    assert "held-out loss" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--resume", "-o", "none"], "--output none: holds no checkpoint to resume; name"),
        (["--resume", "--config", "x.toml"], "--config x.toml: a resumed run keeps the settings"),
        (["--config", "x.toml"], "--config x.toml: cannot be read"),
        (["--density", "1.5"], "--density 1.5: must be above 0"),
        (["--method", "mest", "--prune-ratio", "0.5"], "--prune-ratio 0.5: --method mest has no"),
        (["--batch", "100000"], "one batch of 100000 rows"),
        (["-o", "story.txt/run"], "--output story.txt/run: cannot be made"),
    ],
)
def test_what_cannot_be_ends_with_one_line(train, more, message):
    code, out, err = train(*more)
    assert code == (2 if "density" in more[0] else 1), err
    if code == 1:
        assert message in err and "Traceback" not in err and out == ""


def test_loss_that_is_no_number_ends_with_a_message(train, monkeypatch):
    plain = _session.loss_of
    monkeypatch.setattr(_session, "loss_of", lambda *args: plain(*args) / 0.0)
    code, _, err = train("-o", "run")
    assert code == 1
    assert "sparsetile: the loss is inf in step 1 of 5; training stops" in err


def test_run_without_matplotlib_says_so_and_goes_on(train, monkeypatch):
    monkeypatch.setattr(_pretrain, "find_spec", lambda name: None)
    code, out, err = train("-o", "run", "--plots")
    assert code == 0
    assert "no pictures, matplotlib is missing; run: pip install 'sparsetile[plot]'" in err
    assert "held-out loss" in out


def test_dry_run_reads_and_writes_nothing(train, tmp_path, monkeypatch):
    monkeypatch.setattr(_pretrain, "read_text", None)
    code, out, _ = train("--dry-run", "-o", "run")
    assert code == 0
    for words in ("transformer.h.0.mlp.c_fc", "parameters", "operations", "learning rates"):
        assert words in out
    assert not (tmp_path / "run").exists()


def test_files_after_text_are_all_read(train, tmp_path):
    (tmp_path / "more.txt").write_text("and one more line of text\n" * 40)
    code, _, err = train("more.txt", "-o", "run", "--dry-run")
    assert code == 0, err
    code, _, err = train("story.txt", flags=FLAGS)
    assert code == 1 and "name text files after --text" in err
