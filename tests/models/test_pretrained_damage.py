"""Folders that are damaged, cut off, newer or of another model are refused by name."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from sparsetile import nn as stnn
from sparsetile.models import _pretrained_shards as shards
from sparsetile.models import from_pretrained, save_pretrained, to_dense_checkpoint
from sparsetile.nn import sparsify_
from support_transformers import gpt2, llama


def dense():
    return nn.Sequential(nn.Linear(24, 40), nn.Linear(40, 24))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    model = sparsify_(dense(), density=0.5, blocksize=8)
    folder = tmp_path_factory.mktemp("saved") / "m"
    return save_pretrained(model, folder, most_bytes=4000)


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "m")


def load(folder):
    return from_pretrained(folder, model=dense())


def edit(folder, change):
    """Change the metadata."""
    path = folder / "sparsetile.json"
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def tamper(folder, change):
    """Change the tensors, in files as large as the metadata says."""
    tensors = {}
    for path in folder.glob("*.safetensors"):
        tensors |= load_file(path)
        path.unlink()
    change(tensors)
    save_file(tensors, folder / "all.safetensors")
    size = (folder / "all.safetensors").stat().st_size
    edit(folder, lambda table: table.update(files={"all.safetensors": size}))


def assert_refused(folder, *words, fault=ValueError):
    skeleton = dense()
    before = {name: tensor.clone() for name, tensor in skeleton.state_dict().items()}
    with pytest.raises(fault) as refused:
        from_pretrained(folder, model=skeleton)
    for word in (*words, "got", "allowed"):
        assert word in str(refused.value)
    return before


def flipped(key, value):
    def change(tensors):
        tensors[key] = value(tensors[key])

    return change


def swapped(col):
    col = col.clone()
    col[:2] = col[:2].flip(0)
    return col


PATTERNS = {
    "columns not ascending": ("0.col_indices", swapped),
    "a column out of range": ("0.col_indices", lambda t: t + 3),
    "a negative column": ("0.col_indices", lambda t: t - 1),
    "a column missing": ("0.col_indices", lambda t: t[:-1].clone()),
    "row starts falling": ("0.crow_indices", lambda t: t.flip(0).clone()),
    "row starts missing": ("0.crow_indices", lambda t: t[1:].clone()),
    "columns of another kind": ("0.col_indices", lambda t: t.float()),
    "a block missing": ("0.values", lambda t: t[1:].clone()),
    "blocks of another size": ("0.values", lambda t: t[:, :4].clone()),
    "values of one dimension": ("0.values", lambda t: t.flatten()),
    "a bias too long": ("1.bias", lambda t: t.repeat(2)),
}


@pytest.mark.parametrize("key, value", PATTERNS.values(), ids=PATTERNS)
def test_a_wrong_pattern_is_refused_by_key(key, value, folder):
    tamper(folder, flipped(key, value))
    assert_refused(folder, key)


@pytest.mark.parametrize("key", ["0.values", "0.crow_indices", "1.col_indices", "0.bias"])
def test_a_missing_key_is_named(key, folder):
    tamper(folder, lambda tensors: tensors.pop(key))
    assert_refused(folder, key)


def test_a_key_too_many_is_named(folder):
    tamper(folder, lambda tensors: tensors.update(extra=torch.ones(2)))
    assert_refused(folder, "'extra'")


def test_a_missing_file_is_named(folder):
    path = sorted(folder.glob("*.safetensors"))[1]
    path.unlink()
    assert_refused(folder, path.name, fault=FileNotFoundError)


@pytest.mark.parametrize("size", [0, 7, 100, -1])
@pytest.mark.parametrize("known", [True, False])
def test_a_truncated_file_is_named(size, known, folder):
    path = sorted(folder.glob("*.safetensors"))[0]
    path.write_bytes(path.read_bytes()[:size])
    if not known:
        held = path.stat().st_size
        edit(folder, lambda table: table["files"].update({path.name: held}))
    assert_refused(folder, path.name)


def test_a_header_that_claims_much_is_refused(folder):
    path = sorted(folder.glob("*.safetensors"))[0]
    content = bytearray(path.read_bytes())
    content[:8] = (2**40).to_bytes(8, "little")
    path.write_bytes(content)
    assert_refused(folder, path.name)


CHANGES = {
    "a newer version": (lambda t: t.update(version=2), "'version'"),
    "no version": (lambda t: t.pop("version"), "'version'"),
    "a version of another kind": (lambda t: t.update(version="1"), "'version'"),
    "another format": (lambda t: t.update(format="tar"), "'format'"),
    "no layers": (lambda t: t.pop("layers"), "'layers'"),
    "layers of another kind": (lambda t: t.update(layers=[1]), "'layers'"),
    "a layer of an unknown kind": (lambda t: t["layers"]["0"].update(kind="conv"), "'0'"),
    "a layer with half a shape": (lambda t: t["layers"]["0"].update(shape=[4]), "'shape'"),
    "a layer of another shape": (lambda t: t["layers"]["0"].update(shape=[40, 32]), "'0'"),
    "a huge layer": (lambda t: t["layers"]["0"].update(shape=[2**45, 2**45]), "0.crow_indices"),
    "blocks of no size": (lambda t: t["layers"]["0"].update(blocksize=[0, 8]), "'0'"),
    "another block size": (lambda t: t["layers"]["0"].update(blocksize=[4, 8]), "0.crow_indices"),
    "another count": (lambda t: t["layers"]["0"].update(nnzb=3), "0.col_indices"),
    "a huge count": (lambda t: t["layers"]["0"].update(nnzb=2**62), "0.col_indices"),
    "a layer that is tied to none": (
        lambda t: t["layers"]["0"].update(kind="tied_head", table="9"),
        "'table'",
    ),
    "a layer the model lacks": (
        lambda t: t["layers"].update({"7": t["layers"]["0"]}),
        "7.crow_indices",
    ),
    "a layer left out": (lambda t: t["layers"].pop("0"), "'0.weight'"),
    "a tensor tied to none": (lambda t: t["tied"].update({"0.bias": "9.bias"}), "9.bias"),
    "a file elsewhere": (lambda t: t["files"].update({"../x.safetensors": 1}), "'files'"),
    "files without sizes": (lambda t: t["files"].update({"x.safetensors": None}), "'files'"),
}


@pytest.mark.parametrize("change, word", CHANGES.values(), ids=CHANGES)
def test_wrong_metadata_are_refused_by_key(change, word, folder):
    edit(folder, change)
    assert_refused(folder, word)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", "\x00\xff"])
def test_metadata_that_are_no_metadata_are_refused(text, folder):
    (folder / "sparsetile.json").write_text(text)
    assert_refused(folder, "sparsetile.json")


def test_a_model_of_another_structure_is_refused_by_name(folder):
    for model in (nn.Sequential(nn.Linear(24, 40)), nn.Sequential(nn.Linear(25, 40), nn.ReLU())):
        with pytest.raises(ValueError, match=r"layer '[01]' of the saved model"):
            from_pretrained(folder, model=model)
    with pytest.raises(ValueError, match="pass it as model="):
        from_pretrained(folder)


@pytest.fixture(scope="module")
def of_transformers(tmp_path_factory):
    torch.manual_seed(0)
    model = sparsify_(gpt2(), density=0.5, blocksize=8)
    return save_pretrained(model, tmp_path_factory.mktemp("hf") / "m")


CONFIGS = {
    "of another model": (lambda t: t.update(llama().config.to_dict()), "model_type"),
    "of another class": (lambda t: t.update(architectures=["GPT2Model"]), "architectures"),
    "of another width": (lambda t: t.update(n_embd=64), "transformer"),
    "of more layers": (lambda t: t.update(n_layer=3), "h.2."),
    "of fewer layers": (lambda t: t.update(n_layer=1), "h.1."),
    "of a model unknown": (lambda t: t.update(model_type="gpt7"), "config.json"),
    "of code from elsewhere": (
        lambda t: t.update(model_type="x", auto_map={"AutoConfig": "evil.Config"}),
        "config.json",
    ),
}


@pytest.mark.parametrize("change, word", CONFIGS.values(), ids=CONFIGS)
def test_a_foreign_config_is_refused(change, word, of_transformers, tmp_path):
    folder = shutil.copytree(of_transformers, tmp_path / "m")
    table = json.loads((folder / "config.json").read_text())
    (folder / "evil.py").write_text("raise SystemExit('code of a model ran')")
    change(table)
    (folder / "config.json").write_text(json.dumps(table))
    with pytest.raises(ValueError, match=word):
        from_pretrained(folder)


def test_folders_that_are_none(of_transformers, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        from_pretrained(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        from_pretrained(tmp_path)
    folder = shutil.copytree(of_transformers, tmp_path / "m")
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        from_pretrained(folder)


def test_arguments_are_checked(folder, tmp_path):
    with pytest.raises(TypeError, match="dtype"):
        from_pretrained(folder, model=dense(), dtype=torch.int8)
    with pytest.raises(ValueError, match="device"):
        from_pretrained(folder, model=dense(), device="meta")
    with pytest.raises(TypeError, match="model"):
        from_pretrained(folder, model=3)
    with pytest.raises(TypeError, match="model"):
        save_pretrained({}, tmp_path / "x")
    with pytest.raises(ValueError, match="most_bytes"):
        save_pretrained(dense(), tmp_path / "x", most_bytes=0)
    with pytest.raises(TypeError, match="tokenizer"):
        save_pretrained(dense(), tmp_path / "x", tokenizer="bert")
    with pytest.raises(ValueError, match="meta device"):
        save_pretrained(dense().to("meta"), tmp_path / "x")
    with pytest.raises(TypeError, match=r"'0.weight'.*complex64"):
        save_pretrained(nn.Sequential(nn.Linear(2, 2, dtype=torch.complex64)), tmp_path / "x")
    head = nn.Sequential(stnn.TiedHead(stnn.Embedding(8, 8, density=1.0)))
    with pytest.raises(ValueError, match="outside of the model"):
        save_pretrained(head, tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("write", [save_pretrained, to_dense_checkpoint])
def test_a_save_that_fails_leaves_the_folder_as_it_was(write, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model = sparsify_(dense(), density=0.5, blocksize=8)
    folder = write(model, tmp_path / "m")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    real = shards._write
    calls = []

    def failing(file, shard):
        calls.append(shard)
        if len(calls) == 2:
            raise OSError("no space left")
        real(file, shard)

    monkeypatch.setattr(shards, "_write", failing)
    with pytest.raises(OSError, match="no space"):
        write(sparsify_(dense(), density=0.2, blocksize=8), folder, most_bytes=1000)
    calls.clear()
    with pytest.raises(OSError, match="no space"):
        write(model, tmp_path / "new", most_bytes=1000)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_one_kind_of_checkpoint_does_not_hide_another(folder, tmp_path):
    with pytest.raises(ValueError, match="sparse model"):
        to_dense_checkpoint(dense(), folder)
    full = to_dense_checkpoint(dense(), tmp_path / "full")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        save_pretrained(dense(), full)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(NotADirectoryError):
        save_pretrained(dense(), file)
