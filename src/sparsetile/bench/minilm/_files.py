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


def dense_bytes(model: Any) -> int:
    """Bytes of a dense transformers model in a folder, as transformers saves it."""
    with tempfile.TemporaryDirectory() as place:
        model.save_pretrained(place)
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
        return folder_bytes(folder), from_pretrained(folder, dtype=torch.float32)


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
        return from_pretrained(place)
    model = make()
    place.parent.mkdir(exist_ok=True)
    save_pretrained(model, place)
    return model.eval()


def path_of(folder: Path, name: str) -> Path:
    """Where a model of the proof is kept."""
    return folder / FOLDER / name


def _cast(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    return model if dtype is torch.float32 else copy.deepcopy(model).to(dtype)
