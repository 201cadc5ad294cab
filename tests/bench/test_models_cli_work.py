"""`sparsetile advise` and `prune`: what they measure, save, and refuse in one line."""

import json
import sys
from pathlib import Path

import pytest
import torch

from sparsetile import __main__
from sparsetile.models import from_pretrained, save_pretrained
from sparsetile.nn import BlockSparse, _advise_time, sparsify_
from support_transformers import bert, gpt2, transformers

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        capsys.readouterr()
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def clock(monkeypatch):
    """Every dense product takes 4 ms and every sparse one 1 ms."""
    seen = []

    def fastest(cases, *, seconds, clock=None):
        seen.append(torch.get_num_threads())
        return {way: 4e-3 if way is None else 1e-3 for way in cases}

    monkeypatch.setattr(_advise_time, "fastest", fastest)
    return seen


def saved(make=bert, folder="model"):
    torch.manual_seed(0)
    model = make().eval()
    model.save_pretrained(folder)
    tokenizer = transformers.BertTokenizer({word: at for at, word in enumerate(WORDS)})
    tokenizer.save_pretrained(folder)
    return model


def story():
    Path("story.txt").write_text("a b c d e f g\n\nh i j k l m n o p\n" * 40)


def test_a_preset_is_measured_at_batch_and_sequence(cli, clock):
    line = "advise --preset tiny --density 0.5,1/4 --blocksize 4,16x1 --batch 2 --sequence 8"
    code, out, _ = cli(*line.split(), "--threads", 1)
    assert code == 0
    assert set(clock) == {1} and len(clock) == 3  # attention, up and down: equal ones once
    assert "layer.0.attention.self.query" in out and "4.00×" in out and "as advised" in out
    assert "All at density 0.25 in 16×1" in out


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.parametrize("ours", [False, True])
def test_a_folder_is_measured_and_said_as_json(cli, clock, make, ours):
    model = saved(make)
    if ours:
        save_pretrained(sparsify_(model, density=0.5, blocksize=8), "sparse")
    name = "sparse" if ours else "model"
    line = f"advise --preset {name} --batch 3 --sequence 5 --dtype bfloat16 --json"
    code, out, _ = cli(*line.split())
    found = json.loads(out)
    assert code == 0 and found["preset"] == name and found["ratio"] == 4.0
    assert {layer["rows"] for layer in found["layers"]} == {15}
    assert {layer["recommendation"] for layer in found["layers"]} == {"sparse"}
    assert [trial["blocksize"] for trial in found["layers"][0]["trials"]] == [
        [1, 1],
        [4, 4],
        [16, 16],
    ]
    m, k = found["layers"][0]["shape"]
    assert found["layers"][0]["dense_bytes"] == 2 * m * k


@pytest.mark.parametrize("make", [bert, gpt2])
def test_a_model_is_pruned_into_a_folder_that_loads(cli, make):
    saved(make)
    code, out, err = cli("prune", "model", "-o", "out", "--density", "0.25", "--blocksize", "8")
    assert code == 0, err
    assert "layer" in out and "method" in out and out.endswith("out\n")
    assert "--calibration" in err
    layers = [m for m in from_pretrained("out").modules() if isinstance(m, BlockSparse)]
    assert layers and all(layer.blocksize == (8, 8) for layer in layers)
    assert {round(layer.density, 2) for layer in layers} == {0.25}
    assert Path("out/tokenizer.json").exists()


@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
def test_methods_that_look_at_data_read_a_text(cli, method):
    saved()
    story()
    line = f"prune model -o out --method {method} --calibration story.txt --json --sequence 16"
    code, out, err = cli(*line.split(), "--samples", 4)
    assert code == 0, err
    found = json.loads(out)
    assert found["method"] == method and 0 < found["output_error"] < 1
    assert found["bytes_out"] > 0 and len(found["layers"]) == 13
    assert any(isinstance(m, BlockSparse) for m in from_pretrained("out").modules())


def files():
    saved()
    story()
    Path("file").write_text("mine")
    Path("bytes.txt").write_bytes(b"\xff\xfe\x00")
    Path("blank.txt").write_text("\n \n")
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/config.json").write_text("{")


BAD = [
    ("advise --preset nothing", "must be one of tiny, mini"),
    ("advise --preset empty", "has no config.json"),
    ("advise --preset broken", "broken: transformers cannot load it"),
    ("advise --preset tiny --dtype int8", "--dtype int8"),
    ("advise --preset tiny --density 2", "--density 2"),
    ("advise --preset tiny --blocksize 0", "--blocksize 0"),
    ("advise --preset model --sequence 33", "at most 32 tokens"),
    ("prune nowhere -o out", "no such folder"),
    ("prune file -o out", "has no config.json"),
    ("prune empty -o out", "has no config.json"),
    ("prune broken -o out", "config.json: got Expecting"),
    ("prune model -o file", "is a file"),
    ("prune model -o no/out", "make no first"),
    ("prune model -o model", "is the input"),
    ("prune model -o out --method best", "--method best"),
    ("prune model -o out --method wanda", "--calibration"),
    ("prune model -o out --method wanda --calibration no.txt", "no.txt: No such file"),
    ("prune model -o out --method wanda --calibration bytes.txt", "not UTF-8"),
    ("prune model -o out --method wanda --calibration blank.txt", "is empty"),
    ("prune model -o out --density 0.5,0.25", "one value each"),
    ("prune model -o out --density 0", "--density 0"),
    ("prune model -o out --blocksize x", "--blocksize x"),
]


@pytest.mark.parametrize(("line", "words"), BAD)
def test_bad_input_is_refused_in_one_line(cli, clock, tmp_path, line, words):
    files()
    before = sorted(tmp_path.rglob("*"))
    code, out, err = cli(*line.split(), "--json")
    assert (code, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("sparsetile: ") and words in last and "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("line", ["advise --batch 0", "advise --threads none", "prune model"])
def test_wrong_usage_ends_with_two(cli, line):
    code, out, err = cli(*line.split())
    assert (code, out) == (2, "") and "Usage" in err
