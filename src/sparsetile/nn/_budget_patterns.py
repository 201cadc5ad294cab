"""Turns what a budget says about each layer into the blocks to store."""

from collections.abc import Sequence
from typing import Literal

from sparsetile.matrix import Pattern, pattern_from_dense
from sparsetile.nn._budget import Budget, Candidate, shares_of
from sparsetile.nn._dense import drawn


def chosen_patterns(
    budget: Budget,
    layers: Sequence[Candidate],
    method: Literal["random", "magnitude"],
    balanced: bool,
) -> list[Pattern | None]:
    """Choose the blocks of each layer: at random or the strongest, as many as the budget says.

    Args:
        budget: How much of each layer.
        layers: The weights to become sparse.
        method: Where chance decides, and where strength.
        balanced: Load block rows and block columns alike; chance only.

    Returns:
        Which blocks each layer stores; None where it stays dense.

    Raises:
        TypeError: If a user's budget returned something else.
        ValueError: If a pattern or number does not fit, or there is nothing to balance.

    Examples:
        >>> import torch
        >>> from sparsetile.nn._budget import Uniform
        >>> up = Candidate("up", torch.eye(64), (16, 16))
        >>> chosen_patterns(Uniform(0.25), [up], "magnitude", balanced=False)[0].col_indices
        tensor([0, 1, 2, 3], dtype=torch.int32)
    """
    if balanced and method == "magnitude":
        raise ValueError(
            'balanced=True is for random patterns, got method="magnitude", which chooses blocks by '
            'strength alone; leave out balanced, or take method="random"'
        )
    shares = shares_of(budget, layers)
    if balanced and layers and not any(isinstance(share, int) for share in shares):
        raise ValueError(
            f"balanced=True is for random patterns, got {type(budget).__name__}, which chooses "
            "every block itself; leave out balanced, or take a budget of densities"
        )
    patterns: list[Pattern | None] = []
    for layer, share in zip(layers, shares, strict=True):
        if not isinstance(share, int):
            patterns.append(share)
            continue
        density = share / layer.positions if layer.positions else 1.0
        patterns.append(
            drawn(layer.shape, layer.blocksize, density, balanced)
            if method == "random"
            else pattern_from_dense(layer.weight, layer.blocksize, density)
        )
    return patterns
