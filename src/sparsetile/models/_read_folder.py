"""A folder as Hugging Face lays it out: one file or shards with an index, and a config."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from sparsetile.matrix import BSR
from sparsetile.models._read_onnx import stored_onnx
from sparsetile.models._read_safetensors import stored_safetensors
from sparsetile.models._read_stored import Stored
from sparsetile.models._read_torch import stored_torch
from sparsetile.models._say import refusal

READERS: dict[str, Callable[[Path], Stored]] = {
    ".safetensors": stored_safetensors,
    ".bin": stored_torch,
    ".pt": stored_torch,
    ".pth": stored_torch,
    ".onnx": stored_onnx,
}
_FIRST = ("model.safetensors", "pytorch_model.bin", "model.onnx")
_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_MOST_JSON = 2**28


def stored_file(path: Path) -> Stored:
    """Read a file by its suffix.

    Raises:
        ValueError: If the suffix is none of those known, or the file is damaged.
    """
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise refusal(
            path.name,
            got=f"the suffix {suffix!r}",
            allowed=", ".join(READERS) + ", or a folder",
            fix="unpack archives first; for .mtx, .smtx and .npz use sparsetile.matrix",
        )
    return READERS[suffix](path)


def stored_folder(folder: Path) -> Stored:
    """Read a folder's weights, of one file or of many with an index.

    Args:
        folder: The folder.

    Returns:
        Its tensors.

    Raises:
        FileNotFoundError: If it holds no weights, or a shard is missing.
        ValueError: If the index is damaged or leads out of the folder.
    """
    for name in _INDEX:
        if (folder / name).is_file():
            return _sharded(folder, folder / name)
    for name in _FIRST:
        if (folder / name).is_file():
            return stored_file(folder / name)
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in READERS and p.is_file())
    if len(found) != 1:
        got = f"{len(found)} files of weights" if found else "no file of weights"
        allowed = ", ".join((*_FIRST, *_INDEX)) + ", or one file"
        text = f"{folder}: got {got}; allowed: {allowed}; name the file you mean"
        raise FileNotFoundError(text)
    return stored_file(found[0])


def read_json(path: Path) -> dict[str, Any]:
    """Read an object of JSON.

    Args:
        path: The file.

    Returns:
        Its content.

    Raises:
        ValueError: If it is no JSON object, or larger than any index.
    """
    fix = "get the file again"
    if path.stat().st_size > _MOST_JSON:
        got = f"{path.stat().st_size} bytes"
        raise refusal(path.name, got=got, allowed=f"{_MOST_JSON} bytes", fix=fix)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        got = f"{error}"
        raise refusal(path.name, got=got, allowed="an object of JSON", fix=fix) from None
    if not isinstance(found, dict):
        got = f"a {type(found).__name__}"
        raise refusal(path.name, got=got, allowed="an object of JSON", fix=fix)
    return found


def _sharded(folder: Path, index: Path) -> Stored:
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
        got, allowed = "no weight_map", '"weight_map" with a file for each name'
        raise refusal(index.name, got=got, allowed=allowed, fix="get the index again")
    shards: dict[str, Stored] = {}
    for name, place in places.items():
        shard = _checked(index, name, place)
        if shard not in shards:
            shards[shard] = stored_file(folder / shard)
        if name not in shards[shard].shapes:
            raise refusal(
                f"{index.name}, key {name!r}",
                got=f"{shard}, which does not hold it",
                allowed="the file that does",
                fix="get the shards and the index again, all of one version",
            )

    def read(name: str) -> Tensor | BSR:
        return shards[places[name]].read(name)

    return Stored(
        folder,
        next(iter(shards.values())).kind,
        {name: shards[place].shapes[name] for name, place in places.items()},
        {name: shards[place].dtypes[name] for name, place in places.items()},
        read,
        {key: text for shard in shards.values() for key, text in shard.metadata.items()},
        {
            name: shards[place].special[name]
            for name, place in places.items()
            if name in shards[place].special
        },
    )


def _checked(index: Path, name: str, place: object) -> str:
    """Take a plain file name: an index must not lead to files elsewhere."""
    plain = isinstance(place, str) and place not in ("", ".", "..") and not set(place) & set("/\\:")
    if not plain or "\0" in str(place):
        raise refusal(
            f"{index.name}, key {name!r}",
            got=f"the file {place!r}",
            allowed="the plain name of a file in the same folder",
            fix="the index is damaged or made to harm: get it again from a source you trust",
        )
    if not (index.parent / str(place)).is_file():
        raise FileNotFoundError(
            f"{index.name}, key {name!r}: got no file {place!r} in {index.parent}; allowed: every "
            "shard that the index names; get the missing shard"
        )
    return str(place)
