"""Puts a checkpoint into a model; what is sparse in the one becomes sparse in the other."""

import os
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from sparsetile.matrix import BSR, Pattern, pattern_of
from sparsetile.models._checkpoint import Checkpoint, Entry, read_checkpoint
from sparsetile.models._fill import SIDES, choose, live_shares
from sparsetile.models._from_dense import with_patterns
from sparsetile.models._from_dense_layers import is_conv1d, is_linear, matrix_of
from sparsetile.models._say import kind_error, refusal
from sparsetile.nn import BlockSparse

_MIN_GAIN = 1.1


class Loaded(NamedTuple):
    """A model with a checkpoint's weights.

    `sparse` names the layers that store blocks now; the other lists are as `load_state_dict` has
    them, and are only ever filled with `strict=False`.

    Examples:
        >>> Loaded(nn.ReLU(), [], [], []).missing_keys
        []
    """

    model: nn.Module
    sparse: list[str]
    missing_keys: list[str]
    unexpected_keys: list[str]


def load_into(
    model: nn.Module,
    checkpoint: Checkpoint | str | os.PathLike[str],
    *,
    blocksize: int | Literal["auto"] | None = None,
    strict: bool = True,
) -> Loaded:
    """Load a checkpoint of any known kind into a model, in place.

    Linear layers whose weights are sparse in the checkpoint become sparse layers with exactly
    that pattern; all other weights are loaded dense. Nothing changes if it is refused. Names may
    differ by the model's `base_model_prefix`, as Hugging Face's do. Weights that are shared need
    to be there once.

    Args:
        model: A torch or Hugging Face model of the checkpoint's architecture.
        checkpoint: What `read_checkpoint` gave, or its path.
        blocksize: None keeps the checkpoint's blocks. A number stores sparse weights in blocks of
            this side, with zeros in them where need be. `"auto"` chooses, as `from_dense` does.
            With either, dense weights full of zeros become sparse too, where that pays.
        strict: Refuse names that are missing or unexpected.

    Returns:
        The model (another one only if it is itself a linear layer), and lists of names.

    Raises:
        RuntimeError: If names are missing or unexpected and `strict`, or shapes differ, as
            `load_state_dict` does.
        TypeError: If an argument is of the wrong type.
        ValueError: If a weight is damaged, or an argument out of range.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from pathlib import Path
        >>> keep = (torch.arange(64) % 4 == 0).float().view(8, 8)
        >>> model = nn.Sequential(nn.Linear(8, 8, bias=False))
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pruned.pt")
        ...     torch.save({"0.weight_orig": torch.ones(8, 8), "0.weight_mask": keep}, path)
        ...     load_into(model, path).model[0]
        Linear(in_features=8, out_features=8, bias=False, blocksize=1, density=0.25, nnzb=16)
    """
    _check(model, blocksize, strict)
    found = checkpoint if isinstance(checkpoint, Checkpoint) else read_checkpoint(checkpoint)
    wanted = {**model.state_dict(keep_vars=True)}
    owners = _owners(model)
    entries, unexpected = _named(model, found, set(wanted) | {f"{n}weight" for n in owners})
    missing = _missing(wanted, entries, owners)
    problems = [f"Missing key(s): {', '.join(missing)}."] if missing and strict else []
    if unexpected and strict:
        problems.append(f"Unexpected key(s): {', '.join(unexpected)}.")
    problems += [
        text for name, entry in entries.items() if (text := _mismatch(model, name, entry, wanted))
    ]
    if problems:
        raise RuntimeError(
            f"Error(s) in loading {found.path.name} into {type(model).__name__}:\n\t"
            + "\n\t".join(problems)
            + _hint(found)
        )
    blocks = {name: _fitted(model, name, entry) for name, entry in entries.items()}
    patterns: dict[str, Pattern] = {}
    with torch.no_grad():
        for name, entry in entries.items():
            layer = name.removesuffix("weight").rstrip(".")
            matrix = blocks[name]
            owner = owners.get(name.removesuffix("weight"))
            if owner is not None:
                _fill_sparse(owner, matrix if matrix is not None else entry.read(), name)
                continue
            target = wanted[name]
            value = matrix.to_dense() if matrix is not None else _turned(model, name, entry)
            module = _linear_of(model, name)
            if matrix is not None and module is not None and is_conv1d(module):
                value = value.t()
            target.copy_(value)
            if module is not None:
                pattern = _pattern(matrix, matrix_of(module), blocksize)
                if pattern is not None:
                    patterns[layer] = pattern.to(target.device)
    shared = _shared(model)
    patterns = {name: p for name, p in patterns.items() if name not in shared}
    made = with_patterns(model, patterns)
    sparse = [name for name, m in made.named_modules() if isinstance(m, BlockSparse)]
    return Loaded(made, sparse, missing, unexpected)


def _check(model: object, blocksize: object, strict: object) -> None:
    if not isinstance(model, nn.Module):
        got = f"a {type(model).__name__}"
        raise kind_error("model", got=got, allowed="a torch.nn.Module", fix="build it first")
    if not isinstance(strict, bool):
        fix = "pass strict=False to accept other names"
        raise kind_error("strict", got=repr(strict), allowed="True or False", fix=fix)
    if blocksize is not None and blocksize != "auto":
        allowed = 'None, "auto", or one of ' + ", ".join(map(str, SIDES))
        if isinstance(blocksize, bool) or not isinstance(blocksize, int):
            fix = "leave it out for the checkpoint's own blocks"
            raise kind_error("blocksize", got=repr(blocksize), allowed=allowed, fix=fix)
        if blocksize not in SIDES:
            fix = "leave it out for the checkpoint's own blocks"
            raise refusal("blocksize", got=blocksize, allowed=allowed, fix=fix)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            fix = "build it on a device that holds data, or call to_empty(device=…) first"
            allowed = "a model whose tensors hold data"
            raise refusal(f"model, {name}", got="the meta device", allowed=allowed, fix=fix)


def _owners(model: nn.Module) -> dict[str, BlockSparse]:
    """Layers that are sparse already, by what the names of their tensors begin with."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, BlockSparse):
            found[f"{name}." if name else ""] = module
    return found


def _named(
    model: nn.Module, found: Checkpoint, known: set[str]
) -> tuple[dict[str, Entry], list[str]]:
    """The checkpoint's weights by the model's names, and the names it has no place for."""
    base = getattr(model, "base_model_prefix", "")
    ways = [""] if not isinstance(base, str) or not base else ["", f"+{base}.", f"-{base}."]

    def renamed(name: str, way: str) -> str:
        if way.startswith("-"):
            return name.removeprefix(way[1:])
        return way[1:] + name if way else name

    best = max(ways, key=lambda way: sum(renamed(name, way) in known for name in found.entries))
    entries, unexpected = {}, []
    ignored = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or []
    for name, entry in found.entries.items():
        for candidate in (renamed(name, best), name):
            if candidate in known:
                entries[candidate] = entry
                break
        else:
            if not any(re.search(pattern, name) for pattern in ignored):
                unexpected.append(name)
    return entries, unexpected


def _missing(
    wanted: Mapping[str, Tensor], entries: Mapping[str, Entry], owners: Mapping[str, BlockSparse]
) -> list[str]:
    """Names the checkpoint lacks, but for weights that are shared with one it has."""
    there = {wanted[name].data_ptr() for name in entries if name in wanted}
    own = {"values", "crow_indices", "col_indices", "forward_blocks"}
    missing = []
    for name, tensor in wanted.items():
        before, dot, leaf = name.rpartition(".")
        if f"{before}{dot}" in owners and leaf in own:
            name = f"{before}{dot}weight"
        shared = tensor.numel() > 0 and tensor.data_ptr() in there
        if name not in entries and name not in missing and not shared:
            missing.append(name)
    return missing


def _mismatch(
    model: nn.Module, name: str, entry: Entry, wanted: Mapping[str, Tensor]
) -> str | None:
    """What is wrong with a weight's shape, as torch says it."""
    target = wanted.get(name)
    shape = _sparse_shape(model, name) if target is None else tuple(target.shape)
    module = _linear_of(model, name)
    flipped = entry.transposed and module is not None and not is_conv1d(module)
    got = entry.shape[::-1] if flipped else entry.shape
    if entry.dtype.is_floating_point and entry.dtype.itemsize < 2:
        return f"{name} is {entry.dtype}, whose scale is not known; save it in a wider type."
    if got == shape or (not entry.exact_shape and _may_be(got, shape)):
        return None
    return (
        f"size mismatch for {name}: copying a weight of shape {list(got)} from the checkpoint, "
        f"the shape in the model is {list(shape)}."
    )


def _may_be(least: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether blocks of which only the least extent is known can be those of a shape."""
    return len(shape) == 2 and len(least) == 2 and least[0] - shape[0] < 2**16


def _sparse_shape(model: nn.Module, name: str) -> tuple[int, ...]:
    module = model.get_submodule(name.removesuffix("weight").rstrip("."))
    assert isinstance(module, BlockSparse)
    return module.shape


def _hint(found: Checkpoint) -> str:
    if found.config.get("pruned_heads"):
        return (
            "\n\tThe checkpoint's config has pruned_heads: its attention heads were removed, so "
            "build the model with smaller attention, or take one with all heads."
        )
    return ""


def _linear_of(model: nn.Module, name: str) -> nn.Module | None:
    """The dense linear layer whose weight a name is."""
    if name != "weight" and not name.endswith(".weight"):
        return None
    module = model.get_submodule(name.removesuffix("weight").rstrip("."))
    return module if is_linear(module) else None


def _turned(model: nn.Module, name: str, entry: Entry) -> Tensor:
    value = entry.read()
    value = value.to_dense() if isinstance(value, BSR) else value
    module = _linear_of(model, name)
    flipped = entry.transposed and module is not None and not is_conv1d(module)
    return value.t() if flipped else value


def _fitted(model: nn.Module, name: str, entry: Entry) -> BSR | None:
    """Read a weight so that damage is found before anything changes; keep it if it is sparse."""
    value = entry.read()
    if not isinstance(value, BSR):
        return None
    module = _linear_of(model, name)
    if not entry.exact_shape:
        owner = model.get_submodule(name.removesuffix("weight").rstrip("."))
        sizes: Any = owner.shape if isinstance(owner, BlockSparse) else owner.weight
        shape = tuple(sizes.shape if isinstance(sizes, Tensor) else sizes)
        p = value.pattern
        try:
            pattern = Pattern((shape[0], shape[1]), p.blocksize, p.crow_indices, p.col_indices)
        except ValueError as error:
            allowed = f"blocks of a weight of shape {list(shape)}"
            fix = "build the model that the checkpoint is of"
            raise refusal(name, got=f"{error}", allowed=allowed, fix=fix) from None
        value = BSR(value.values, pattern)
    if module is None:
        return value
    # As [out, in], from what the file or the module has as [in, out].
    return value.T if is_conv1d(module) or entry.transposed else value


def _pattern(matrix: BSR | None, weight: Tensor, blocksize: int | str | None) -> Pattern | None:
    """Which blocks a layer is to store; None if it stays dense."""
    if blocksize is None:
        return None if matrix is None else matrix.pattern
    mask = weight != 0 if matrix is None else matrix.pattern.to_mask().to(weight.device)
    if isinstance(blocksize, int) and matrix is not None:
        return pattern_of(mask, blocksize)
    shares = live_shares(mask)
    if shares[1] == 1:
        return None
    only = blocksize if isinstance(blocksize, int) else None
    least = _MIN_GAIN if matrix is None else 0.0
    choice = choose(shares, 1 - shares[1], weight.dtype, min_gain=least, only=only)
    return None if choice.blocksize is None else pattern_of(mask, choice.blocksize)


def _fill_sparse(owner: BlockSparse, value: BSR | Tensor, name: str) -> None:
    """Give a layer that is sparse already the blocks of a weight."""
    dense = value.to_dense() if isinstance(value, BSR) else value
    mask = value.pattern.to_mask() if isinstance(value, BSR) else value != 0
    if dense.shape != owner.shape:
        dense, mask = dense.t(), mask.t()
    if isinstance(value, BSR) and value.blocksize == owner.blocksize:
        if value.shape == owner.shape:
            place = owner.values.device
            owner.set_pattern_(value.pattern.to(place), value.values.to(place))
            return
    pattern = pattern_of(mask, owner.blocksize)
    stored = BSR.from_dense(dense, pattern=pattern).to(owner.values.device)
    owner.set_pattern_(stored.pattern, stored.values)


def _shared(model: nn.Module) -> set[str]:
    """Layers whose weight another module has too: these stay dense."""
    holders: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        holders.setdefault(id(weight), []).append(name)
    return {
        name.removesuffix("weight").rstrip(".")
        for names in holders.values()
        if len(names) > 1
        for name in names
        if name == "weight" or name.endswith(".weight")
    }
