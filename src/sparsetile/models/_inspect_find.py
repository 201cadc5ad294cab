"""The weight matrices of a module, a checkpoint or a file of one matrix, one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.utils import parametrize

from sparsetile.matrix import BSR, load
from sparsetile.models._checkpoint import Checkpoint, read_checkpoint
from sparsetile.models._from_dense_layers import is_conv1d
from sparsetile.models._from_dense_masks import _joint_mask, _pruned
from sparsetile.models._say import refusal
from sparsetile.nn import BlockSparse

#: Suffixes of files that hold one matrix and nothing else.
MATRICES = (".mtx", ".mtx.gz", ".smtx", ".smtx.gz", ".npz")


@dataclass(frozen=True)
class Found:
    """One weight matrix, looked at when it is its turn.

    Attributes:
        name: Its name.
        kind: How it is kept.
        dtype: Type of its values.
        bytes: Bytes it takes now; None for those of a dense matrix.
        kept: Makes a mask that is true where a value is kept; it is not held.
        side: Blocks it is stored in already.
    """

    name: str
    kind: str
    dtype: torch.dtype
    bytes: int | None
    kept: Callable[[], Bool[Tensor, "m k"]]
    side: tuple[int, int] | None = None


@dataclass(frozen=True)
class Source:
    """Where weight matrices come from.

    Attributes:
        name: Of the file, folder or class.
        formats: What was recognised.
        matrices: The matrices.
        others: Bytes of each other tensor.
    """

    name: str
    formats: tuple[str, ...]
    matrices: tuple[Found, ...]
    others: tuple[int, ...]


def source_of_module(model: nn.Module) -> Source:
    """Find the weight matrices of linear and of sparse layers; nothing is copied or changed.

    Raises:
        ValueError: If a weight is on the meta device.
    """
    matrices: list[Found] = []
    seen: set[int] = set()
    kinds: dict[str, None] = {}
    for name, module in model.named_modules():
        found = _of_module(name, module)
        if found is None:
            continue
        matrices.append(found[0])
        seen.update(map(id, found[1]))
        kinds[found[0].kind] = None
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers()) if id(t) not in seen}
    others = tuple(t.numel() * t.element_size() for t in tensors.values())
    return Source(type(model).__name__, tuple(kinds) or ("dense",), tuple(matrices), others)


def source_of_path(path: Path) -> Source:
    """Find the weight matrices of a file or folder.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged or of an unknown kind.
    """
    matrix = matrix_in(path)
    if matrix is not None:
        return _of_matrix(path, matrix)
    return _of_checkpoint(read_checkpoint(path))


def matrix_in(path: Path) -> BSR | None:
    """Read a file if it holds one matrix and no model.

    Returns:
        The matrix; None if it is a folder or a checkpoint.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a file of a suffix that only matrices have is damaged.
    """
    name = path.name.lower()
    if name.endswith(MATRICES):
        return load(path)
    if not path.is_file() or not name.endswith((".pt", ".safetensors")):
        return None
    try:
        return load(path)
    except ValueError:
        return None  # a checkpoint, or damaged: its reader says which


def _of_module(name: str, module: nn.Module) -> tuple[Found, list[Tensor]] | None:
    """A module's matrix, and the tensors that belong to it."""
    if isinstance(module, BlockSparse):
        r, c = module.blocksize
        parts = [module.values, module.crow_indices, module.col_indices]
        size = sum(part.numel() * part.element_size() for part in parts)
        dtype = module.values.dtype

        def live() -> Tensor:
            weight = BSR(torch.ones_like(module.values, dtype=torch.bool), module.pattern)
            return weight.to_dense()

        _check_data(name, module.values)
        return Found(name, f"sparse {r}×{c}", dtype, size, live, (r, c)), parts
    if not isinstance(module, nn.Linear) and not is_conv1d(module):
        return None
    weight, mask, kind = _masked(module)
    if weight is None or weight.ndim != 2:
        return None
    _check_data(name, weight)
    turned = is_conv1d(module)

    def kept() -> Tensor:
        stays = weight.detach() != 0 if mask is None else mask() != 0
        return stays.t() if turned else stays

    size = weight.numel() * weight.element_size()
    parts = [weight]
    if kind == "masked":
        buffer = module._buffers.get("weight_mask")
        if buffer is not None:
            size += buffer.numel() * buffer.element_size()
            parts.append(buffer)
    return Found(name, kind, weight.dtype, size, kept), parts


def _masked(module: nn.Module) -> tuple[Tensor | None, Callable[[], Tensor] | None, str]:
    """Weight of a dense layer, with the mask it may carry."""
    if "weight" in _pruned(module):
        mask = module._buffers["weight_mask"]
        assert mask is not None
        return module._parameters["weight_orig"], lambda: mask, "masked"
    if parametrize.is_parametrized(module, "weight"):
        chain: Any = module.parametrizations["weight"]  # type: ignore[index]
        kept = _joint_mask(chain)
        if kept is not None:
            return chain.original, lambda: kept, "masked"
        weight: Any = module.weight
        return weight.detach(), None, "computed"
    return module._parameters.get("weight"), None, "dense"


def _of_checkpoint(checkpoint: Checkpoint) -> Source:
    matrices: list[Found] = []
    others: list[int] = []
    for name, entry in checkpoint.entries.items():
        if len(entry.shape) != 2 or not entry.dtype.is_floating_point:
            others.append(entry.bytes)
            continue

        def kept(read: Callable[[], Tensor | BSR] = entry.read) -> Tensor:
            return _kept(read())

        kind = entry.format if entry.sparse or entry.format != "dense" else "dense"
        matrices.append(Found(name, kind, entry.dtype, entry.bytes, kept))
    name = checkpoint.path.name or str(checkpoint.path)
    return Source(name, checkpoint.formats, tuple(matrices), tuple(others))


def _of_matrix(path: Path, matrix: BSR) -> Source:
    r, c = matrix.blocksize
    parts = (matrix.values, matrix.pattern.crow_indices, matrix.pattern.col_indices)
    size = sum(part.numel() * part.element_size() for part in parts)
    kind = f"sparse {r}×{c}"
    m, k = matrix.shape
    # An honest file of a few bytes may still be of a size whose mask is beyond any memory.
    most = 2**33
    if m * k > most:
        raise refusal(
            str(path),
            got=f"a matrix of {m}×{k}",
            allowed=f"up to {most:,} elements, of which each is looked at",
            fix="look at a part of it",
        )
    found = Found("", kind, matrix.dtype, size, lambda: _kept(matrix), None if r == 1 else (r, c))
    return Source(path.name, (kind,), (found,), ())


def _kept(weight: Tensor | BSR) -> Tensor:
    if isinstance(weight, BSR):
        return BSR(weight.values.detach() != 0, weight.pattern).to_dense()
    return weight.detach() != 0


def _check_data(name: str, weight: Tensor) -> None:
    if weight.is_meta:
        raise refusal(
            f"layer {name!r}",
            got="a weight on the meta device, which holds no data",
            allowed="weights with data",
            fix="load the model first",
        )
