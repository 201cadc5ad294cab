"""Tensors read from files and put into a model, one module at a time, each checked by name."""

import torch
from torch import nn

from sparsetile.models._pretrained_check import refusal
from sparsetile.models._pretrained_metadata import Metadata
from sparsetile.models._pretrained_shards import ShardReader


def fill_(
    model: nn.Module,
    known: Metadata,
    reader: ShardReader,
    *,
    dtype: torch.dtype | None,
    device: torch.device,
) -> None:
    """Give every tensor of a model's state what the files hold for it.

    Args:
        model: A model of the saved one's structure; its weights may be on the meta device.
        known: What is known of the saved model.
        reader: Its files.
        dtype: Floating type to convert to; None for none.
        device: Where all goes.

    Raises:
        ValueError: If tensors are missing, left over or of another shape.
    """
    _check_names(model, known, reader)
    for name, module in model.named_modules():
        before = f"{name}." if name else ""
        own = {}
        for leaf in [*module._parameters, *module._buffers, *_late_buffers(before, reader)]:
            if before + leaf in reader:
                tensor = reader.tensor(before + leaf).to(device)
                if dtype is not None and tensor.is_floating_point():
                    tensor = tensor.to(dtype)
                own[leaf] = tensor
        if not own:
            continue
        try:
            module.load_state_dict(own, strict=False, assign=True)
        except RuntimeError as fault:
            raise ValueError(
                refusal(
                    f"{before}{next(iter(own))}",
                    got=" ".join(str(fault).split()),
                    allowed="tensors that fit the model",
                    fix="load with the config, or into the model, that was saved",
                )
            ) from fault
    _tie(model, known.tied)
    # What no file holds, such as tables of positions, was made with the skeleton.
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_meta:
            raise ValueError(
                refusal(
                    repr(name),
                    got="a tensor on the meta device that no file holds",
                    allowed="a model whose other buffers hold data",
                    fix="build the model on the CPU and pass it as model=…",
                )
            )
    model.to(device)


def _late_buffers(before: str, reader: ShardReader) -> list[str]:
    """A forward set, for which a fresh layer has an empty buffer, is named by the file alone."""
    return [] if before + "forward_blocks" not in reader else ["forward_blocks"]


def _check_names(model: nn.Module, known: Metadata, reader: ShardReader) -> None:
    wanted = dict(model.state_dict(keep_vars=True))
    stored = {alias: name for alias, name in known.tied.items() if alias in wanted}
    missing = [held for name in wanted if (held := stored.get(name, name)) not in reader]
    if missing:
        raise ValueError(
            refusal(
                f"{missing[0]!r}" + (f" and {len(missing) - 1} more" if missing[1:] else ""),
                got="no such key in the files",
                allowed="a tensor for every parameter and buffer of the model",
                fix="load with the config, or into the model, that was saved",
            )
        )
    extra = [name for name in reader if name not in wanted and not name.endswith("forward_blocks")]
    if extra:
        raise ValueError(
            refusal(
                f"{extra[0]!r}" + (f" and {len(extra) - 1} more" if extra[1:] else ""),
                got="a key in the files that the model has no place for",
                allowed="tensors of this model alone",
                fix="load with the config, or into the model, that was saved",
            )
        )
    for name, tensor in wanted.items():
        found = reader.shape(stored.get(name, name))
        if found != tuple(tensor.shape):
            raise ValueError(
                refusal(
                    f"{name!r} in {reader.file_of(stored.get(name, name)).name}",
                    got=f"shape {list(found)}",
                    allowed=f"shape {list(tensor.shape)}, as the model has it",
                    fix="load with the config, or into the model, that was saved",
                )
            )


def _tie(model: nn.Module, tied: dict[str, str]) -> None:
    """Make tensors one object again that were one when they were saved."""
    for alias, name in tied.items():
        (to, leaf), (of, source) = ((n.rpartition(".")[::2]) for n in (alias, name))
        try:
            target, owner = model.get_submodule(to), model.get_submodule(of)
        except AttributeError:
            target = owner = model
            leaf = source = "?"
        if source in owner._parameters and leaf in target._parameters:
            target._parameters[leaf] = owner._parameters[source]
        elif source in owner._buffers and leaf in target._buffers:
            target._buffers[leaf] = owner._buffers[source]
        else:
            raise ValueError(
                refusal(
                    f"'tied', {alias!r}",
                    got=f"{name!r}, which is not in the model",
                    allowed="names of two tensors of the model",
                    fix="load with the config, or into the model, that was saved",
                )
            )
