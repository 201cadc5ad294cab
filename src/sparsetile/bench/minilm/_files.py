"""The models of a proof on disk: how large they are, and each made once."""

import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sparsetile.models import from_pretrained, save_pretrained

FOLDER = "models"


def folder_bytes(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def save_dense(model: Any, folder: Path) -> None:
    """Save a dense model as transformers does: config and safetensors, in a folder that exists."""
    from safetensors.torch import save_file

    save_file(model.state_dict(), folder / "model.safetensors", {"format": "pt"})
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


def load(folder: Path, dtype: torch.dtype | None = None) -> nn.Module:
    """Load a pruned encoder. Its config does not say that it has no pooler, so it is told."""
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(folder)
    with torch.device("meta"):
        empty: Any = BertModel(config, add_pooling_layer=False)
    # Buffers that no file holds.
    places = torch.arange(config.max_position_embeddings).expand(1, -1)
    empty.embeddings.position_ids = places
    empty.embeddings.token_type_ids = torch.zeros_like(places)
    return from_pretrained(folder, model=empty, dtype=dtype)


def dense_bytes(model: nn.Module) -> int:
    """Bytes of a dense model in a folder."""
    with tempfile.TemporaryDirectory() as place:
        save_dense(model, Path(place))
        return folder_bytes(Path(place))


def stored_as(model: nn.Module, dtype: torch.dtype) -> tuple[int, nn.Module]:
    """Save a model in a type and load it into float32: its bytes, and the model that comes back.

    Args:
        model: A model with sparse layers.
        dtype: Of the file.

    Returns:
        Bytes of the folder, and the model with rounded weights.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        save_pretrained(_cast(model, dtype), folder)
        return folder_bytes(folder), load(folder, torch.float32)


def kept(folder: Path, name: str, make: Callable[[], nn.Module]) -> nn.Module:
    """A model of the proof's folder; made and saved there if it is not there yet.

    Args:
        folder: Of the proof.
        name: Of the model's folder in it.
        make: Makes the model.

    Returns:
        The model, in evaluation mode.
    """
    place = path_of(folder, name)
    if place.is_dir():
        return load(place)
    model = make()
    place.parent.mkdir(exist_ok=True)
    save_pretrained(model, place)
    return model.eval()


def path_of(folder: Path, name: str) -> Path:
    """Where a model of the proof is kept."""
    return folder / FOLDER / name


def _cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    return model if dtype is torch.float32 else copy.deepcopy(model).to(dtype)
