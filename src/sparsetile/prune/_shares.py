"""How many blocks each layer keeps, by what the user gave as a density."""

from collections.abc import Mapping, Sequence
from typing import Any

from sparsetile.matrix import Pattern
from sparsetile.nn import Budget, Candidate, PerLayer, Uniform
from sparsetile.prune._check import message
from sparsetile.prune._nm import NM

Share = int | Pattern


def as_budget(density: Any) -> Budget:
    """Take a number, a budget, a mapping by layer, or N of M.

    Args:
        density: What the user gave.

    Returns:
        The budget it means.

    Raises:
        TypeError: If it is none of these.
        ValueError: If it is out of range, or N of M stands inside a mapping.

    Examples:
        >>> as_budget(0.1)
        Uniform(density=0.1)
    """
    if isinstance(density, Mapping):
        for key, choice in density.items():
            if isinstance(choice, NM):
                raise ValueError(
                    message(
                        f"density[{key!r}]",
                        got=f"the pattern {choice}",
                        allowed="densities, budgets, patterns or None in a mapping",
                        fix=f"pass density=NM({choice.n}, {choice.m}) and choose layers by filter",
                    )
                )
        return PerLayer(density)
    if isinstance(density, Budget) and not isinstance(density, type):
        return density
    try:
        return Uniform(density)
    except TypeError:
        raise TypeError(
            message(
                "density",
                got=f"{density!r:.60}",
                allowed="a number in (0, 1], a budget such as ERK(0.1), a mapping from layer names "
                "or globs to these, or NM(2, 4)",
                fix="pass the fraction of blocks to keep, as in density=0.3",
            )
        ) from None


def counts_of(budget: Budget, layers: Sequence[Candidate]) -> list[Share | None]:
    """Ask a budget, and check what it says.

    Args:
        budget: Any budget, a user's own too.
        layers: The weights to become sparse.

    Returns:
        For each layer: a number of blocks, the blocks themselves, or None to leave it dense.

    Raises:
        TypeError: If a budget returned something else.
        ValueError: If a number or pattern does not fit its layer.

    Examples:
        >>> import torch
        >>> counts_of(Uniform(0.5), [Candidate("up", torch.zeros(64, 64), (16, 16))])
        [8]
    """
    if isinstance(budget, NM):
        for layer in layers:
            budget.check_blocksize(layer.blocksize)
        return [budget.count(layer.shape) for layer in layers]
    name, shares = type(budget).__name__, list(budget.share(layers))
    if len(shares) != len(layers):
        raise ValueError(
            message(
                f"{name}.share",
                got=f"{len(shares)} entries",
                allowed=f"one for each of {len(layers)} layers",
                fix="return one number of blocks a layer, in the order given",
            )
        )
    for layer, share in zip(layers, shares, strict=True):
        said = f"{name}.share of layer {layer.name!r}"
        fix = "return a number of blocks, a Pattern of the layer's shape, or None to leave it dense"
        if isinstance(share, Pattern):
            if (share.shape, share.blocksize) != (layer.shape, layer.blocksize):
                (m, k), (r, c) = layer.shape, layer.blocksize
                allowed = f"a pattern {m}×{k} of blocks {r}×{c}"
                raise ValueError(message(said, got=repr(share), allowed=allowed, fix=fix))
        elif share is not None:
            allowed = f"an int of 1 to {layer.positions}"
            if isinstance(share, bool) or not isinstance(share, int):
                raise TypeError(message(said, got=repr(share), allowed=allowed, fix=fix))
            if not min(1, layer.positions) <= share <= layer.positions:
                raise ValueError(message(said, got=share, allowed=allowed, fix=fix))
    return shares
