"""The tensors of one file by name, before anybody asks what they mean."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from sparsetile.matrix import BSR
from sparsetile.models._say import refusal

# A small file may claim a size for which no memory is: so many rows are always taken, more only
# from a file of as many bytes.
PLENTY = 2**26


@dataclass(frozen=True)
class Stored:
    """What one file, or a folder of shards, stores under each name.

    Attributes:
        path: The file or folder.
        kind: `safetensors`, `torch` or `onnx`.
        shapes: Shape of each tensor.
        dtypes: Type of each tensor.
        read: Reads one of them.
        metadata: Text that the file keeps beside the tensors.
        special: For tensors that are sparse by themselves: the name of their format.
        transposed: Weights `[in, out]`, which ONNX's MatMul has.
    """

    path: Path
    kind: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
    read: Callable[[str], Tensor | BSR]
    metadata: Mapping[str, str] = field(default_factory=dict)
    special: Mapping[str, str] = field(default_factory=dict)
    transposed: frozenset[str] = frozenset()

    def bytes(self, name: str) -> int:
        """Bytes that a tensor takes when it is stored dense."""
        return prod(self.shapes[name]) * self.dtypes[name].itemsize


def key_of(path: Path, name: str) -> str:
    """Say which tensor of which file is meant, for messages."""
    return f"{path.name}, key {name!r}"


def check_rows(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Refuse a shape that a small file merely claims.

    Args:
        path: The file.
        name: The tensor.
        shape: Its shape as the file has it.

    Raises:
        ValueError: If there are more rows than the file could say anything about.

    Examples:
        >>> check_rows(Path("a.bin"), "w", (64, 64))
    """
    most = max(PLENTY, path.stat().st_size if path.is_file() else 0)
    if len(shape) != 2 or not all(0 <= size <= most for size in shape):
        raise refusal(
            key_of(path, name),
            got=f"a sparse tensor of shape {list(shape)}",
            allowed=f"two sizes of at most {most} in a file of this size",
            fix="the file is damaged or made to harm: get it again from a source you trust",
        )
