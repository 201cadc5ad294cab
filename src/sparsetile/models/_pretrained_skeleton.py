"""A model without weights, with sparse layers where a saved model has them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from sparsetile.matrix import Pattern
from sparsetile.models._pretrained_check import refusal
from sparsetile.models._pretrained_metadata import Layer
from sparsetile.models._pretrained_shards import ShardReader
from sparsetile.nn import Embedding, TiedEmbedding, TiedHead, empty_twin


class _OnMeta(TorchFunctionMode):
    """Weights hold no data: layers make them by `torch.empty`, and buffers by other functions."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.empty and kwargs.get("device") is None:
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


@contextmanager
def no_weights() -> Iterator[None]:
    """Build modules whose weights are on the meta device and are not drawn.

    Examples:
        >>> with no_weights():
        ...     layer = nn.Linear(10**6, 10**6)
        >>> layer.weight.device.type
        'meta'
    """
    with torch.random.fork_rng(devices=[]), _OnMeta():
        yield


def transformers_skeleton(folder: Path, model_class: str | None) -> nn.Module:
    """Build the model that a folder's `config.json` describes, without weights.

    Code that comes with a model is never run: only classes of transformers itself are built.

    Args:
        folder: The folder.
        model_class: Name of the class that was saved; None if it is to be read from the config.

    Raises:
        FileNotFoundError: If there is no config.
        ValueError: If the config is for another class, or for none that transformers has.
    """
    import transformers

    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(
            refusal(
                str(path),
                got="no such file",
                allowed="the config of the model",
                fix="copy the whole folder, or pass the model to load into as model=…",
            )
        )
    try:
        named = json.loads(path.read_text()).get("architectures") or []
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except Exception as fault:  # transformers raises what it meets
        raise ValueError(
            refusal(
                str(path),
                got=f"{type(fault).__name__}: {fault}",
                allowed="a config that transformers can read without code from elsewhere",
                fix="build the model yourself and pass it as model=…",
            )
        ) from fault
    if model_class is None:
        model_class = named[0] if named else None
    elif named and model_class not in named:
        raise ValueError(
            refusal(
                f"{path}, 'architectures'",
                got=repr(named),
                allowed=f"{model_class!r}, the class that was saved",
                fix="put back the config that was saved with the weights",
            )
        )
    made = getattr(transformers, model_class or "", None)
    if not (isinstance(made, type) and issubclass(made, transformers.PreTrainedModel)):
        raise ValueError(
            refusal(
                f"{path}, class of the model",
                got=repr(model_class),
                allowed="a model class of transformers itself",
                fix="build the model yourself and pass it as model=…",
            )
        )
    if made.config_class is not None and not isinstance(config, made.config_class):
        raise ValueError(
            refusal(
                f"{path}, 'model_type'",
                got=repr(config.model_type),
                allowed=f"the config of a {model_class}",
                fix="put back the config that was saved with the weights",
            )
        )
    # where transformers 5 has it, and where transformers 4 had it
    home = "initialization" if find_spec("transformers.initialization") else "modeling_utils"
    undrawn: Any = import_module(f"transformers.{home}").no_init_weights
    with no_weights(), undrawn():
        model: Any = made(config)
        model.tie_weights()  # it counts as initialisation, which was left out
    built: nn.Module = model
    return built


def put_sparse_layers(
    skeleton: nn.Module, layers: Mapping[str, Layer], reader: ShardReader
) -> nn.Module:
    """Replace modules of a model by sparse ones without data, of the patterns in the files.

    Args:
        skeleton: The model; changed in place, but for itself.
        layers: What to put where.
        reader: The files.

    Returns:
        The model, or what replaces it.

    Raises:
        ValueError: If the model has no such place, or a pattern is not valid or does not fit.
    """
    places: dict[str, dict[str, Pattern]] = {}
    for name, layer in layers.items():
        if layer.table is not None:
            continue
        pattern = _pattern(name, layer, reader)
        parent, _, leaf = name.rpartition(".")
        if isinstance(_module(skeleton, parent), nn.LSTM | nn.GRU):
            places.setdefault(parent, {})[leaf] = pattern
        else:
            places[name] = {"": pattern}
    made: dict[nn.Module, nn.Module] = {}
    for name, patterns in places.items():
        old = _module(skeleton, name)
        if old is None:
            raise _misfit(name, "no module of that name")
        try:
            made[old] = empty_twin(old, patterns)
        except (TypeError, ValueError) as fault:
            raise _misfit(name, str(fault)) from fault
    for name, layer in layers.items():
        if layer.table is None:
            continue
        old, table = _module(skeleton, name), _module(skeleton, layer.table)
        owner = made.get(table) if table is not None else None
        if old is None or not isinstance(owner, Embedding):
            raise _misfit(name, f"no place tied to {layer.table!r}")
        if old in made:
            continue  # one module under both names
        if layer.kind == "tied_head":
            made[old] = TiedHead(owner, layer.bias)
        else:
            made[old] = TiedEmbedding(owner, getattr(old, "padding_idx", None))
    for holder in list(skeleton.modules()):
        for leaf, child in holder._modules.items():
            if child is not None and child in made:
                holder._modules[leaf] = made[child]
    return made.get(skeleton, skeleton)


def _module(model: nn.Module, name: str) -> nn.Module | None:
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None


def _misfit(name: str, got: str) -> ValueError:
    return ValueError(
        refusal(
            f"layer {name!r} of the saved model",
            got=f"a model whose place for it does not fit: {got}",
            allowed="the config, or the model=…, of the saved model",
            fix="load with the config that was saved, or build the model as it was",
        )
    )


def _pattern(name: str, layer: Layer, reader: ShardReader) -> Pattern:
    """Read and check the pattern of a layer, and the shape of its values."""
    before = f"{name}." if name else ""
    for part in ("crow_indices", "col_indices", "values"):
        if before + part not in reader:
            raise ValueError(
                refusal(
                    f"{before}{part}",
                    got="no such key in the files",
                    allowed="values, crow_indices and col_indices for each sparse layer",
                    fix="the files are not those of this model: save it again",
                )
            )
    crow, col, values = (before + part for part in ("crow_indices", "col_indices", "values"))
    where = f"{reader.file_of(crow).name}, {crow} and {col}"
    try:
        pattern = Pattern(layer.shape, layer.blocksize, reader.tensor(crow), reader.tensor(col))
    except (TypeError, ValueError) as fault:
        raise ValueError(
            refusal(
                where,
                got=f"a pattern that is not valid ({fault})",
                allowed="ascending columns in each row",
                fix="the file is damaged: copy or save it again",
            )
        ) from fault
    wanted = (layer.nnzb, *layer.blocksize)
    if pattern.nnzb != layer.nnzb or reader.shape(values) != wanted:
        raise ValueError(
            refusal(
                f"{where}, {values}",
                got=f"{pattern.nnzb} columns, values of shape {list(reader.shape(values))}",
                allowed=f"{layer.nnzb} columns, values of shape {list(wanted)}",
                fix="the file is damaged, or of another model: copy or save it again",
            )
        )
    return pattern
