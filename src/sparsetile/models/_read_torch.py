"""Tensors of what `torch.save` wrote, unpickled with `weights_only` and never otherwise."""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparsetile.matrix import BSR, Pattern
from sparsetile.models._read_stored import Stored, check_rows, key_of
from sparsetile.models._say import refusal

# Under which names training scripts keep the model beside optimizer and epoch.
_MODELS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "params")
_MASKS = ("mask", "masks", "mask_dict", "pruning_masks")
_AGAIN = "the file is damaged or cut off: get it again"


def stored_torch(path: Path) -> Stored:
    """Load a file with `weights_only=True`, its tensors mapped into memory and not yet read.

    Masks that stand beside the model, as lottery-ticket scripts and the sparsifiers of
    `torch.ao.pruning` save them, are joined with the weights they belong to.

    Args:
        path: The file.

    Returns:
        Its tensors.

    Raises:
        ValueError: If it is damaged, holds no tensors, or needs classes that are not torch's.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.pt")
        ...     torch.save({"epoch": 3, "state_dict": {"w": torch.zeros(2, 3)}}, path)
        ...     stored_torch(path).shapes
        {'w': (2, 3)}
    """
    top = _loaded(path)
    if isinstance(top, Tensor | BSR):
        top = {"weight": top}
    if not isinstance(top, Mapping):
        raise refusal(
            path.name,
            got=f"a {type(top).__name__}",
            allowed="a dictionary from names to tensors",
            fix="save model.state_dict() instead",
        )
    found: dict[str, Any] = {k: v for k, v in _model_of(top).items() if isinstance(k, str)}
    found = {name: value for name, value in found.items() if isinstance(value, Tensor | BSR)}
    if not found:
        raise refusal(
            path.name,
            got=f"no tensors under its keys {', '.join(map(repr, list(top)[:8]))}",
            allowed="a state dict, alone or under " + ", ".join(map(repr, _MODELS)),
            fix="save model.state_dict() instead",
        )
    _join_masks(found, top)
    special = {}
    for name, value in found.items():
        if label := _label(value):
            special[name] = label
            check_rows(path, name, tuple(value.shape))
        elif isinstance(value, Tensor):
            _check_size(path, name, value)
    shapes = {name: tuple(value.shape) for name, value in found.items()}
    dtypes = {name: value.dtype for name, value in found.items()}

    def read(name: str) -> Tensor | BSR:
        return _plain(path, name, found[name])

    return Stored(path, "torch", shapes, dtypes, read, special=special)


def _loaded(path: Path) -> Any:
    """Unpickle nothing but tensors and plain containers."""
    zipped = zipfile.is_zipfile(path)
    if zipped:
        _check_archive(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old files, which is said below if it matters
            return torch.load(
                path, map_location="cpu", weights_only=True, mmap=True if zipped else None
            )
    except pickle.UnpicklingError as error:
        text = str(error).rpartition("WeightsUnpickler error:")[2].strip()
        if "global" not in text.lower():
            got = text.splitlines()[0][:200] if text else "what torch cannot unpickle"
            raise refusal(path.name, got=got, allowed="a torch file", fix=_AGAIN) from None
        raise refusal(
            path.name,
            got=f"a pickle that needs {_foreign(text)}",
            allowed="tensors in dictionaries; other classes could run any code",
            fix=_advice(text),
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, TypeError, IndexError) as error:
        got = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise refusal(path.name, got=got, allowed="a torch file", fix=_AGAIN) from None
    except (AttributeError, MemoryError, AssertionError, OverflowError) as error:
        got = f"what torch cannot follow ({type(error).__name__})"
        raise refusal(path.name, got=got, allowed="a torch file", fix=_AGAIN) from None


def _check_archive(path: Path) -> None:
    """Refuse compressed records: torch writes none, and a small one may unpack to anything."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [item for item in archive.infolist() if item.compress_type]
            claimed = sum(item.file_size for item in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise refusal(path.name, got=f"{error}", allowed="a torch file", fix=_AGAIN) from None
    if packed or claimed > path.stat().st_size:
        raise refusal(
            path.name,
            got=f"a compressed archive of {claimed} bytes",
            allowed="what torch.save writes, which is not compressed",
            fix="unpack it, or get the file again from a source you trust",
        )


def _foreign(text: str) -> str:
    """Name the class a pickle asks for, out of torch's message."""
    words = text.replace("`", " ").replace(",", " ").split()
    dotted = [word.strip("[]().'\"") for word in words]
    marks = [i for i, word in enumerate(dotted) if word.upper() == "GLOBAL"]
    for i in marks:
        if i + 1 < len(dotted) and "." in dotted[i + 1]:
            return dotted[i + 1]
    return "classes that are not torch's"


def _advice(text: str) -> str:
    if "torchao" in text:
        return (
            "it holds torchao tensors: import torchao, call torch.serialization.add_safe_globals("
            "[torchao.sparsity.blocksparse.BlockSparseTensor]), and read it again"
        )
    if "defaultdict" in text:
        return (
            "a sparsifier's state_dict() holds one: save {name: kept['mask'] for name, kept in "
            "sparsifier.state.items()} under 'masks' beside the model"
        )
    if "stk" in text:
        return (
            "it holds STK matrices: where stk is installed and you trust the file, save their "
            "data, row_indices, column_indices and offsets as plain tensors"
        )
    if "pytorch_block_sparse" in text or "nn_pruning" in text:
        return "load it in its own environment if you trust it, and save model.state_dict()"
    return (
        "a whole model was pickled: load it where its classes are, if you trust it, and save "
        "model.state_dict(); or allow the class with torch.serialization.add_safe_globals"
    )


def _model_of(top: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The state dict in what a training script saved."""
    if any(isinstance(value, Tensor | BSR) for value in top.values()):
        return top
    for name in _MODELS:
        inner = top.get(name)
        if isinstance(inner, Mapping) and inner:
            return _model_of(inner)
    return {}


def _join_masks(found: dict[str, Any], top: Mapping[Any, Any]) -> None:
    """Put masks that stand beside the model where `torch.nn.utils.prune` keeps them."""
    for name, mask in _masks_beside(top).items():
        leaf = name.rpartition(".")[2]
        at = name[: len(name) - len(leaf)]
        for key in (name, f"{at}parametrizations.{leaf}.original"):
            weight = found.get(key)
            if isinstance(weight, Tensor) and weight.shape == mask.shape:
                del found[key]
                found[f"{name}_orig"], found[f"{name}_mask"] = weight, mask
                break


def _masks_beside(top: Mapping[Any, Any]) -> dict[str, Tensor]:
    masks: dict[str, Tensor] = {}
    for key, value in top.items():
        if not isinstance(value, Mapping):
            continue
        if key in _MASKS:
            masks |= {k: v for k, v in value.items() if isinstance(v, Tensor)}
        state = value.get("state")
        if isinstance(state, Mapping) and key not in _MODELS:  # a sparsifier of torch.ao.pruning
            for name, kept in state.items():
                mask = kept.get("mask") if isinstance(kept, Mapping) else None
                if isinstance(mask, Tensor):
                    masks[str(name)] = mask
    return masks


def _label(value: Tensor | BSR) -> str | None:
    """The format of what is sparse by itself."""
    if isinstance(value, BSR):
        return "sparsetile BSR"
    if hasattr(value, "bsr_values"):
        return "torchao BlockSparseTensor"
    if value.layout != torch.strided:
        return f"torch {str(value.layout).removeprefix('torch.')}"
    return None


def _check_size(path: Path, name: str, value: Tensor) -> None:
    """Refuse a few numbers that pose as many, for each use would fill the memory."""
    if value.numel() * value.element_size() > max(path.stat().st_size, 2**20):
        raise refusal(
            key_of(path, name),
            got=f"a tensor of shape {list(value.shape)} that repeats a few stored numbers",
            allowed="tensors whose numbers are all in the file",
            fix="save it with .contiguous(), or get the file again from a source you trust",
        )


def _plain(path: Path, name: str, value: Tensor | BSR) -> Tensor | BSR:
    """Turn what was loaded into a dense tensor or a BSR."""
    if isinstance(value, BSR) or not _label(value):
        return value.detach()
    try:
        if hasattr(value, "bsr_values"):
            parts: Any = value
            blocks, sizes = parts.bsr_values, (value.shape[0], value.shape[1])
            crow, col = parts.bsr_crow_indices, parts.bsr_col_indices
            block = (blocks.shape[1], blocks.shape[2])
            return BSR(blocks.detach().clone(), Pattern(sizes, block, crow, col))
        return BSR.from_torch(value)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        allowed = "indices of blocks inside the matrix"
        raise refusal(key_of(path, name), got=f"{error}", allowed=allowed, fix=_AGAIN) from None
