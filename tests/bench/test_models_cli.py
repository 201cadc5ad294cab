"""`sparsetile inspect` and `convert`: what they print, write, and refuse in one line."""

import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.utils import prune
from typer.testing import CliRunner

from sparsetile import __main__
from sparsetile.bench import _cli
from sparsetile.matrix import BSR, load, random_pattern, save
from sparsetile.models import from_pretrained, read_checkpoint
from sparsetile.nn import Linear
from support_models import sparse_weight
from support_transformers import bert, gpt2

COMMANDS = ("inspect", "convert", "advise", "prune")


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args):
        monkeypatch.setattr(sys, "argv", ["sparsetile", *map(str, args)])
        capsys.readouterr()
        code = __main__.main()
        out, err = capsys.readouterr()
        return code, out, err

    return call


def weight(m=32, k=32, density=0.2, block=4):
    return sparse_weight(m, k, block=block, density=density)[0]


def matrix():
    pattern = random_pattern(32, 32, blocksize=4, density=0.2, seed=0)
    generator = torch.Generator().manual_seed(0)
    return BSR(torch.rand(pattern.nnzb, 4, 4, generator=generator) + 1, pattern)


def zeroed(make=bert, folder="model"):
    """A model of transformers most of whose feed-forward weights are zero, saved dense."""
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("intermediate.dense.weight", "mlp.c_fc.weight")):
                parameter.copy_(weight(*parameter.shape))
    model.save_pretrained(folder)
    Path(folder, "vocab.txt").write_text("[PAD]\n[UNK]\n")
    return model


def tokens():
    return torch.randint(1, 64, (2, 8), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples_and_every_flag(command):
    done = CliRunner().invoke(_cli.app, [command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "Usage" in done.output and f"sparsetile {command}" in done.output
    assert "--json" in done.output and "Examples" in done.output


@pytest.mark.parametrize("command", ["inspect", "convert", "prune"])
def test_usage_without_arguments_ends_with_two(cli, command):
    code, out, err = cli(command)
    assert (code, out) == (2, "") and "Usage" in err


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_flags_end_with_two(cli, command):
    code, out, err = cli(command, "--nonsense")
    assert (code, out) == (2, "") and "--nonsense" in err


def test_a_checkpoint_is_inspected_and_drawn(cli, tmp_path):
    save_file({"up.weight": weight(), "up.bias": torch.ones(32)}, "m.safetensors")
    code, out, err = cli("inspect", "m.safetensors", "--spy", "pictures")
    assert (code, err) == (0, "")
    for words in ("m.safetensors: dense", "live 1", "up.weight", "by estimate", "up.weight.svg"):
        assert words in out
    assert (tmp_path / "pictures" / "up.weight.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("kind", ["checkpoint", "folder", "matrix"])
def test_inspect_prints_one_json_document(cli, kind):
    if kind == "folder":
        zeroed()
    elif kind == "matrix":
        save(matrix(), "a.mtx")
    else:
        torch.save({"up.weight": weight()}, "m.pt")
    name = {"checkpoint": "m.pt", "folder": "model", "matrix": "a.mtx"}[kind]
    code, out, err = cli("inspect", name, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "") and found["source"] == name
    assert any(layer["blocksize"] == 4 for layer in found["layers"])


@pytest.mark.parametrize("suffix", [".mtx", ".mtx.gz", ".npz", ".pt", ".safetensors", ".smtx"])
def test_a_matrix_is_converted_by_suffix(cli, suffix):
    save(matrix(), "a.npz")
    code, out, err = cli("convert", "a.npz", f"b{suffix}", "--json")
    assert (code, err) == (0, "")
    (fact,) = json.loads(out)["layers"]
    assert fact["blocksize"] == [4, 4] and fact["density"] == matrix().density
    back = load(f"b{suffix}", 4).to_dense()
    wanted = matrix().to_dense()
    assert torch.equal(back != 0, wanted != 0)
    if suffix != ".smtx":
        torch.testing.assert_close(back.float(), wanted)


def test_single_values_are_gathered_into_blocks_that_are_chosen_or_named(cli):
    save(matrix(), "a.mtx")
    assert cli("convert", "a.mtx", "b.safetensors")[0] == 0
    assert load("b.safetensors").blocksize == (4, 4)
    assert cli("convert", "a.mtx", "c.safetensors", "--blocksize", "8x2")[0] == 0
    assert load("c.safetensors").blocksize == (8, 2)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_matrix_is_made_dense(cli, suffix):
    save(matrix(), "a.safetensors")
    assert cli("convert", "a.safetensors", f"b{suffix}", "--dense")[0] == 0
    found = torch.load("b.pt") if suffix == ".pt" else load_file("b.safetensors")["weight"]
    assert torch.equal(found, matrix().to_dense())


def pruned():
    layer = prune.l1_unstructured(nn.Linear(32, 32), "weight", amount=0.9)
    state = {"masked." + name: value for name, value in layer.state_dict().items()}
    return state | {"up.weight": weight(), "full.weight": torch.ones(4, 4), "odd": weight()}


def test_a_checkpoint_becomes_ours_and_dense_again(cli):
    torch.save(pruned(), "m.pt")
    code, out, err = cli("convert", "m.pt", "m.safetensors", "--json")
    assert (code, err) == (0, "")
    done = json.loads(out)
    blocks = {layer["name"]: layer["blocksize"] for layer in done["layers"]}
    assert blocks["up.weight"] == [4, 4] and blocks["masked.weight"] == [1, 1]
    assert blocks["full.weight"] is None and blocks["odd"] is None
    assert done["bytes_out"] == Path("m.safetensors").stat().st_size
    before, after = read_checkpoint("m.pt"), read_checkpoint("m.safetensors")
    assert set(before) == set(after) and "sparsetile" in after.formats
    assert cli("convert", "m.safetensors", "dense.safetensors", "--dense")[0] == 0
    dense = load_file("dense.safetensors")
    for name in before:
        value = before[name]
        value = value.to_dense() if isinstance(value, BSR) else value
        assert torch.equal(dense[name], value)


def test_blocks_that_are_named_are_taken_where_they_save_bytes(cli):
    save_file({"up.weight": weight(30, 33), "full.weight": torch.ones(4, 4)}, "m.safetensors")
    code, out, _ = cli("convert", "m.safetensors", "n.safetensors", "--blocksize", "4x2")
    assert code == 0 and "4×2" in out and "30×33" in out and "→" in out
    found = read_checkpoint("n.safetensors")
    assert found["up.weight"].blocksize == (4, 2) and found["up.weight"].shape == (30, 33)
    assert isinstance(found["full.weight"], torch.Tensor)


@pytest.mark.parametrize("make", [bert, gpt2])
def test_a_model_goes_to_a_sparse_folder_and_back(cli, make):
    model = zeroed(make)
    code, out, err = cli("convert", "model", "sparse", "--json")
    assert code == 0, err
    blocks = [layer["blocksize"] for layer in json.loads(out)["layers"]]
    assert [4, 4] in blocks
    sparse = from_pretrained("sparse")
    assert any(isinstance(module, Linear) for module in sparse.modules())
    torch.testing.assert_close(sparse(tokens()).logits, model(tokens()).logits)
    assert cli("convert", "sparse", "plain", "--dense")[0] == 0
    again = type(model).from_pretrained("plain")
    torch.testing.assert_close(again(tokens()).logits, model(tokens()).logits)
    assert Path("sparse/vocab.txt").exists() and Path("plain/vocab.txt").exists()


def test_masked_checkpoints_of_a_folder_keep_their_blocks(cli):
    torch.manual_seed(0)
    model = bert()
    model.config.architectures = ["BertForMaskedLM"]
    layer = model.bert.encoder.layer[0].output.dense
    keep = torch.zeros_like(layer.weight)
    keep[:8] = 1
    prune.custom_from_mask(layer, "weight", keep)
    Path("model").mkdir()
    model.config.save_pretrained("model")
    torch.save(model.state_dict(), "model/pytorch_model.bin")
    code, _, err = cli("convert", "model", "sparse", "--reorder")
    assert code == 0, err
    made = from_pretrained("sparse").bert.encoder.layer[0].output.dense
    assert isinstance(made, Linear) and made.density == 0.25


def damaged():
    Path("bad.safetensors").write_bytes(b"\xff" * 64)
    Path("bad.pt").write_bytes(b"PK\x03\x04 nothing")
    Path("bad.mtx").write_text("%%MatrixMarket matrix coordinate real general\n9 9 9\n1 x 1\n")
    Path("empty").mkdir()
    Path("folder").mkdir()
    Path("folder/config.json").write_text('{"model_type": "bert", "architectures": ["No"]}')
    save_file({"up.weight": weight()}, "m.safetensors")
    Path("odd").mkdir()
    Path("odd/config.json").write_text('{"model_type": "bert", "architectures": ["No"]}')
    save_file({"up.weight": weight()}, "odd/model.safetensors")
    save(matrix(), "a.mtx")
    Path("file").write_text("mine")


BAD = [
    ("inspect nowhere.pt", "no such file"),
    ("inspect nowhere", "no such file"),
    ("inspect empty", "empty"),
    ("inspect bad.safetensors", "bad.safetensors"),
    ("inspect bad.pt", "bad.pt"),
    ("inspect bad.mtx", "line 3"),
    ("inspect file", "file"),
    ("inspect m.safetensors --spy file", "spy"),
    ("convert nowhere.pt out.safetensors", "no such file"),
    ("convert nowhere.mtx out.safetensors", "no such file"),
    ("convert bad.safetensors out.safetensors", "bad.safetensors"),
    ("convert bad.mtx out.safetensors", "line 3"),
    ("convert m.safetensors out.npz", "a checkpoint is written as .safetensors"),
    ("convert m.safetensors out", "config.json"),
    ("convert folder out", "no file of weights"),
    ("convert odd out", "must name a class of transformers"),
    ("convert m.safetensors nowhere/out.safetensors", "make nowhere first"),
    ("convert m.safetensors empty.safetensors/", "is a folder"),
    ("convert a.mtx out.txt", ".txt"),
    ("convert a.mtx out.npz --dense", "--dense writes .pt or .safetensors"),
    ("convert a.mtx out.npz --reorder", "--reorder"),
    ("convert m.safetensors out.safetensors --reorder", "--reorder"),
    ("convert a.mtx out.npz --blocksize 0", "--blocksize 0: cannot be"),
    ("convert a.mtx out.npz --blocksize four", "--blocksize four: cannot be"),
    ("convert a.mtx out.pt --blocksize 4 --dense", "--dense has no blocks"),
    ("convert m.safetensors out.pt", ".safetensors"),
]


@pytest.mark.parametrize(("line", "words"), BAD)
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_bad_input_is_refused_in_one_line(cli, tmp_path, line, words, flags):
    damaged()
    Path("empty.safetensors").mkdir()
    before = sorted(tmp_path.rglob("*"))
    code, out, err = cli(*line.split(), *flags)
    assert (code, out) == (1, "")
    assert err.startswith("sparsetile: ") and err.count("\n") == 1 and words in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "line",
    [
        "inspect m.safetensors --spy pictures",
        "convert m.safetensors out.safetensors",
        "convert a.mtx out.safetensors",
    ],
)
def test_what_cannot_be_written_is_said(cli, monkeypatch, line):
    damaged()

    def full(self, *args, **kwargs):
        if "w" in (mode := args[0] if args else "r") or "x" in mode:
            raise OSError(28, "No space left on device", str(self))
        return real(self, *args, **kwargs)

    real = Path.open
    monkeypatch.setattr(Path, "open", full)
    code, out, err = cli(*line.split())
    assert (code, out) == (1, "")
    assert "No space left on device" in err and err.count("\n") == 1
