"""Folders of models with sparse layers that transformers itself wrote, without our metadata."""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from sparsetile.models import _pretrained_check as check
from sparsetile.models._pretrained_metadata import FILE, Layer, Metadata
from sparsetile.models._pretrained_shards import ShardReader

_FILE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def describe_plain_folder(folder: Path, skeleton: nn.Module) -> tuple[Metadata, ShardReader]:
    """Work out which layers are sparse from the names of tensors and the dense model.

    Args:
        folder: What transformers' `save_pretrained` wrote.
        skeleton: The dense model.

    Returns:
        What `save_pretrained` would have noted, and the files.

    Raises:
        FileNotFoundError: If the folder holds no safetensors files.
        ValueError: If a file is damaged, or names layers that the model does not have.
    """
    if (folder / _INDEX).is_file():
        try:
            table = json.loads((folder / _INDEX).read_text())
        except (ValueError, RecursionError) as fault:
            raise ValueError(
                check.refusal(
                    str(folder / _INDEX), got=str(fault), allowed="JSON", fix="save it again"
                )
            ) from fault
        where = check.field(str(folder / _INDEX), table, "weight_map", dict)
        names = sorted({Path(str(name)).name for name in where.values()})
    elif (folder / _FILE).is_file():
        names = [_FILE]
    else:
        raise FileNotFoundError(
            check.refusal(
                str(folder),
                got="a folder without weights",
                allowed=f"{FILE}, which save_pretrained writes, or {_FILE}",
                fix="save the model there first",
            )
        )
    reader = ShardReader(folder, dict.fromkeys(names))
    layers = {
        key.removesuffix("values").rstrip("."): _layer(skeleton, key, reader)
        for key in reader
        if key == "values" or key.endswith(".values")
    }
    layers |= _tied(skeleton, layers)
    return Metadata(None, layers, _shared(skeleton, layers, reader)), reader


def _layer(skeleton: nn.Module, key: str, reader: ShardReader) -> Layer:
    name = key.removesuffix("values").rstrip(".")
    parent, _, leaf = name.rpartition(".")
    kind, values = "linear", reader.shape(key)
    weight: Tensor | None = None
    try:
        outer = skeleton.get_submodule(parent)
        if isinstance(outer, nn.LSTM | nn.GRU):
            weight, bias = outer._parameters.get(f"weight_{leaf}"), outer.bias
        else:
            module = skeleton.get_submodule(name)
            weight, bias = module._parameters.get("weight"), "bias" in module._parameters
            bias = bias and module._parameters["bias"] is not None
            kind = "embedding" if isinstance(module, nn.Embedding) else "linear"
            if weight is not None and type(module).__name__ == "Conv1D":
                weight = weight.t()
    except AttributeError:
        pass
    if weight is None or weight.ndim != 2 or len(values) != 3:
        raise ValueError(
            check.refusal(
                f"{key} in {reader.file_of(key).name}",
                got="blocks of a layer that is not a dense layer of the model",
                allowed="layers of the model that the config describes",
                fix="load with the config, or into the model, that was saved",
            )
        )
    m, k = weight.shape
    return Layer(kind, (m, k), (values[1], values[2]), values[0], bias)


def _tied(skeleton: nn.Module, layers: dict[str, Layer]) -> dict[str, Layer]:
    """Heads and embeddings whose weight is that of an embedding which is sparse in the files."""
    tied: dict[str, Layer] = {}
    tables = {
        id(skeleton.get_submodule(name)._parameters["weight"]): name
        for name, layer in layers.items()
        if layer.kind == "embedding"
    }
    for name, module in skeleton.named_modules():
        owner = tables.get(id(module._parameters.get("weight")))
        if owner is None or name in layers:
            continue
        table, bias = layers[owner], module._parameters.get("bias") is not None
        kind = "tied_embedding" if isinstance(module, nn.Embedding) else "tied_head"
        tied[name] = Layer(kind, table.shape, table.blocksize, table.nnzb, bias, owner)
    return tied


def _shared(skeleton: nn.Module, layers: dict[str, Layer], reader: ShardReader) -> dict[str, str]:
    """Other names of tensors that the model has once, as the files hold them."""
    names: dict[int, list[str]] = {}
    tensors: dict[str, torch.Tensor] = skeleton.state_dict(keep_vars=True)
    for name, tensor in tensors.items():
        before, _, leaf = name.rpartition(".")
        if before not in layers or leaf != "weight":
            names.setdefault(id(tensor), []).append(name)
    aliases: dict[str, str] = {}
    for same in names.values():
        kept = next((name for name in same if name in reader), same[0])
        aliases |= {name: kept for name in same if name != kept and name not in reader}
    return aliases
