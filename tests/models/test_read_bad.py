"""Damaged, hostile and unfinished checkpoints are refused by name, with the way out."""

import json
import pickle
import zipfile

import pytest
import torch
from torch import nn

from sparsetile.models import read_checkpoint
from support_models import (
    bitmask_parts,
    block_sparse_parts,
    sparse_weight,
    stk_parts,
    torchao_parts,
    write,
    write_shards,
)

WEIGHT, MASK = sparse_weight(64, 64, block=32, density=0.5)


def changed(parts, name, value):
    return parts | {f"up.weight.{name}": value}


def without(parts, name):
    return {key: value for key, value in parts.items() if not key.endswith(name)}


BITS = bitmask_parts("up.weight", WEIGHT)
PBS = block_sparse_parts("up.weight", WEIGHT)
AO = torchao_parts("up.weight", WEIGHT, 32)
STK = stk_parts("up.weight", WEIGHT, 32)
ORIG = {"up.weight_orig": WEIGHT, "up.weight_mask": MASK.float()}
HUGE = torch.tensor([2**40, 2**40])

# What the file holds, the key the error names, a word of it.
DAMAGED = {
    "bitmask of other counts": (changed(BITS, "compressed", torch.ones(3)), "compressed", "3 num"),
    "bitmask of a claimed size": (changed(BITS, "shape", HUGE), "shape", "beside a bitmask"),
    "bitmask of one size": (changed(BITS, "shape", torch.tensor([64])), "shape", "two sizes"),
    "bitmask of float offsets": (
        changed(BITS, "row_offsets", torch.ones(64)),
        "row_offsets",
        "int",
    ),
    "bitmask of wrong offsets": (
        changed(BITS, "row_offsets", torch.ones(64).long()),
        "row_offsets",
        "other counts",
    ),
    "bitmask cut off": (without(BITS, ".shape"), "compressed", "no 'up.weight.shape'"),
    "blocks beyond the mask": (changed(PBS, "data", PBS["up.weight.data"][:-1]), "data", "blocks"),
    "blocks of wrong columns": (
        changed(PBS, "cols_a", PBS["up.weight.cols_a"] + 1),
        "cols_a",
        "not there",
    ),
    "blocks of a flat mask": (changed(PBS, "block_mask", torch.ones(4) > 0), "block_mask", "mask"),
    "no mask of blocks": (without(PBS, "data"), "block_mask", "no 'up.weight.data'"),
    "columns outside": (changed(AO, "bsr_col_indices", torch.tensor([9, 9])), "bsr", "block"),
    "offsets that fall": (changed(AO, "bsr_crow_indices", torch.tensor([0, 9, 2])), "bsr", "of a"),
    "values of a matrix": (changed(AO, "bsr_values", torch.ones(2, 2)), "bsr_values", "[nnzb"),
    "float columns": (changed(AO, "bsr_col_indices", torch.ones(2)), "bsr_col", "integers"),
    "rows that differ": (
        changed(STK, "row_indices", STK["up.weight.row_indices"].flip(0) + 1),
        "row_indices",
        "other rows",
    ),
    "no mask": (without(ORIG, "_mask"), "weight_orig", "no 'up.weight_mask'"),
    "a mask of halves": (ORIG | {"up.weight_mask": MASK * 0.5}, "weight_mask", "zeros and ones"),
    "a mask of another size": (
        ORIG | {"up.weight_mask": torch.ones(2, 2)},
        "weight_mask",
        "[2, 2]",
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_damaged_parts_are_named(tmp_path, case, suffix):
    parts, key, word = DAMAGED[case]
    path = write(tmp_path / f"a{suffix}", parts)
    with pytest.raises(ValueError, match=r"up\.weight") as refusal:
        read_checkpoint(path)["up.weight"]
    text = str(refusal.value)
    assert key in text and word in text and text.startswith(path.name) and "allowed: " in text


UNFINISHED = {
    "up.mask_scores": "compile_model",
    "up.linear.input_extract": "-opt-",
    "up.linear.output_expand": "-opt-",
    "up.parametrizations.weight.original": "squash_mask",
    "up.parametrizations.weight.original0": "remove_parametrizations",
    "up.weight_packed": "decompress",
    "up.weight_scale": "decompress",
    "up.qweight": "decompress",
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_what_is_not_the_weight_itself_is_refused(tmp_path, name):
    path = write(tmp_path / "a.safetensors", {name: torch.zeros(4), "up.bias": torch.zeros(4)})
    with pytest.raises(ValueError, match=UNFINISHED[name]) as refusal:
        read_checkpoint(path)
    assert repr(name) in str(refusal.value)


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {}},
            }
        },
        {"compression_config": {"sparsity_config": {"format": "marlin-24"}}},
    ],
    ids=["gptq", "pack-quantized", "marlin"],
)
def test_quantised_models_are_refused_by_their_config(tmp_path, config):
    write(tmp_path / "model.safetensors", {"up.weight": WEIGHT})
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json.*decompress"):
        read_checkpoint(tmp_path)


def test_sparse_formats_in_a_config_are_welcome(tmp_path):
    write(tmp_path / "model.safetensors", BITS)
    sparse = {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-bitmask"}}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": sparse}))
    assert torch.equal(read_checkpoint(tmp_path)["up.weight"].to_dense(), WEIGHT)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_refused(tmp_path, suffix, share):
    path = write(tmp_path / f"a{suffix}", {"up.weight": WEIGHT})
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=path.name):
        read_checkpoint(path)["up.weight"]


def test_header_that_claims_more_than_the_file_is_refused(tmp_path):
    head = {"w": {"dtype": "F32", "shape": [2**30, 2**30], "data_offsets": [0, 2**62]}}
    text = json.dumps(head).encode()
    (tmp_path / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)
    with pytest.raises(ValueError, match=r"a\.safetensors"):
        read_checkpoint(tmp_path / "a.safetensors")


def test_numbers_that_are_repeated_without_end_are_refused(tmp_path):
    path = write(tmp_path / "a.pt", {"up.weight": torch.zeros(1, 1).expand(2**20, 2**20)})
    with pytest.raises(ValueError, match=r"'up\.weight'.*repeats"):
        read_checkpoint(path)


def test_sparse_tensor_of_a_claimed_size_is_refused(tmp_path):
    sparse = torch.sparse_coo_tensor([[0], [0]], [1.0], (2**40, 4), check_invariants=True)
    path = write(tmp_path / "a.pt", {"up.weight": sparse})
    with pytest.raises(ValueError, match=r"'up\.weight'.*sparse tensor of shape"):
        read_checkpoint(path)


def test_compressed_archive_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(2**20))
    with pytest.raises(ValueError, match="not compressed"):
        read_checkpoint(tmp_path / "a.pt")


def test_pickle_of_a_whole_model_is_refused_and_not_run(tmp_path):
    torch.save(nn.Sequential(nn.Linear(2, 2)), tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"torch\.nn\.modules.*state_dict"):
        read_checkpoint(tmp_path / "a.pt")


class Harm:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_that_runs_code_is_refused_and_not_run(tmp_path, zipped):
    harm = {"up.weight": torch.zeros(2), "harm": Harm(tmp_path / "touched")}
    torch.save(harm, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match="any code"):
        read_checkpoint(tmp_path / "a.pt")
    assert not (tmp_path / "touched").exists()


def test_plain_pickle_is_refused(tmp_path):
    (tmp_path / "a.pt").write_bytes(pickle.dumps(Harm(tmp_path / "touched")))
    with pytest.raises(ValueError, match=r"a\.pt"):
        read_checkpoint(tmp_path / "a.pt")
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "place", ["../secret.safetensors", "/etc/passwd", "..", "", "a/b.bin", "a\\b.bin", 7, None]
)
def test_index_does_not_lead_out_of_the_folder(tmp_path, place):
    folder = tmp_path / "model"
    folder.mkdir()
    write(tmp_path / "secret.safetensors", {"w": torch.zeros(2)})
    index = {"weight_map": {"w": place}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"index\.json, key 'w'.*plain name"):
        read_checkpoint(folder)


def test_missing_shard_and_misplaced_names_are_named(tmp_path):
    index = write_shards(tmp_path, {"a": torch.zeros(2), "b": torch.ones(2)})
    places = json.loads(index.read_text())
    places["weight_map"]["a"] = places["weight_map"]["b"]
    index.write_text(json.dumps(places))
    with pytest.raises(ValueError, match=r"key 'a'.*does not hold it"):
        read_checkpoint(tmp_path)
    places["weight_map"]["a"] = "model-3.safetensors"
    index.write_text(json.dumps(places))
    with pytest.raises(FileNotFoundError, match=r"key 'a'.*model-3"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"weight_map": []}', "[" * 100000])
def test_broken_index_is_refused(tmp_path, text):
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(ValueError, match=r"index\.json"):
        read_checkpoint(tmp_path)


def test_wrong_paths_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_checkpoint(tmp_path / "nowhere.pt")
    with pytest.raises(FileNotFoundError, match="no file of weights"):
        read_checkpoint(tmp_path)
    (tmp_path / "a.h5").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"suffix '\.h5'"):
        read_checkpoint(tmp_path / "a.h5")
    with pytest.raises(TypeError, match="path"):
        read_checkpoint(7)


def test_file_without_tensors_is_refused(tmp_path):
    torch.save({"epoch": 3}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="no tensors under its keys 'epoch'"):
        read_checkpoint(tmp_path / "a.pt")
