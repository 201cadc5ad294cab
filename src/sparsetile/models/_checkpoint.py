"""A checkpoint of any known kind: weights by name, each dense or block-sparse."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparsetile.matrix import BSR
from sparsetile.models._read_folder import read_json, stored_file, stored_folder
from sparsetile.models._read_layouts import LAYOUTS, Layout
from sparsetile.models._read_parts import Parts
from sparsetile.models._read_refuse import refuse_config, refuse_incomplete, refuse_unfinished
from sparsetile.models._read_stored import Stored
from sparsetile.models._say import kind_error


@dataclass(frozen=True)
class Entry:
    """One weight of a checkpoint, not read yet.

    Attributes:
        name: As a model calls it.
        shape: Its shape.
        dtype: Its type.
        format: How the file spells it.
        bytes: Bytes it takes in the file.
        read: Reads it: a dense tensor, or a `BSR`.
        sparse: Whether the file says which values are kept.
        exact_shape: Whether the file says the shape, or only how many blocks there are.
        transposed: Whether it is `[in, out]`, as ONNX's MatMul has it.

    Examples:
        >>> entry = Entry("w", (2, 2), torch.float32, "dense", 16, lambda: torch.eye(2))
        >>> entry.read().shape
        torch.Size([2, 2])
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    format: str
    bytes: int
    read: Callable[[], Tensor | BSR] = field(repr=False)
    sparse: bool = False
    exact_shape: bool = True
    transposed: bool = False


@dataclass(frozen=True)
class Checkpoint(Mapping[str, Any]):  # not of tensors: a checker of types would read one
    """Weights by name; each is read from the file when it is asked for, and not kept.

    A mapping from names to dense tensors and, where the file says which values are kept, `BSR`
    matrices. `print` shows a table.

    Attributes:
        path: The file or folder.
        formats: What was recognised in it.
        entries: What is known of each weight without reading it.
        config: The model's `config.json`, if the folder has one.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pruned.pt")
        ...     keep = (torch.arange(64) % 4 == 0).float().view(8, 8)
        ...     torch.save({"up.weight_orig": torch.ones(8, 8), "up.weight_mask": keep}, path)
        ...     print(read_checkpoint(path))
        pruned.pt: torch.nn.utils.prune
        weight     shape  dtype    format                bytes
        up.weight    8×8  float32  torch.nn.utils.prune    512
    """

    path: Path
    formats: tuple[str, ...]
    entries: Mapping[str, Entry]
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __getitem__(self, name: str) -> Tensor | BSR:
        return self.entries[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __str__(self) -> str:
        rows = [("weight", "shape", "dtype", "format", "bytes")]
        for entry in self.entries.values():
            shape = "×".join(map(str, entry.shape)) + ("" if entry.exact_shape else " or more")
            dtype = str(entry.dtype).removeprefix("torch.")
            rows.append((entry.name, shape or "()", dtype, entry.format, f"{entry.bytes:,}"))
        wide = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            "  ".join(
                cell.rjust(wide[i]) if i in (1, 4) else cell.ljust(wide[i])
                for i, cell in enumerate(row)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([f"{self.path.name}: {', '.join(self.formats)}", *lines])


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Find out what a checkpoint holds, whoever wrote it.

    Known are dense weights (with zeros in them or not), `torch.nn.utils.prune`,
    `torch.ao.pruning` (masks in the file, or a sparsifier's state beside the model), mask
    buffers and mask dictionaries, `pytorch_block_sparse`, nn_pruning's plain models,
    compressed-tensors `sparse-bitmask` and `sparse-24-bitmask`, torchao's `BlockSparseTensor`,
    STK matrices, torch's sparse tensors, ONNX initialisers dense and sparse, and our own layers.
    Pickles are only unpickled with `weights_only`. Names lose `module.` and `_orig_mod.`.

    Args:
        path: A file `.safetensors`, `.bin`, `.pt`, `.pth` or `.onnx`, or a folder as Hugging
            Face has it, also in shards with an index.

    Returns:
        The weights by name, to be read one by one.

    Raises:
        FileNotFoundError: If there is no such file, or a shard is missing.
        ImportError: If an ONNX file is read without the package `onnx`.
        TypeError: If the path is none.
        ValueError: If the file is damaged, made to harm, or of a kind whose weights cannot be
            had from it alone; it names the key and says what to do.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     torch.save({"up.weight": torch.eye(4)}, Path(folder, "model.pt"))
        ...     checkpoint = read_checkpoint(Path(folder, "model.pt"))
        >>> checkpoint.formats, checkpoint["up.weight"].shape
        (('dense',), torch.Size([4, 4]))
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        got, fix = f"a {type(path).__name__}", 'pass a name, as in "model.safetensors"'
        raise kind_error("path", got=got, allowed="a string or a Path", fix=fix)
    source = Path(path)
    if not source.exists():
        fix = "check the path, and from which folder it starts"
        text = f"{source}: got no such file; allowed: a file or a folder; {fix}"
        raise FileNotFoundError(text)
    beside = (source if source.is_dir() else source.parent) / "config.json"
    config = read_json(beside) if source.is_dir() and beside.is_file() else {}
    refuse_config(beside.name, config)
    stored = _renamed(stored_folder(source) if source.is_dir() else stored_file(source))
    if source.is_dir() and (own := source / "sparsetile.json").is_file():
        stored = replace(stored, metadata={**stored.metadata, **_own_shapes(read_json(own))})
    entries = _recognised(stored)
    formats = dict.fromkeys(entry.format for entry in entries.values() if entry.format != "dense")
    return Checkpoint(source, tuple(formats) or ("dense",), entries, config)


def _own_shapes(noted: Mapping[str, Any]) -> dict[str, str]:
    """What `save_pretrained` notes of its layers, as other files note a shape."""
    layers = noted.get("layers")
    found = layers.items() if isinstance(layers, Mapping) else ()
    return {name: json.dumps(layer) for name, layer in found if isinstance(layer, Mapping)}


def _recognised(stored: Stored) -> dict[str, Entry]:
    """Join the tensors that together are one weight; the others are weights by themselves."""
    taken: set[str] = set()
    joined: dict[str, tuple[Layout, Parts]] = {}  # by the name of the first part
    names = stored.shapes.keys()
    for layout in LAYOUTS:
        first, *others = layout.parts
        for name in names:
            base = name[: -len(first)]
            parts = [base + other for other in others]
            if not name.endswith(first) or taken & {name, *parts} or not base:
                continue
            if all(part in names for part in parts) and _fits(layout, Parts(stored, base)):
                also = [base + other for other in layout.also]
                taken |= {name, *parts, *(other for other in also if other in names)}
                joined[name] = layout, Parts(stored, base)
    left = [name for name in names if name not in taken]
    refuse_unfinished(stored, left)
    refuse_incomplete(stored, left)
    entries: dict[str, Entry] = {}
    for name in names:
        if name in joined:
            entry = _joined(*joined[name])
            entries[entry.name] = entry
        elif name not in taken:
            entries[name] = _alone(stored, name)
    return entries


def _fits(layout: Layout, parts: Parts) -> bool:
    """Whether tensors of these names can be a weight of this layout, rather than chance."""
    if layout.name == "mask buffers":
        return parts.shape(layout.parts[0]) == parts.shape(layout.parts[1])
    return True


def _joined(layout: Layout, parts: Parts) -> Entry:
    stored = parts.stored
    used = [parts.base + end for end in (*layout.parts, *layout.also)]
    return Entry(
        name=parts.base + layout.result,
        shape=layout.shape(parts),
        dtype=parts.dtype(layout.values),
        format=layout.name,
        bytes=sum(stored.bytes(name) for name in used if name in stored.shapes),
        read=lambda: layout.convert(parts),
        sparse=len(layout.shape(parts)) == 2,
        exact_shape=layout.exact(parts),
    )


def _alone(stored: Stored, name: str) -> Entry:
    shape, dtype = stored.shapes[name], stored.dtypes[name]
    label = stored.special.get(name, "dense")
    return Entry(
        name=name,
        shape=shape,
        dtype=dtype,
        format=label,
        bytes=prod(shape) * dtype.itemsize if label == "dense" else _sparse_bytes(stored, name),
        read=lambda: stored.read(name),
        sparse=label != "dense",
        transposed=name in stored.transposed,
    )


def _sparse_bytes(stored: Stored, name: str) -> int:
    found = stored.read(name)
    if not isinstance(found, BSR):
        return found.numel() * found.element_size()
    index = found.pattern.crow_indices.numel() + found.pattern.col_indices.numel()
    return found.values.numel() * found.values.element_size() + 4 * index


def _renamed(stored: Stored) -> Stored:
    """Drop what wrappers put before names: `module.` of DataParallel, `_orig_mod.` of compile."""
    whole = all(name.startswith(("module.", "_orig_mod.")) for name in stored.shapes)

    def plain(name: str) -> str:
        name = name.replace("_orig_mod.", "")
        return name.removeprefix("module.") if whole else name

    names = {plain(name): name for name in stored.shapes}
    if len(names) < len(stored.shapes) or all(new == old for new, old in names.items()):
        return stored
    return Stored(
        stored.path,
        stored.kind,
        {new: stored.shapes[old] for new, old in names.items()},
        {new: stored.dtypes[old] for new, old in names.items()},
        lambda name: stored.read(names[name]),
        stored.metadata,
        {new: stored.special[old] for new, old in names.items() if old in stored.special},
        frozenset(new for new, old in names.items() if old in stored.transposed),
    )
