"""A plain dense checkpoint of a model with sparse layers, written one layer at a time."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from sparsetile.models._pretrained import (
    MOST_BYTES,
    checked_model,
    own_tensors,
    save_config,
)
from sparsetile.models._pretrained_check import refusal
from sparsetile.models._pretrained_folder import whole_folder
from sparsetile.models._pretrained_metadata import FILE, layers_of
from sparsetile.models._pretrained_shards import Item, write_shards
from sparsetile.nn import GRU, LSTM, Embedding, Linear, densify_

_PARTS = ("values", "crow_indices", "col_indices", "forward_blocks")


def to_dense_checkpoint(
    model: nn.Module, folder: str | Path, *, most_bytes: int = MOST_BYTES
) -> Path:
    """Save the dense model of the same function, which transformers loads without this library.

    Layers are made dense one after the other, so one dense weight is in memory at a time. The
    model is not changed.

    Args:
        model: Any module; of a transformers model the config is saved too, so that
            `AutoModel.from_pretrained(folder)` and its like load it. Others load
            `model.safetensors` into the dense module.
        folder: Where to; written whole or not at all, other files in it stay.
        most_bytes: Bytes of tensors in one file; larger models get several, and an index.

    Returns:
        The folder.

    Raises:
        TypeError: If the model is no module, or has state that is no plain tensor.
        ValueError: If weights hold no data, or the folder holds a sparse model.
        OSError: If it cannot be written.

    Examples:
        >>> import tempfile
        >>> from safetensors.torch import load_file
        >>> from sparsetile import nn as stnn
        >>> model = nn.Sequential(stnn.Linear(64, 32, density=0.25))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = to_dense_checkpoint(model, Path(place) / "dense")
        ...     load_file(folder / "model.safetensors")["0.weight"].shape
        torch.Size([32, 64])
    """
    model = checked_model(model)
    layers_of(model)  # refuses what cannot be saved
    folder = Path(folder)
    if (folder / FILE).exists():
        raise ValueError(
            refusal(
                str(folder),
                got="a folder with a sparse model",
                allowed="a new folder, or one with a dense checkpoint",
                fix="choose another folder",
            )
        )
    items = list(_items(model))
    with whole_folder(folder, _replaced) as new:
        save_config(model, new)
        files = write_shards(new, "model", items, most_bytes)
        if len(set(files.values())) > 1:
            total = sum(item.nbytes for item in items)
            index = {"metadata": {"total_size": total}, "weight_map": files}
            (new / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    return folder


def _replaced(path: Path) -> bool:
    return path.name.startswith("model") and ".safetensors" in path.name


def _items(model: nn.Module) -> Iterator[Item]:
    tensors, _ = own_tensors(model)
    for name, module in model.named_modules():
        before = f"{name}." if name else ""
        if isinstance(module, Linear | Embedding):
            parent, _, leaf = name.rpartition(".")
            # a recurrent layer has its weights itself when it is dense
            inner = isinstance(model.get_submodule(parent), LSTM | GRU) if parent != name else False
            key = f"{parent}.weight_{leaf}".lstrip(".") if inner else f"{before}weight"
            bias = module._parameters.get("bias")
            dtype = module.values.dtype if bias is None else bias.dtype
            m, k = module.shape
            yield Item(key, dtype, m * k, partial(_dense_weight, module))
            for part in _PARTS:
                tensors.pop(before + part, None)
            if inner and bias is not None:
                yield Item.of(f"{parent}.bias_{leaf}".lstrip("."), tensors.pop(f"{before}bias"))
    for name, tensor in tensors.items():
        yield Item.of(name, tensor)


def _dense_weight(layer: nn.Module) -> Tensor:
    with torch.no_grad():
        weight = densify_(layer)._parameters["weight"]
    assert weight is not None
    return weight.detach()
