"""`sparsetile plan`: what it prints, draws and runs, and what it refuses."""

import sys
from pathlib import Path

import pytest

from sparsetile import __main__
from sparsetile.bench import _errors, _plan_run
from sparsetile.bench._plan_ask import Planned
from sparsetile.machine import load_machine
from sparsetile.matrix import random_pattern, save
from sparsetile.plan import Cost, Term, predict

SMALL = ("--random", "64", "48", "4", "1/4", "-n", "8")


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", "plan", *map(str, args)])
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_static_plan_is_printed_whole(cli):
    code, out, err = cli("--random", 1024, 1024, 16, "1/16", "-n", 64)
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first == (
        "static plan on bow-ipu: 1024×1024, blocks of 16×16, density 0.0625, times 1024×64, float16"
    )
    for words in ("partition", "intervals of", "bands of", "used tiles", "memory of a tile"):
        assert words in out
    assert "of 383,386 bytes" in out
    assert "TFLOP/s" in out
    assert "dense takes" in out
    assert [line.split()[0] for line in rest if line.startswith(("Multiply", "Total"))] == [
        "Multiply",
        "Total",
    ]


def test_a_dynamic_plan_names_what_popsparse_names(cli):
    code, out, err = cli(*SMALL, "--mode", "dynamic", "--passes", "fwd,grad_a,grad_w")
    assert (code, err) == (0, "")
    for words in (
        "ForwardAMPBlock, TransposeAMPBlock, GradW",
        "partition",
        "used tiles",
        "exchange plan",
        "nz elements per bucket",
        "meta-info elements per bucket",
        "Predicted, gradient of the input",
        "Predicted, gradient of the weight",
    ):
        assert words in out


@pytest.mark.parametrize("density", ["1/4", "0.25"])
def test_density_may_be_a_fraction(cli, density):
    assert "density 0.25" in cli("--random", 64, 64, 16, density)[1]


@pytest.mark.parametrize("suffix", ["mtx", "smtx"])
def test_a_file_is_planned_in_the_blocks_asked_for(cli, suffix):
    save(random_pattern(64, 32, blocksize=4, density=0.25, seed=0), f"a.{suffix}")
    assert "64×32, blocks of 1×1, density 0.25" in cli(f"a.{suffix}", "-n", 4)[1]
    assert "blocks of 4×4, density 0.25" in cli(f"a.{suffix}", "--blocksize", 4)[1]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("block", ["1", "4"])
def test_a_static_plan_is_executed_and_agrees(cli, dtype, block):
    code, out, _ = cli("--random", 64, 48, block, "1/4", "-n", 8, "--dtype", dtype, "--run")
    assert code == 0
    assert "Executed, forward\n" in out
    assert "phase" in out
    assert "predicted  executed" in out
    assert "mean/busiest" in out
    assert "largest error" in out


def test_every_dynamic_pass_is_executed_and_agrees(cli):
    code, out, _ = cli(*SMALL, "--mode", "dynamic", "--passes", "grad_w,fwd,grad_a", "--run")
    assert code == 0
    assert out.count("steps of propagation") == out.count("largest error") == 3


def test_the_same_seed_prints_the_same(cli):
    assert cli(*SMALL, "--run", "--seed", 3)[1] == cli(*SMALL, "--run", "--seed", 3)[1]
    assert cli(*SMALL, "--run", "--seed", 3)[1] != cli(*SMALL, "--run", "--seed", 4)[1]


def test_a_wrong_result_is_an_error(cli, monkeypatch):
    monkeypatch.setitem(_plan_run.ALLOWED, "float16", 1e-12)
    code, _, err = cli(*SMALL, "--run")
    assert code == 1
    assert "another result than the plain product: fwd" in err


def test_two_machines_stand_side_by_side(cli):
    Path("more.toml").write_text(
        'base = "bow-ipu"\nname = "wide"\nexchange_bytes_per_cycle = 8\n', "utf-8"
    )
    code, out, err = cli(*SMALL, "--machine", "more.toml", "--compare", "bow-ipu")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split() == ["wide", "bow-ipu"]
    for words in ("used tiles", "Multiply", "Total", "bytes of a tile", "speed-up over dense"):
        assert words in out


def test_a_machine_without_a_plan_says_why(cli):
    Path("tiny.toml").write_text('base = "bow-ipu"\nname = "tiny"\nmemory_per_tile = 64\n', "utf-8")
    code, out, _ = cli(*SMALL, "--machine", "tiny.toml", "--compare", "bow-ipu")
    assert code == 0
    assert "tiny: plan_static found no plan" in out
    code, out, err = cli(*SMALL, "--machine", "tiny.toml")
    assert (code, out) == (1, "")
    assert "allow more memory" in err


def test_a_dynamic_plan_beyond_the_memory_says_so():
    pattern = random_pattern(64, 64, blocksize=4, density=0.5, seed=0)
    from sparsetile.bench._plan_print import summary
    from sparsetile.plan import plan_dynamic

    machine, plan = load_machine("bow-ipu"), plan_dynamic(64, 64, 8, density=0.5, blocksize=4)
    planned = Planned(plan, machine, Cost((Term("Multiply", 10.0, 99),)), 20.0, 50.0, 1.0)
    facts = dict(summary(planned))
    assert "does not fit" in facts["memory of a tile"]
    assert "if it did fit" in facts["speed-up over dense"]
    assert pattern.nnzb


@pytest.mark.parametrize("mode", ["static", "dynamic"])
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_picture_is_drawn(cli, mode, suffix):
    code, out, _ = cli(*SMALL, "--mode", mode, "-o", f"plan.{suffix}")
    assert code == 0
    assert out.splitlines()[-1] == f"plan.{suffix}"
    assert Path(f"plan.{suffix}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "name a file .mtx, .smtx or .npz"),
        (("a.mtx", *SMALL), "plan was given a.mtx and --random"),
        (("none.mtx",), "no such file"),
        (("a.txt",), ".mtx"),
        (("--random", "64", "64", "4", "2"), "density '2' cannot be"),
        (("--random", "64", "64", "4", "1/0"), "density '1/0' cannot be"),
        (("--random", "64", "x", "4", "1/4"), "'x' is no size"),
        (("--random", "64", "64", "4x", "1/4"), "block '4x'"),
        (("--random", "64", "64", "3", "1/4"), "square blocks of 1, 4, 8, 16"),
        ((*SMALL, "--blocksize", "4"), "is for files"),
        ((*SMALL, "--dtype", "int8"), "give float16 or float32"),
        ((*SMALL, "--mode", "other"), "give static or dynamic"),
        ((*SMALL, "--memory", "2"), "--memory 2: must be above 0"),
        ((*SMALL, "--oversize", "1"), "--oversize 1: a static plan has no buckets"),
        ((*SMALL, "--mode", "dynamic", "--oversize", "-1"), "--oversize -1: must be from 0"),
        ((*SMALL, "--machine", "none"), "known are bow-ipu, mk2-ipu"),
        ((*SMALL, "--passes", "grad_a"), "use --mode dynamic"),
        ((*SMALL, "--mode", "dynamic", "--passes", "up"), "give fwd, grad_a or grad_w"),
        ((*SMALL, "-o", "plan.txt"), "must end in .svg, .png or .pdf"),
        ((*SMALL, "-o", "none/plan.svg"), "make none first"),
        ((*SMALL, "--compare", "mk2-ipu", "--run"), "leave out --run"),
        (("--cells", "a.csv"), "name the CSV to write"),
        (("--cells", "a.csv", "--run"), "leave out the file"),
        (("--cells", "a.csv", "--blocksize", "4"), "leave out --blocksize and --passes"),
        (("--cells", "a.csv", "--passes", "grad_a"), "leave out --blocksize and --passes"),
        (("--cells", "a.csv", "-o", "b.svg"), "end the name in .csv"),
        (("--cells", "a.csv", "-o", "b.csv", "--mode", "up"), "--mode up: there is no 'up'"),
        (("--cells", "a.csv", "-o", "b.csv", "--memory", "60"), "--memory 60: must be above 0"),
    ],
)
def test_mistakes_end_as_one_line(cli, args, says):
    code, out, err = cli(*args)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert says in err


def test_a_picture_needs_matplotlib(cli, monkeypatch):
    monkeypatch.setitem(_errors._MODULES, "plot", ("no_such_module",))
    code, _, err = cli(*SMALL, "-o", "plan.svg")
    assert code == 1
    assert "pip install 'sparsetile[plot]'" in err


def rows_of(path):
    return [line.split(",") for line in Path(path).read_text("utf-8").splitlines()]


def test_cells_keep_rows_and_add_three_columns(cli):
    Path("in.csv").write_text(
        "note,blocksize,density,m,n\nfirst,16,1/16,512,64\nsecond,4,0.25,512,16\n", "utf-8"
    )
    code, out, err = cli("--cells", "in.csv", "-o", "out.csv")
    assert (code, err) == (0, "")
    assert out == "2 cells, 0 too large for the memory\nout.csv\n"
    head, first, second = rows_of("out.csv")
    added = ["cycles", "speedup_over_dense", "bytes_per_tile"]
    assert head == ["note", "blocksize", "density", "m", "n", *added]
    assert first[:5] == ["first", "16", "1/16", "512", "64"]
    assert second[:5] == ["second", "4", "0.25", "512", "16"]
    wanted = predict(512, 512, 64, blocksize=16, density=1 / 16)
    assert first[5] == str(round(wanted.cost.cycles))
    assert float(first[6]) == pytest.approx(wanted.speedup_over_dense, rel=1e-5)
    assert first[7] == str(wanted.cost.peak_bytes)


def test_cells_take_k_mode_dtype_and_machine_by_row(cli):
    Path("in.csv").write_text(
        "blocksize,density,m,n,k,mode,dtype,machine\n"
        "8,1/8,256,64,128,dynamic,float32,mk2-ipu\n8,1/8,256,64,,,,\n",
        "utf-8",
    )
    assert cli("--cells", "in.csv", "-o", "out.csv", "--dtype", "float32")[0] == 0
    _, first, second = rows_of("out.csv")
    shape = {"blocksize": 8, "density": 1 / 8, "dtype": "float32"}
    one = predict(256, 128, 64, mode="dynamic", machine="mk2-ipu", **shape)
    two = predict(256, 256, 64, **shape)
    assert [first[8], second[8]] == [str(round(p.cost.cycles)) for p in (one, two)]


def test_cells_are_judged_by_the_speedups_they_came_with(cli):
    text = "blocksize,density,m,n,speedup_over_dense\n16,1/16,512,64,9\n16,1/4,16384,65536,\n"
    exact = predict(512, 512, 64, blocksize=16, density=1 / 16).speedup_over_dense
    Path("in.csv").write_text(text + f"16,1/16,512,64,{exact:.6f}\n16,1/4,512,64,\n", "utf-8")
    code, out, _ = cli("--cells", "in.csv", "-o", "out.csv")
    assert code == 0
    assert "4 cells, 1 too large for the memory" in out
    assert "in 2 cells: 50.0 % within 25 %" in out
    assert "right in 100.0 %" in out
    assert "not fitting: 1 in both, 0 only as predicted, 1 only in the file" in out
    head, first, refused, *_ = rows_of("out.csv")
    assert head[4:] == [
        "published_speedup_over_dense",
        "cycles",
        "speedup_over_dense",
        "bytes_per_tile",
    ]
    assert first[4] == "9"
    assert refused[4:] == ["", "", "", ""]
    # What was written can be read again, and says the same.
    again = cli("--cells", "out.csv", "-o", "again.csv")[1]
    assert again.replace("again", "out") == out
    assert rows_of("again.csv") == rows_of("out.csv")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no column blocksize, density, m, n"),
        ("blocksize,density,m\n", "has no column n"),
        ("blocksize,density,m,n,n\n", "two columns n"),
        ("blocksize,density,m,n\n16,1/4,64,8\n16,2,64,8\n", "in.csv, line 3: density '2' cannot"),
        ("blocksize,density,m,n\n16,1/4,64\n", "line 2: has 3 entries"),
        ("blocksize,density,m,n\n3,1/4,64,8\n", "line 2, blocksize: 3 has no static kernel"),
        ("blocksize,density,m,n\n4,1/4,-1,8\n", "line 2, m: '-1' is no size"),
        ("blocksize,density,m,n,mode\n4,1/4,8,8,up\n", "line 2, mode: there is no 'up'"),
        ("blocksize,density,m,n,dtype\n4,1/4,8,8,up\n", "line 2, dtype: there is no 'up'"),
        ("blocksize,density,m,n,machine\n4,1/4,8,8,up\n", "line 2, machine: machine 'up'"),
        ("blocksize,density,m,n,speedup_over_dense\n4,1/4,8,8,x\n", "'x' is no speed-up"),
        ('blocksize,density,m,n\n"4,1/4,8,8\n', "line 2: unexpected end of data"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(cli, text, says):
    Path("in.csv").write_text(text, "utf-8")
    code, out, err = cli("--cells", "in.csv", "-o", "out.csv")
    assert (code, out) == (1, "")
    assert says in err
    assert not Path("out.csv").exists()


def test_cells_that_cannot_be_read_or_written_are_refused(cli):
    assert "cannot be read" in cli("--cells", "none.csv", "-o", "out.csv")[2]
    Path("in.csv").write_bytes(b"\xff\xfe\x00")
    assert "is no text" in cli("--cells", "in.csv", "-o", "out.csv")[2]
    assert "make none first" in cli("--cells", "in.csv", "-o", "none/out.csv")[2]
