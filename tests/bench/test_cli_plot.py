import sys

import pytest

from sparsetile import __main__
from sparsetile.bench import _errors
from support_plot import HEADER, bench_rows, write_rows

SMALL = {"dtypes": ("float32",), "batches": (64,), "blocks": ((1, 1),)}


@pytest.fixture
def cli(monkeypatch, capsys):
    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def out(tmp_path):
    return write_rows(tmp_path / "out.csv", bench_rows(**SMALL))


def test_plot_names_every_file_it_wrote(cli, out, tmp_path):
    code, said, err = cli("plot", out, "-o", tmp_path / "new" / "pictures")
    assert (code, err) == (0, "")
    assert sorted(said.split()) == sorted(map(str, (tmp_path / "new" / "pictures").iterdir()))
    assert len(said.split()) == 12


def test_breakeven_prints_the_page(cli, out):
    code, said, err = cli("breakeven", out)
    assert (code, err) == (0, "")
    assert said.startswith("# When does sparse win?\n")
    assert said.endswith("```\n")


def test_breakeven_writes_the_page_and_its_pictures(cli, out, tmp_path):
    page = tmp_path / "page.md"
    assert cli("breakeven", out, "-o", page, "--pictures", tmp_path / "pictures")[0] == 0
    shown = [line for line in page.read_text("utf-8").splitlines() if line.startswith("![")]
    assert [line.partition("](")[2] for line in shown] == [
        "pictures/speedup-linear-float32-4096x4096-1t.svg)"
    ]
    assert (tmp_path / "pictures" / "speedup-linear-float32-4096x4096-1t.svg").is_file()


@pytest.mark.parametrize("command", ["plot", "breakeven"])
def test_a_bad_csv_ends_as_one_line(cli, tmp_path, command):
    bad = write_rows(tmp_path / "bad.csv", bench_rows(**SMALL), HEADER[1:])
    code, said, err = cli(command, bad)
    assert (code, said) == (1, "")
    assert err.count("\n") == 1
    assert err.startswith(f"sparsetile: {bad}: has no column op;")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("breakeven", "--pictures", "p"), "name the page's file with --output"),
        (("breakeven", "-o", "none/page.md"), "--output none/page.md: must be a file in a folder"),
        (("plot", "-o", "out.csv"), "--output out.csv: cannot be made"),
    ],
)
def test_outputs_that_cannot_be_are_refused(cli, out, monkeypatch, args, says):
    monkeypatch.chdir(out.parent)
    command, *rest = args
    code, _, err = cli(command, out.name, *rest)
    assert code == 1
    assert says in err


def test_plot_without_a_file_cannot_be_read(cli):
    assert cli("plot")[0] == 2


def test_plot_without_matplotlib_names_the_pip_command(cli, out, monkeypatch):
    monkeypatch.setattr(_errors, "find_spec", lambda name: None if name == "matplotlib" else name)
    code, _, err = cli("plot", out)
    assert code == 1
    assert "pip install 'sparsetile[plot]'" in err
    assert cli("breakeven", out)[0] == 0
