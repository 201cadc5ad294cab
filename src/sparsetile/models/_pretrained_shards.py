"""Safetensors files written tensor by tensor, several to a model, and read by name."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from sparsetile.models._pretrained_check import refusal

# Names that the format has for types.
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Item:
    """A tensor to be written, which need not exist before its turn comes.

    Attributes:
        name: Its key in the file.
        dtype: Its type.
        numel: How many elements it has.
        make: Returns it, on any device and with any strides.
    """

    name: str
    dtype: torch.dtype
    numel: int
    make: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.dtype.itemsize * self.numel

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> "Item":
        """Take a tensor that exists; refuse what the format cannot hold."""
        if tensor.is_meta:
            raise ValueError(
                refusal(
                    "save",
                    got=f"{name!r} on the meta device",
                    allowed="tensors that hold data",
                    fix="load the model's weights first",
                )
            )
        if tensor.layout != torch.strided or tensor.dtype not in _NAMES:
            raise TypeError(
                refusal(
                    "save",
                    got=f"{name!r}, {tensor.dtype} with layout {tensor.layout}",
                    allowed="plain tensors of " + ", ".join(str(t)[6:] for t in _NAMES),
                    fix="convert it, or take it out of the state_dict",
                )
            )
        return cls(name, tensor.dtype, tensor.numel(), tensor.detach)


def write_shards(folder: Path, stem: str, items: Iterable[Item], most: int) -> dict[str, str]:
    """Write tensors to as few files as a limit allows, holding one of them at a time.

    Args:
        folder: Where to.
        stem: What the files' names begin with: `stem.safetensors`, or numbered ones.
        items: What to write; all must be known, but need not exist.
        most: Bytes of tensors in a file, but for a larger tensor, which gets one of its own.

    Returns:
        The name of the file that holds each tensor.
    """
    shards: list[list[Item]] = [[]]
    filled = 0
    for item in items:
        if shards[-1] and filled + item.nbytes > most:
            shards.append([])
            filled = 0
        shards[-1].append(item)
        filled += item.nbytes
    where: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        count = f"-{i:05}-of-{len(shards):05}" if len(shards) > 1 else ""
        name = f"{stem}{count}.safetensors"
        with (folder / name).open("xb") as file:
            _write(file, shard)
        where |= {item.name: name for item in shard}
    return where


def _write(file: BinaryIO, shard: list[Item]) -> None:
    # Wide types first: a tensor of a mapped file must begin at a multiple of its element's size.
    shard = sorted(shard, key=lambda item: -item.dtype.itemsize)
    # Shapes are known when the tensors are; room for the header is kept by a bound of its length.
    room = -(-(64 + sum(len(json.dumps(item.name)) + 400 for item in shard)) // 8) * 8
    file.seek(8 + room)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for item in shard:
        tensor = item.make().detach().cpu().contiguous()
        if tensor.dtype != item.dtype or tensor.numel() != item.numel:
            raise RuntimeError(f"{item.name!r} changed while it was saved; save it again")
        if tensor.numel():
            file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
        stop = start + item.nbytes
        header[item.name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    file.truncate(8 + room + start)
    file.seek(0)
    file.write(room.to_bytes(8, "little") + text.ljust(room))


class ShardReader:
    """The tensors of several safetensors files, by name.

    Args:
        folder: Where the files are.
        files: Their names, with the bytes each must have; None where that is not known.
    """

    def __init__(self, folder: Path, files: dict[str, int | None]) -> None:
        from safetensors import SafetensorError, safe_open

        self._where: dict[str, Any] = {}
        self._paths: dict[str, Path] = {}
        for name, size in files.items():
            path = folder / name
            if not path.is_file():
                raise FileNotFoundError(
                    refusal(
                        str(path),
                        got="no such file",
                        allowed=f"all {len(files)} files of the model",
                        fix="copy the whole folder",
                    )
                )
            if size is not None and path.stat().st_size != size:
                raise self._damaged(path, f"{path.stat().st_size} bytes instead of {size}")
            try:
                file = safe_open(path, framework="pt")
                keys = list(file.keys())
            except (SafetensorError, OSError, ValueError) as fault:
                raise self._damaged(path, str(fault)) from fault
            for key in keys:
                if key in self._where:
                    raise self._damaged(path, f"{key!r}, which {self._paths[key].name} holds too")
                self._where[key], self._paths[key] = file, path

    @staticmethod
    def _damaged(path: Path, got: str) -> ValueError:
        return ValueError(
            refusal(
                str(path),
                got=got,
                allowed="a whole safetensors file as it was saved",
                fix="copy or save it again",
            )
        )

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def file_of(self, name: str) -> Path:
        """The file that holds a tensor, for messages."""
        return self._paths[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes of a tensor, without reading it."""
        return tuple(self._where[name].get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        """Read a tensor."""
        tensor: Tensor = self._where[name].get_tensor(name)
        return tensor
