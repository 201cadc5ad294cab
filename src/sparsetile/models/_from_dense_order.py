"""Hidden features put into an order that gathers non-zeros into blocks."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sparsetile.matrix import reorder
from sparsetile.models._fill import SIDES, choose, live_shares
from sparsetile.models._from_dense_layers import matrix_of
from sparsetile.models._from_dense_pairs import Pair

# A new order must pay: estimated time must fall by a twentieth.
_LEAST = 0.95


@torch.no_grad()
def reorder_(
    model: nn.Module, masks: dict[str, Tensor], pairs: list[Pair], *, min_gain: float
) -> set[str]:
    """Put hidden features into a better order, in place; the model computes the same function.

    Args:
        model: Any module.
        masks: What each linear layer keeps, as `[out, in]` by its name; changed alike.
        pairs: Where the order may change.
        min_gain: As for `from_dense`.

    Returns:
        The names of the layers that have changed.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        >>> dense = {name: matrix_of(model[int(name)]) != 0 for name in ("0", "2")}
        >>> reorder_(model, dense, [Pair(("0",), "2")], min_gain=1.1)
        set()
    """
    changed: set[str] = set()
    for pair in pairs:
        names = (*pair.producers, pair.consumer)
        if not all(name in masks for name in names):
            continue
        modules = {name: model.get_submodule(name) for name in names}
        heights = {masks[name].shape[0] for name in pair.producers}
        if heights != {masks[pair.consumer].shape[1]} or 0 in heights:
            continue
        here = {name: masks[name] for name in names}
        before, best, kept = _cost(here, modules, min_gain), None, here
        least = _LEAST * before
        stacked = torch.cat([*(here[n] for n in pair.producers), here[pair.consumer].t()], dim=1)
        for side in reversed(SIDES[1:]):  # of equal ones the largest blocks
            order = reorder(stacked.float(), side, cols=False).rows.to(stacked.device)
            trial = {name: here[name][order] for name in pair.producers}
            trial[pair.consumer] = here[pair.consumer][:, order]
            cost = _cost(trial, modules, min_gain)
            if cost < least:
                least, best, kept = cost, order, trial
        if best is None:
            continue
        masks.update(kept)
        _apply(pair, modules, best)
        changed.update(names)
    return changed


def _apply(pair: Pair, modules: Mapping[str, nn.Module], order: Tensor) -> None:
    for name in pair.producers:
        weight = matrix_of(modules[name])
        weight.copy_(weight[order])
        bias = modules[name]._parameters.get("bias")
        if bias is not None:
            bias.copy_(bias[order])
    weight = matrix_of(modules[pair.consumer])
    weight.copy_(weight[:, order])


def _cost(masks: Mapping[str, Tensor], modules: Mapping[str, nn.Module], min_gain: float) -> float:
    """Estimated time of some layers, in values of a dense product."""
    total = 0.0
    for name, mask in masks.items():
        shares = live_shares(mask)
        dtype = matrix_of(modules[name]).dtype
        choice = choose(shares, 1 - shares[1], dtype, min_gain=min_gain)
        total += mask.numel() / choice.gain
    return total
