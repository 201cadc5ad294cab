"""What a model costs on paper: operations and bytes."""

from collections.abc import Iterable

import torch

from sparsetile.bench.dynsparse._model import EMBEDDING, LanguageModel, Size
from sparsetile.nn import Linear


def flops(size: Size, density: float = 1.0) -> float:
    """Operations of one training step for one row, embedding and head left out.

    `3 · layers · (2 · s · (4 h² + 2 h · 4 h) · density + 4 · s² · h)`: forward and backward, with
    attention counted as dense. It gives the numbers of Dietrich et al. (2021), Table 1.

    Args:
        size: How large the model is.
        density: Stored share of the block's matrices.

    Returns:
        Multiplications and additions.

    Examples:
        >>> f"{flops(Size(layers=4, width=256, sequence=128, vocabulary=0)):.4g}"
        '2.617e+09'
    """
    return 3 * size.layers * (24 * size.sequence * size.width**2 * density + _attention(size))


def all_flops(size: Size, density: float = 1.0) -> float:
    """Operations of one training step for one row, with projections of the embedding and head."""
    projections = 2 * size.sequence * EMBEDDING * (2 * size.width + size.vocabulary)
    return flops(size, density) + 3 * projections


def attention_share(size: Size, density: float = 1.0) -> float:
    """Share of `flops` that the products of attention take; no sparsity makes it smaller."""
    return 3 * size.layers * _attention(size) / flops(size, density)


def stored_density(model: LanguageModel) -> float:
    """Stored values over all positions in the matrices of the blocks."""
    layers = [m for m in model.blocks.modules() if isinstance(m, Linear | torch.nn.Linear)]
    whole = sum(layer.in_features * layer.out_features for layer in layers)
    return sum(_matrix(layer).numel() for layer in layers) / whole


def block_bytes(model: LanguageModel, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the blocks' matrices: values, gradients, optimizer's state and indices."""
    layers = [m for m in model.blocks.modules() if isinstance(m, Linear | torch.nn.Linear)]
    indices = sum(
        layer.crow_indices.nbytes + layer.col_indices.nbytes
        for layer in layers
        if isinstance(layer, Linear)
    )
    return indices + _trained_bytes((_matrix(layer) for layer in layers), optimizer)


def all_bytes(model: LanguageModel, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of everything trained: values, gradients, optimizer's state; and the buffers."""
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    return buffers + _trained_bytes(model.parameters(), optimizer)


def _trained_bytes(
    parameters: Iterable[torch.Tensor], optimizer: torch.optim.Optimizer
) -> int:
    total = 0
    for parameter in parameters:
        state = optimizer.state.get(parameter, {}).values()
        kept = sum(s.nbytes for s in state if isinstance(s, torch.Tensor))
        total += 2 * parameter.nbytes + kept
    return total


def _matrix(layer: Linear | torch.nn.Linear) -> torch.Tensor:
    return layer.values if isinstance(layer, Linear) else layer.weight


def _attention(size: Size) -> float:
    return 4 * size.sequence**2 * size.width
