"""Models with sparse layers, saved to a folder and loaded from it."""

import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.models._pretrained_check import refusal
from sparsetile.models._pretrained_fill import fill_
from sparsetile.models._pretrained_folder import whole_folder
from sparsetile.models._pretrained_foreign import describe_plain_folder
from sparsetile.models._pretrained_metadata import FILE, Metadata, layers_of, read_metadata
from sparsetile.models._pretrained_shards import Item, ShardReader, write_shards
from sparsetile.models._pretrained_skeleton import put_sparse_layers, transformers_skeleton

STEM = "sparsetile"
#: Bytes of tensors in one file.
MOST_BYTES = 5 * 10**9
_DENSE = ("model*.safetensors*", "pytorch_model*.bin*", "tf_model.h5", "flax_model.msgpack")


def save_pretrained(
    model: nn.Module,
    folder: str | Path,
    *,
    tokenizer: Any = None,
    most_bytes: int = MOST_BYTES,
) -> Path:
    """Save a model with sparse layers: what it stores, and nothing of the dense size.

    The folder holds plain tensors (`sparsetile.safetensors`, or numbered files), `sparsetile.json`,
    which says which layers are sparse, and for a transformers model its `config.json` and
    `generation_config.json`. It is written whole or not at all; other files in it stay.

    transformers alone refuses to load it, rather than start at random weights;
    `to_dense_checkpoint` writes what it can load.

    Args:
        model: Any module; of a compiled one, what was compiled is saved.
        folder: Where to.
        tokenizer: Saved with it: anything with a `save_pretrained` method.
        most_bytes: Bytes of tensors in one file; larger models get several.

    Returns:
        The folder.

    Raises:
        TypeError: If the model is no module, or has state that is no plain tensor.
        ValueError: If weights hold no data, or the folder holds a dense checkpoint.
        OSError: If it cannot be written.

    Examples:
        >>> import tempfile
        >>> from sparsetile import nn as stnn
        >>> model = nn.Sequential(stnn.Linear(64, 64, density=0.25), nn.ReLU())
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = save_pretrained(model, Path(place) / "mine")
        ...     sorted(path.name for path in folder.iterdir())
        ['sparsetile.json', 'sparsetile.safetensors']
    """
    model = checked_model(model)
    if tokenizer is not None and not callable(getattr(tokenizer, "save_pretrained", None)):
        raise TypeError(
            refusal(
                "tokenizer",
                got=type(tokenizer).__name__,
                allowed="an object with a save_pretrained method",
                fix="copy its files into the folder yourself",
            )
        )
    layers, (tensors, tied) = layers_of(model), own_tensors(model)
    items = [Item.of(name, tensor) for name, tensor in tensors.items()]
    _check_most(most_bytes)
    folder = Path(folder)
    refuse_dense(folder)
    with whole_folder(folder, is_ours) as new:
        if tokenizer is not None:
            tokenizer.save_pretrained(str(new))
        name = save_config(model, new)
        files = write_shards(new, STEM, items, most_bytes)
        sizes: dict[str, int | None] = {
            file: (new / file).stat().st_size for file in dict.fromkeys(files.values())
        }
        (new / FILE).write_text(Metadata(name, layers, tied, sizes).to_json())
    return folder


def from_pretrained(
    folder: str | Path,
    *,
    model: nn.Module | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
) -> nn.Module:
    """Load a model that `save_pretrained` saved, without building its dense weights.

    Also loads what transformers' own `save_pretrained` and `Trainer` write of a model with sparse
    layers. Code that comes with a model is never run.

    Args:
        folder: Where the model is.
        model: What to load into: needed where no transformers config says how the model is built.
            A dense module of the saved one's structure, on any device, the meta device included;
            changed in place.
        dtype: Floating type of parameters and buffers; by default each as it was saved.
        device: Where the model goes; the CPU if left out.

    Returns:
        The model, in evaluation mode.

    Raises:
        FileNotFoundError: If the folder, or a file that belongs to it, is not there.
        TypeError: If an argument is of the wrong type.
        ValueError: If a file is damaged, of a newer version, or not of this model; the message
            names the file and the key.

    Examples:
        >>> import tempfile
        >>> from sparsetile import nn as stnn
        >>> model = nn.Sequential(stnn.Linear(64, 64, density=0.25), nn.ReLU())
        >>> with tempfile.TemporaryDirectory() as place:
        ...     folder = save_pretrained(model, Path(place) / "mine")
        ...     again = from_pretrained(folder, model=nn.Sequential(nn.Linear(64, 64), nn.ReLU()))
        >>> torch.equal(again[0].values, model[0].values)
        True
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            refusal(
                str(folder),
                got="no such folder",
                allowed="a local folder that save_pretrained wrote",
                fix="download or save the model first",
            )
        )
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(
            refusal(
                "dtype",
                got=repr(dtype),
                allowed="a floating torch.dtype or None",
                fix="pass for instance torch.bfloat16",
            )
        )
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(
            refusal(
                "model",
                got=type(model).__name__,
                allowed="a torch.nn.Module or None",
                fix="pass the module to load into",
            )
        )
    where = _checked_device(device)
    known = read_metadata(folder / FILE) if (folder / FILE).is_file() else None
    if known is None:
        skeleton = model or transformers_skeleton(folder, None)
        known, reader = describe_plain_folder(folder, skeleton)
    else:
        reader = ShardReader(folder, known.files)
        if model is None and known.model_class is None:
            raise ValueError(
                refusal(
                    str(folder),
                    got="a model that is not of transformers",
                    allowed="one whose config says how it is built",
                    fix="build the module and pass it as model=…",
                )
            )
        skeleton = model or transformers_skeleton(folder, known.model_class)
    filled = put_sparse_layers(skeleton, known.layers, reader)
    fill_(filled, known, reader, dtype=dtype, device=where)
    _load_generation_config(filled, folder)
    return filled.eval()


def checked_model(model: Any) -> nn.Module:
    """Refuse what is no module; of a compiled one, take what was compiled."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            refusal(
                "model",
                got=type(model).__name__,
                allowed="a torch.nn.Module",
                fix="pass the module itself",
            )
        )
    inner = model._modules.get("_orig_mod")
    return model if inner is None else inner


def own_tensors(model: nn.Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a model's state, each once, and the other names that some have."""
    tensors: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first: dict[int, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if not isinstance(tensor, Tensor):
            raise TypeError(
                refusal(
                    f"save {name!r}",
                    got=type(tensor).__name__,
                    allowed="state of plain tensors",
                    fix="save the model with torch.save",
                )
            )
        if id(tensor) in first:
            tied[name] = first[id(tensor)]
        else:
            first[id(tensor)] = name
            tensors[name] = tensor
    return tensors, tied


def save_config(model: nn.Module, folder: Path) -> str | None:
    """Write the configs of a transformers model; return the name of its class, if it is one."""
    library = sys.modules.get("transformers")
    if library is None or not isinstance(model, library.PreTrainedModel):
        return None
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    if model.can_generate() and getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(folder)
    return type(model).__name__


def refuse_dense(folder: Path) -> None:
    """Refuse a folder where transformers would find other weights than those to be saved."""
    for name in _DENSE:
        if found := next(folder.glob(name), None) if folder.is_dir() else None:
            raise ValueError(
                refusal(
                    str(folder),
                    got=f"a folder with another checkpoint, {found.name}",
                    allowed="a new folder, or one that save_pretrained wrote",
                    fix="choose another folder, or delete that file",
                )
            )


def is_ours(path: Path) -> bool:
    """Whether a file of a folder belongs to a model saved there before."""
    return path.name == FILE or (path.name.startswith(STEM) and path.suffix == ".safetensors")


def _check_most(most: Any) -> None:
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ValueError(
            refusal(
                "most_bytes",
                got=repr(most),
                allowed="an integer of at least 1",
                fix="leave it out for files of 5 GB",
            )
        )


def _checked_device(device: Any) -> torch.device:
    try:
        where = torch.device("cpu" if device is None else device)
        if where.type == "meta":
            raise ValueError("the meta device holds no data")
        return torch.empty(0, device=where).device
    except (RuntimeError, AssertionError, ImportError, TypeError, ValueError) as fault:
        raise ValueError(
            refusal(
                "device",
                got=f"{device!r} ({str(fault).splitlines()[0]})",
                allowed="a device of this machine",
                fix='pass one such as "cpu"',
            )
        ) from fault


def _load_generation_config(model: nn.Module, folder: Path) -> None:
    library = sys.modules.get("transformers")
    if library is None or not isinstance(model, library.PreTrainedModel):
        return
    if (folder / "generation_config.json").is_file() and model.can_generate():
        model.generation_config = library.GenerationConfig.from_pretrained(folder)
