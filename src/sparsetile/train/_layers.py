"""Which layers of a model a trainer looks after."""

import torch
from torch import nn

from sparsetile.nn import BlockSparse


def trained_layers(
    model: nn.Module, optimizer: torch.optim.Optimizer | None = None
) -> dict[str, BlockSparse]:
    """Find the trained sparse layers of a model, by the names they have without wrappers.

    Args:
        model: Any model, compiled or wrapped too.
        optimizer: Must hold the values of all of them, where given.

    Returns:
        The layers by name.

    Raises:
        TypeError: If the arguments are no module and optimizer.
        ValueError: If there is no such layer, one holds no data, two share values, or the optimizer
            does not hold those of one.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}")
    layers: dict[str, BlockSparse] = {}
    owner: dict[int, str] = {}
    for long_name, layer in model.named_modules():
        if not isinstance(layer, BlockSparse) or not layer.values.requires_grad:
            continue
        name = _bare(long_name)
        if layer.values.is_meta:
            raise ValueError(f"layer {name!r} is on the meta device; load its values first")
        if id(layer.values) in owner:
            raise ValueError(
                f"layers {owner[id(layer.values)]!r} and {name!r} share their values but not their "
                "indices, so blocks cannot move; use one module in both places"
            )
        if optimizer is not None and not _holds(optimizer, layer):
            raise ValueError(
                f"optimizer does not hold the values of layer {name!r}; build the optimizer after "
                "sparsify_, freeze the layer, or attach to the part of the model it trains"
            )
        if name in layers:  # only where a model has both `x` and `module.x`
            name = long_name
        owner[id(layer.values)] = name
        layers[name] = layer
    if not layers:
        raise ValueError(
            "model has no trained sparse layer; call sparsify_(model, density=…, blocksize=…) first"
        )
    return layers


def same_layers(copy: nn.Module, layers: dict[str, BlockSparse]) -> dict[str, BlockSparse]:
    """Find the layers of a copy of a model that go with those of the model.

    Args:
        copy: A copy of the model, averaged weights for example.
        layers: The layers of the model, by name.

    Returns:
        The layers of the copy, by the same names.

    Raises:
        TypeError: If the copy is no module.
        ValueError: If a layer is missing, is the model's own, or has another pattern.
    """
    if not isinstance(copy, nn.Module):
        raise TypeError(f"copy must be a torch.nn.Module, got {type(copy).__name__}")
    found = {_bare(n): m for n, m in copy.named_modules() if isinstance(m, BlockSparse)}
    for name, layer in layers.items():
        twin = found.get(name)
        if twin is None:
            raise ValueError(
                f"copy has no sparse layer {name!r}; give a copy of the whole model, such as "
                "copy.deepcopy(model) or torch.optim.swa_utils.AveragedModel(model)"
            )
        if twin.values is layer.values:
            raise ValueError(f"layer {name!r} of the copy is the model's own; give a copy of it")
        check_same_pattern(name, twin, layer)
    return {name: found[name] for name in layers}


def check_same_pattern(name: str, twin: BlockSparse, layer: BlockSparse) -> None:
    """Refuse a copy of a layer whose blocks lie elsewhere.

    Raises:
        ValueError: If the patterns differ.
    """
    if twin.pattern != layer.pattern:
        raise ValueError(
            f"layer {name!r} of the copy has other blocks than the model's; make the copy, or load "
            "its state, when both have one pattern, and let the trainer follow it from then on"
        )


def _holds(optimizer: torch.optim.Optimizer, layer: BlockSparse) -> bool:
    return any(p is layer.values for group in optimizer.param_groups for p in group["params"])


def _bare(name: str) -> str:
    """A module's name without what torch.compile, DistributedDataParallel and EMA put before it."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod").removeprefix("module.")
