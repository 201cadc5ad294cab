"""Turns a dense model that is full of zeros into one that stores and computes the rest."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from sparsetile.matrix import Pattern, pattern_of
from sparsetile.models._fill import SIDES, choose, live_shares, stored_bytes
from sparsetile.models._from_dense_layers import is_conv1d, is_linear, matrix_of
from sparsetile.models._from_dense_masks import unmasked
from sparsetile.models._from_dense_order import reorder_
from sparsetile.models._from_dense_pairs import found_pairs
from sparsetile.models._from_dense_report import LayerReport, Report
from sparsetile.models._say import kind_error, refusal
from sparsetile.nn import Budget, sparsify_

Filter = Callable[[nn.Module, str], bool]
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Converted(NamedTuple):
    """A model with sparse layers, and what was done to each.

    Examples:
        >>> Converted(nn.ReLU(), Report(())).model
        ReLU()
    """

    model: nn.Module
    report: Report


def from_dense(
    model: nn.Module,
    blocksize: int | Literal["auto"] = "auto",
    *,
    filter: Filter | None = None,
    min_gain: float = 1.1,
    reorder: bool = False,
) -> Converted:
    """Make a sparse model of a dense one that is full of zeros; it computes the same function.

    Every non-zero is kept exactly, so outputs differ only by the order of sums. Pruning masks
    (`torch.nn.utils.prune`, `torch.ao.pruning`) are applied; what a mask keeps is stored, zeros
    too. Each layer gets the blocks with the least estimated time, single values among them, or
    stays dense where sparse would not win: time per stored value is taken from the measured tables
    of the page "When does sparse win?" (1024 rows, one thread), live share × cost against dense.

    Args:
        model: Any module; not changed. The result is a copy.
        blocksize: Side of the blocks: `"auto"` chooses of 1, 4, 8, 16 and 32 for each layer; a
            number takes this one, or stays dense.
        filter: `filter(module, name)` says which linear layers to look at; by default all that
            own their weight.
        min_gain: How many times faster than dense the estimate must be for a layer to become
            sparse; 0 for wherever it takes fewer bytes.
        reorder: Put hidden features into an order that gathers non-zeros into blocks, where only
            elementwise steps lie between two layers: rows of the first and columns of the second
            change alike, so that the model computes the same function.

    Returns:
        The model, and a report that prints as a table.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If one is out of range.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
        >>> with torch.no_grad():
        ...     _ = model[0].weight[:, 16:].zero_()
        >>> sparse, report = from_dense(model)
        >>> sparse[0]
        Linear(in_features=64, out_features=64, bias=True, blocksize=16, density=0.25, nnzb=4)
        >>> report["2"].why
        '0 % zeros: stays dense'
    """
    only = _checked(model, blocksize, filter, min_gain, reorder)
    twin, masks_by_weight = unmasked(model)
    masks, left = _masks(twin, masks_by_weight, filter)
    notes: list[str] = []
    changed: set[str] = set()
    if reorder:
        pairs = found_pairs(twin)
        changed = reorder_(twin, masks, pairs, min_gain=min_gain)
        movable = {name for pair in pairs for name in (*pair.producers, pair.consumer)}
        fixed = [name for name in masks if name not in movable]
        if fixed:
            notes.append(
                "not reordered, as more than elementwise steps lie between them and other linear "
                "layers: " + ", ".join(name or "model" for name in fixed)
            )
    layers: list[LayerReport] = []
    patterns: dict[str, Pattern] = {}
    for name, module in twin.named_modules():
        if name in left and isinstance(weight := module._parameters.get("weight"), Tensor):
            layers.append(_left(name, weight, left[name]))
        if name in masks:
            layer, pattern = _layer(
                name, module, masks[name], only, min_gain, reordered=name in changed
            )
            layers.append(layer)
            if pattern is not None:
                patterns[name] = pattern
    return Converted(with_patterns(twin, patterns), Report(tuple(layers), tuple(notes)))


def with_patterns(model: nn.Module, patterns: Mapping[str, Pattern]) -> nn.Module:
    """Make some layers sparse at given patterns, each of blocks of its own; in place.

    Args:
        model: Any module.
        patterns: Patterns by the names of the layers.

    Returns:
        The model; another one only if it is itself a layer.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 4))
        >>> with_patterns(model, {"0": pattern_of(torch.eye(4) > 0, 2)})[0].nnzb
        2
    """
    for block in sorted({pattern.blocksize for pattern in patterns.values()}):
        names = [name for name, pattern in patterns.items() if pattern.blocksize == block]

        def chosen(module: nn.Module, name: str, names: list[str] = names) -> bool:
            return name in names

        some: dict[str, float | Budget | Pattern | None] = {n: patterns[n] for n in names}
        model = sparsify_(model, density=some, blocksize=block, filter=chosen)
    return model


def _checked(
    model: object, blocksize: object, filter: object, min_gain: object, reorder: object
) -> int | None:
    """Check the arguments; the one block size asked for, or None."""
    if not isinstance(model, nn.Module):
        got = f"a {type(model).__name__}"
        raise kind_error("model", got=got, allowed="a torch.nn.Module", fix="pass the model")
    if filter is not None and not callable(filter):
        got, fix = f"a {type(filter).__name__}", "pass filter=lambda module, name: …"
        raise kind_error("filter", got=got, allowed="filter(module, name) -> bool", fix=fix)
    if not isinstance(reorder, bool):
        got, fix = repr(reorder), "pass reorder=True to change the order of hidden features"
        raise kind_error("reorder", got=got, allowed="True or False", fix=fix)
    number = isinstance(min_gain, int | float) and not isinstance(min_gain, bool)
    if not number or not min_gain >= 0:  # type: ignore[operator]
        got, fix = repr(min_gain), "pass 1.1 for layers that should be 10 % faster"
        raise refusal("min_gain", got=got, allowed="a number from 0 up", fix=fix)
    if blocksize == "auto":
        return None
    allowed = '"auto" or one of ' + ", ".join(map(str, SIDES))
    if isinstance(blocksize, bool) or not isinstance(blocksize, int):
        got, fix = repr(blocksize), 'pass "auto"'
        raise kind_error("blocksize", got=got, allowed=allowed, fix=fix)
    if blocksize not in SIDES:
        raise refusal("blocksize", got=blocksize, allowed=allowed, fix='pass "auto"')
    return blocksize


def _masks(
    twin: nn.Module, by_weight: Mapping[str, Tensor], filter: Filter | None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """What each linear layer keeps as `[out, in]`, and why others are left."""
    holders: dict[int, list[str]] = {}
    for name, held in twin.named_parameters(remove_duplicate=False):
        holders.setdefault(id(held), []).append(name)
    masks: dict[str, Tensor] = {}
    left: dict[str, str] = {}
    for name, module in twin.named_modules():
        if not isinstance(module, nn.Linear) and not is_linear(module):
            continue
        parameter = module._parameters.get("weight")
        key = f"{name}.weight" if name else "weight"
        if filter is not None and not filter(module, name):
            continue
        if parameter is None:
            continue
        if not is_linear(module):
            left[name] = "torch.nn.MultiheadAttention reads it as a plain weight: stays dense"
        elif len(holders[id(parameter)]) > 1:
            other = next(other for other in holders[id(parameter)] if other != key)
            left[name] = f"its weight is shared with {other}: stays dense"
        elif parameter.is_meta or parameter.dtype not in _FLOATS:
            where = "on the meta device" if parameter.is_meta else f"{parameter.dtype}"
            left[name] = f"its weight is {where}: stays dense"
        else:
            weight = matrix_of(module)
            mask = by_weight.get(key)
            if mask is not None:
                masks[name] = mask.t() if is_conv1d(module) else mask
            else:
                masks[name] = weight != 0
    return masks, left


def _layer(
    name: str,
    module: nn.Module,
    mask: Tensor,
    only: int | None,
    min_gain: float,
    *,
    reordered: bool,
) -> tuple[LayerReport, Pattern | None]:
    """Decide about one layer."""
    m, k = mask.shape
    dtype = matrix_of(module).dtype
    shares = live_shares(mask)
    zeros = 1 - shares[1]
    size = m * k * dtype.itemsize
    if not zeros or not m * k:
        why = f"{0 if m * k else 100} % zeros: stays dense"
        return LayerReport(name, (m, k), 0.0, shares, None, why, size, size), None
    choice = choose(shares, zeros, dtype, min_gain=min_gain, only=only)
    why = choice.why + (" after reordering" if reordered else "")
    if choice.blocksize is None:
        layer = LayerReport(name, (m, k), zeros, shares, None, why, size, size, reordered=reordered)
        return layer, None
    pattern = pattern_of(mask, choice.blocksize)
    after = stored_bytes(pattern.nnzb, pattern.grid[0], choice.blocksize, dtype)
    layer = LayerReport(
        name, (m, k), zeros, shares, choice.blocksize, why, size, after, choice.gain, reordered
    )
    return layer, pattern


def _left(name: str, weight: Tensor, why: str) -> LayerReport:
    size = weight.numel() * weight.element_size()
    shares = {} if weight.is_meta else live_shares(weight.detach() != 0)
    zeros = 1 - shares[1] if shares else 0.0
    return LayerReport(name, tuple(weight.shape), zeros, shares, None, why, size, size)
