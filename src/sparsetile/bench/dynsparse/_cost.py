"""What a model costs on paper: operations and bytes."""

import torch
from torch import nn

from sparsetile.bench.dynsparse._model import EMBEDDING, LanguageModel, Size, in_block
from sparsetile.nn import Linear
from sparsetile.train import bytes_of, transformer_flops


def flops(size: Size, density: float = 1.0) -> float:
    """Operations of one training step for one row, embedding and head left out.

    Args:
        size: How large the model is.
        density: Stored share of the blocks' matrices.

    Returns:
        Multiplications and additions, as `sparsetile.train.transformer_flops` counts them.
    """
    return transformer_flops(size.layers, size.width, size.sequence, density=density)


def all_flops(size: Size, density: float = 1.0) -> float:
    """Operations of one training step for one row, with projections of the embedding and head.

    Examples:
        >>> size = Size(layers=2, width=256, sequence=64, vocabulary=1024)
        >>> f"{flops(size, 0.1):.3g} {all_flops(size, 0.1):.3g}"
        '8.56e+07 1.23e+08'
    """
    projections = 2 * size.sequence * EMBEDDING * (2 * size.width + size.vocabulary)
    return flops(size, density) + 3 * projections


def attention_share(size: Size, density: float = 1.0) -> float:
    """Share of `flops` that the products of attention take; no sparsity makes it smaller."""
    return flops(size, 0.0) / flops(size, density)


def stored_density(model: LanguageModel) -> float:
    """Stored values over all positions in the matrices of the blocks."""
    layers = [m for m in model.blocks.modules() if isinstance(m, Linear | nn.Linear)]
    whole = sum(layer.in_features * layer.out_features for layer in layers)
    stored = (layer.values if isinstance(layer, Linear) else layer.weight for layer in layers)
    return sum(weight.numel() for weight in stored) / whole


def bytes_held(model: LanguageModel, optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Bytes of weights, gradients, optimizer's state and indices; gradients must be there now.

    Returns:
        Of the layers that are sparse in a sparse model, and of the whole model.
    """
    held = bytes_of(model, optimizer, layers=in_block)
    return held.sparse.total, held.sparse.total + held.rest.total
