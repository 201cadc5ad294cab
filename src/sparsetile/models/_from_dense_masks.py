"""Modules that still carry pruning masks, made plain in a copy of the model."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize


def unmasked(model: nn.Module) -> tuple[nn.Module, dict[str, Tensor]]:
    """Copy a model and apply the masks it carries.

    Masks of `torch.nn.utils.prune` and mask parametrizations such as those of `torch.ao.pruning`
    are understood; other parametrizations stay.

    Args:
        model: Any module; not changed.

    Returns:
        The copy, and the masks by the names of the weights, true where a value is kept.

    Examples:
        >>> from torch.nn.utils import prune
        >>> layer = prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.5)
        >>> plain, masks = unmasked(nn.Sequential(layer))
        >>> list(plain.state_dict()), int(masks["0.weight"].sum())
        (['0.bias', '0.weight'], 8)
    """
    from torch.nn.utils import prune

    memo: dict[int, Any] = {}
    for module in model.modules():
        for name in _pruned(module):
            # What the last forward pass computed: deepcopy refuses it, and it is made anew.
            if isinstance(shown := module.__dict__.get(name), Tensor):
                memo[id(shown)] = shown.detach().clone()
    twin = copy.deepcopy(model, memo)
    masks: dict[str, Tensor] = {}
    for at, module in twin.named_modules():
        before = f"{at}." if at else ""
        for name in _pruned(module):
            masks[before + name] = getattr(module, f"{name}_mask").detach() != 0
            prune.remove(module, name)
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):
                mask = _joint_mask(module.parametrizations[name])
                if mask is not None:
                    masks[before + name] = mask
                    _make_plain(module, name)
    return twin, masks


def _pruned(module: nn.Module) -> list[str]:
    """Parameters of a module that `torch.nn.utils.prune` masks."""
    from torch.nn.utils import prune

    names = [name.removesuffix("_orig") for name in module._parameters if name.endswith("_orig")]
    hooked = {
        hook._tensor_name
        for hook in module._forward_pre_hooks.values()
        if isinstance(hook, prune.BasePruningMethod)
    }
    return [name for name in names if name in hooked and f"{name}_mask" in module._buffers]


def _make_plain(module: Any, name: str) -> None:
    """Remove a parametrization from a copied module.

    torch's own function would take the property off the class, which the copy shares with the
    module it was made of.
    """
    chain, value = module.parametrizations[name], getattr(module, name).detach()
    kind, before = type(module), parametrize.type_before_parametrizations(module)
    del module.parametrizations[name]
    if len(module.parametrizations):
        left = {k: v for k, v in vars(kind).items() if k not in (name, "__dict__", "__weakref__")}
        module.__class__ = type(kind.__name__, kind.__bases__, left)
    else:
        del module.parametrizations
        module.__class__ = before
    plain = nn.Parameter(value.clone(), requires_grad=chain.original.requires_grad)
    module.register_parameter(name, plain)


def _joint_mask(chain: Any) -> Tensor | None:
    """What all the parametrizations of one weight keep; None if one of them is no mask."""
    shape = chain.original.shape if hasattr(chain, "original") else None
    kept = None
    for step in chain:
        mask = getattr(step, "mask", None)
        if not isinstance(mask, Tensor) or mask.shape != shape:
            return None
        if not bool(((mask == 0) | (mask == 1)).all()):
            return None
        kept = mask != 0 if kept is None else kept & (mask != 0)
    return kept if isinstance(kept, torch.Tensor) else None
