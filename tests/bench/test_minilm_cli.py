"""`sparsetile reproduce minilm` from the command line: runs, resumes, is stopped, refuses."""

import sys
from dataclasses import replace

import pytest
import torch

from sparsetile import __main__
from sparsetile.bench import minilm
from sparsetile.bench._files import read_csv
from sparsetile.bench.minilm import _proof, _recover
from sparsetile.bench.minilm._subject import subject

RECOVERY = replace(minilm.TIERS["ci"].recoveries[0], steps=6, updates=2, batch=4)
SMALL = replace(
    minilm.TIERS["ci"],
    blocksizes=(4,),
    methods=("magnitude", "sparsegpt"),
    files=6,
    calibration=8,
    held_out=16,
    training=24,
    recoveries=(RECOVERY,),
    every=3,
    rounds=1,
)


@pytest.fixture
def cli(monkeypatch, capsys):
    monkeypatch.setitem(minilm.TIERS, "ci", SMALL)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_proof_is_done_and_not_done_again(cli, tmp_path):
    folder = tmp_path / "new" / "out"
    command = ("reproduce", "minilm", "--tier", "ci", "-o", folder)
    code, out, err = cli(*command)
    assert code == 0, err
    names = {"cells.csv", "quality-latency.svg", "quality-latency.csv", "index.md", "index.html"}
    assert {str(folder / name) for name in names} <= set(out.split())
    cells = read_csv(folder / "cells.csv")
    assert [(row["method"], row["recovery"] or "") for row in cells] == [
        ("magnitude", ""), ("sparsegpt", ""), ("sparsegpt", "dynsparse"),
    ]  # fmt: skip
    assert cells[0]["cosine"] < cells[1]["cosine"] <= 1
    curve = read_csv(folder / "recovery.csv")
    assert [row["step"] for row in curve] == [0, 3, 6]
    times = read_csv(folder / "timing.csv")
    named = {row["name"] for row in times}
    assert {"dense fp32", "dense bf16", "onnxruntime fp32", "0.5-4-sparsegpt-dynsparse"} <= named
    assert all(row["ms"] or row["why_not"] for row in times)
    page = (folder / "index.md").read_text("utf-8")
    assert "SparseGPT beats magnitude in every cell" in page
    assert "recovered (dynsparse)" in page

    before = (folder / "cells.csv").read_bytes()
    code, _, err = cli(*command, "--only", "runs")
    assert (code, err.count("cosine")) == (0, 0)
    assert (folder / "cells.csv").read_bytes() == before
    (folder / "index.md").unlink()
    code, out, _ = cli(*command, "--only", "page")
    assert (code, (folder / "index.md").read_text("utf-8")) == (0, page)


def test_recovery_goes_on_to_the_same_bits_where_it_was_stopped(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder in (whole, parts):
        folder.mkdir()
    tiny = subject(real=False)
    found = _proof.sentences(calibration=8, held_out=16, training=24, files=6, plays=False)
    data = _proof.Data.of(SMALL, tiny, found)

    def start():
        return minilm._methods.pruned(
            tiny.model, "magnitude", density=0.5, blocksize=4, calibration=()
        )

    right, _ = _recover.recover(whole, data, RECOVERY, start)
    asked = iter([False] * 4 + [True])
    with pytest.raises(KeyboardInterrupt):
        _recover.recover(parts, data, RECOVERY, start, lambda: next(asked))
    (checkpoint,) = (parts / "checkpoints" / "0.5-4-dynsparse").iterdir()
    assert checkpoint.name == "step-00000004"

    def never():
        raise AssertionError("a checkpoint is there")

    again, _ = _recover.recover(parts, data, RECOVERY, never)
    mine, other = right.state_dict(), again.state_dict()
    assert list(mine) == list(other)
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    steps = [row["step"] for row in read_csv(parts / "recovery.csv")]
    assert steps == [0, 3, 4, 6]


def test_recovery_learns(tmp_path):
    tiny = subject(real=False)
    found = _proof.sentences(calibration=8, held_out=16, training=24, files=6, plays=False)
    data = _proof.Data.of(SMALL, tiny, found)
    longer = replace(RECOVERY, method="static", steps=30, rate=3e-3)

    def start():
        return minilm._methods.pruned(
            tiny.model, "magnitude", density=0.5, blocksize=4, calibration=()
        )

    _recover.recover(tmp_path, replace_every(data, 30), longer, start)
    first, last = read_csv(tmp_path / "recovery.csv")
    assert last["cosine"] > first["cosine"] + 0.1


def replace_every(data, every):
    return replace(data, tier=replace(data.tier, every=every))


def test_stopping_keeps_what_is_done(cli, monkeypatch, tmp_path):
    def stopped(*args, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr(minilm, "learn", stopped)
    code, _, err = cli("reproduce", "minilm", "--tier", "ci", "-o", tmp_path)
    assert code == 130
    assert "finished cells are kept" in err
    assert len(read_csv(tmp_path / "cells.csv")) == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--tier", "long"), "minilm has no such tier; it must be one of ci, nightly"),
        (("--jobs", "2"), "--jobs was given for minilm"),
        (("--only", "page"), "holds no results yet"),
    ],
)
def test_what_it_cannot_do_is_refused(cli, tmp_path, more, told):
    code, _, err = cli("reproduce", "minilm", "-o", tmp_path, *more)
    assert code == 1
    assert told in err


def test_a_folder_of_another_tier_is_refused(cli, monkeypatch, tmp_path):
    (tmp_path / "about.json").write_text("{}")
    code, _, err = cli("reproduce", "minilm", "--tier", "ci", "-o", tmp_path)
    assert code == 1
    assert "name another folder" in err


def test_minilm_is_a_model_that_prune_knows(cli, monkeypatch, tmp_path):
    # The tiny model stands for the real one, whose package no test may fetch.
    from transformers import BertModel

    from sparsetile.bench.minilm._files import save_dense

    tiny = subject(real=False).model
    whole = BertModel(tiny.config).eval()
    whole.config.architectures = ["BertModel"]
    save_dense(whole, tmp_path)
    monkeypatch.setattr(minilm, "minilm_folder", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("prune", "minilm", "-o", tmp_path / "out", "--blocksize", "4")
    assert code == 0, err
    assert (tmp_path / "out" / "sparsetile.safetensors").is_file()
