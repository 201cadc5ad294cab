"""The model of a run, its optimizer, and its trainer."""

from typing import Any, cast

import torch

from sparsetile import train
from sparsetile.bench._model import ModelSize, build, config_of, groups_of
from sparsetile.bench._tokens import Objective
from sparsetile.bench.pretrain._methods import DENSE, first_density, sparsify_
from sparsetile.bench.pretrain._settings import Settings


def config_for(settings: Settings, vocabulary: int) -> Any:
    """The Hugging Face config of a run, for a vocabulary of so many tokens."""
    layers, width, heads = settings.size
    size = ModelSize(layers, width, heads, settings.sequence, vocabulary)
    return config_of(cast(Objective, settings.objective), size, settings.dropout)


def model_for(settings: Settings, config: Any) -> torch.nn.Module:
    """The model at its start; one seed gives one model.

    Examples:
        >>> settings = Settings(preset="tiny", layers=1, width=32, density=0.5)
        >>> model = model_for(settings, config_for(settings, vocabulary=300))
        >>> from sparsetile.nn import Linear
        >>> sum(isinstance(module, Linear) for module in model.modules())
        4
    """
    model = build(config, settings.seed)
    if settings.method != DENSE:
        torch.manual_seed(settings.seed)
        sparsify_(model, settings)
    return model


def optimizer_for(settings: Settings, model: torch.nn.Module) -> torch.optim.AdamW:
    """AdamW with a rate of their own for the layers of the blocks."""
    return torch.optim.AdamW(
        groups_of(model, block_rate(settings), settings.rest_lr, settings.weight_decay), fused=True
    )


def block_rate(settings: Settings) -> float:
    """Highest learning rate of the block layers: by the rule for sparse ones, or as given.

    Examples:
        >>> block_rate(Settings(method="dense", lr=1e-3))
        0.001
        >>> round(block_rate(Settings(method="static", density=0.1, lr=1e-3)), 4)
        0.0064
    """
    if settings.method == DENSE:
        return settings.lr
    if settings.sparse_lr is not None:
        return settings.sparse_lr
    return train.sparse_lr(settings.lr, 1 - first_density(settings))
