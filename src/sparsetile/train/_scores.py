"""How strong each stored block is: the weakest are dropped."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train._check import check_layer, checked_share


@runtime_checkable
class Drop(Protocol):
    """Scores the stored blocks of a layer; those with the lowest scores are dropped."""

    def __call__(self, layer: BlockSparse) -> Float[Tensor, " nnzb"]:
        """Score every stored block."""
        ...


@torch.no_grad()
def block_l1(layer: BlockSparse) -> Float[Tensor, " nnzb"]:
    """Score blocks by the sum of magnitudes, padding left out.

    Best of the three norms for blocks of 16×16 (Dietrich et al., "Towards Structured Dynamic Sparse
    Pre-Training of BERT", 2021).

    Args:
        layer: A sparse layer.

    Returns:
        One score for each stored block, in float32 or better.

    Raises:
        TypeError: If it is no sparse layer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> block_l1(layer).item() == layer.values.abs().sum().item()
        True
    """
    check_layer(layer)
    dtype = torch.promote_types(layer.values.dtype, torch.float32)
    return _magnitudes(layer, layer.values).sum(dim=(1, 2), dtype=dtype)


@torch.no_grad()
def block_l2(layer: BlockSparse) -> Float[Tensor, " nnzb"]:
    """Score blocks by the root of the sum of squares, padding left out.

    Args:
        layer: A sparse layer.

    Returns:
        One score for each stored block, in float32 or better.

    Raises:
        TypeError: If it is no sparse layer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> _ = layer.values.data.fill_(3)
        >>> block_l2(layer).item()
        6.0
    """
    check_layer(layer)
    dtype = torch.promote_types(layer.values.dtype, torch.float32)
    magnitudes = _magnitudes(layer, layer.values)
    return torch.linalg.vector_norm(magnitudes, dim=(1, 2), dtype=dtype)


@torch.no_grad()
def block_max(layer: BlockSparse) -> Float[Tensor, " nnzb"]:
    """Score blocks by their largest magnitude, padding left out.

    Args:
        layer: A sparse layer.

    Returns:
        One score for each stored block, in float32 or better.

    Raises:
        TypeError: If it is no sparse layer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> block_max(layer).item() == layer.values.abs().max().item()
        True
    """
    check_layer(layer)
    dtype = torch.promote_types(layer.values.dtype, torch.float32)
    return _magnitudes(layer, layer.values).amax(dim=(1, 2)).to(dtype)


@torch.no_grad()
def signed(layer: BlockSparse) -> Float[Tensor, " nnzb"]:
    """Score single values by their rank among those of their sign; larger blocks by `block_l1`.

    The lowest share of these scores is that share of the smallest positive values and the same
    share of the largest negative ones, as SET drops them (Mocanu et al., "Scalable training of
    artificial neural networks with adaptive sparse connectivity", 2018). A block of several values
    has no sign. A zero counts as positive.

    Args:
        layer: A sparse layer.

    Returns:
        One score for each stored block, in (0, 1] for single values.

    Raises:
        TypeError: If it is no sparse layer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(2, 2, blocksize=1, density=1.0)
        >>> _ = layer.values.data.copy_(torch.tensor([5.0, -1.0, 1.0, -7.0]).view(4, 1, 1))
        >>> signed(layer)
        tensor([1.0000, 0.5000, 0.5000, 1.0000])
    """
    check_layer(layer)
    if layer.blocksize != (1, 1):
        return block_l1(layer)
    values = layer.values.detach()[:, 0, 0]
    scores = torch.empty_like(values, dtype=torch.promote_types(values.dtype, torch.float32))
    for side in (values < 0, ~(values < 0)):
        index = side.nonzero()[:, 0]
        ranks = torch.empty_like(index)
        order = values[index].abs().argsort(stable=True)
        ranks[order] = torch.arange(1, len(index) + 1, device=index.device)
        scores[index] = ranks.to(scores.dtype) / max(len(index), 1)
    return scores


class MagnitudeAndGradient:
    """Scores blocks by the sum of `|w| + weight · |dL/dw|`.

    A weak value that is about to grow is kept (Yuan et al., "MEST: Accurate and Fast
    Memory-Economic Sparse Training Framework on the Edge", 2021). Values without a gradient are
    scored by magnitude alone.

    Args:
        weight: How much the gradient counts, in [0, 1].

    Raises:
        TypeError: If the weight is no number.
        ValueError: If it is out of range.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(2, 2, blocksize=2, density=1.0)
        >>> _ = layer.values.data.fill_(1)
        >>> layer.values.grad = torch.full_like(layer.values, -2)
        >>> MagnitudeAndGradient(0.5)(layer).item()
        8.0
    """

    def __init__(self, weight: float) -> None:
        self.weight = checked_share("weight", weight)

    @torch.no_grad()
    def __call__(self, layer: BlockSparse) -> Float[Tensor, " nnzb"]:
        """Score every stored block."""
        scores = block_l1(layer)
        gradient = layer.values.grad
        if gradient is not None:
            slopes = _magnitudes(layer, gradient).sum(dim=(1, 2), dtype=scores.dtype)
            scores.add_(slopes, alpha=self.weight)
        return scores


def _magnitudes(layer: BlockSparse, values: Tensor) -> Tensor:
    """Magnitudes of values at the layer's blocks; padding is zero."""
    magnitudes = values.detach().abs()
    (r, c), (m, k) = layer.blocksize, layer.shape
    if m % r or k % c:
        pattern = layer.pattern
        if m % r:
            magnitudes[pattern.row_indices == m // r, m % r :] = 0
        if k % c:
            magnitudes[pattern.col_indices == k // c, :, k % c :] = 0
    return magnitudes
