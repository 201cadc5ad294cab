"""Activations that become part of the product of the layer before them."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from sparsetile import ops
from sparsetile.nn._linear import Linear

# Where classes of transformers apply an activation to the output of one layer and of no other.
_PLACES = {
    "BertIntermediate": ("dense", "intermediate_act_fn"),
    "RobertaIntermediate": ("dense", "intermediate_act_fn"),
    "FFN": ("lin1", "activation"),  # DistilBERT
    "GPT2MLP": ("c_fc", "act"),
    "T5DenseActDense": ("wi", "act"),
    "T5DenseGatedActDense": ("wi_0", "act"),
    "LlamaMLP": ("gate_proj", "act_fn"),
    "MistralMLP": ("gate_proj", "act_fn"),
    "Qwen2MLP": ("gate_proj", "act_fn"),
}
_OF_TRANSFORMERS: dict[str, ops.Activation] = {
    "NewGELUActivation": "gelu_tanh",
    "GELUTanh": "gelu_tanh",
    "SiLUActivation": "silu",
}


class Fused(nn.Module):
    """Stands where an activation was that the layer before it applies; gives back its input."""

    def __init__(self, was: nn.Module) -> None:
        super().__init__()
        self.was = was

    def forward(self, x: Tensor) -> Tensor:
        """Return the input."""
        return x


def fuse_(model: nn.Module) -> nn.Module:
    """Let sparse layers apply the activations that follow them, where that is known.

    That is in `torch.nn.Sequential`, and in the feed-forward parts of some transformers models.
    """
    users: dict[nn.Module, int] = {}
    for parent in model.modules():
        for child in parent.children():
            users[child] = users.get(child, 0) + 1
    for parent in list(model.modules()):
        for before, after in _pairs(parent):
            layer, activation = parent._modules.get(before), parent._modules.get(after)
            kind = None if activation is None else _name(activation)
            # A layer in two places may be without the activation in the other one.
            if kind and isinstance(layer, Linear) and not layer.activation and users[layer] == 1:
                layer.activation = kind
                assert activation is not None
                parent._modules[after] = Fused(activation)
    return model


def unfuse_(model: nn.Module) -> nn.Module:
    """Put the activations back."""
    for parent in list(model.modules()):
        for before, after in _pairs(parent):
            layer, fused = parent._modules.get(before), parent._modules.get(after)
            if isinstance(fused, Fused):
                assert isinstance(layer, Linear)
                layer.activation = None
                parent._modules[after] = fused.was
    return model


def _pairs(parent: nn.Module) -> Iterator[tuple[str, str]]:
    if type(parent) is nn.Sequential:
        names = list(parent._modules)
        yield from itertools.pairwise(names)
    elif type(parent).__module__.startswith("transformers."):
        if place := _PLACES.get(type(parent).__name__):
            yield place


def _name(activation: nn.Module) -> ops.Activation | None:
    if activation._forward_hooks or activation._forward_pre_hooks:
        return None
    kind = type(activation)
    if kind is nn.ReLU:
        return "relu"
    if kind is nn.SiLU:
        return "silu"
    if kind is nn.GELU:
        return "gelu" if getattr(activation, "approximate", "none") == "none" else "gelu_tanh"
    if kind.__module__ != "transformers.activations":
        return None
    if kind.__name__ == "GELUActivation":
        plain = getattr(activation, "act", None) is torch.nn.functional.gelu
        return "gelu" if plain else None
    return _OF_TRANSFORMERS.get(kind.__name__)
