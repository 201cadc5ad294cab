"""Makes the linear layers of any model sparse, or dense again, in place."""

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch.nn.functional as F
from torch import nn

from sparsetile.matrix import Pattern
from sparsetile.nn import _check
from sparsetile.nn._advise import slower
from sparsetile.nn._budget import Budget, Candidate
from sparsetile.nn._budget_layers import as_budget
from sparsetile.nn._budget_patterns import chosen_patterns
from sparsetile.nn._fuse import unfuse_
from sparsetile.nn._linear import Linear
from sparsetile.nn._recurrent import Recurrent
from sparsetile.nn._selection import Filter, selected
from sparsetile.nn._targets import built, dense_twins


def sparsify_(
    model: nn.Module,
    *,
    density: float | Budget | Mapping[str, float | Budget | Pattern | None],
    blocksize: int | tuple[int, int],
    method: Literal["random", "magnitude"] = "random",
    filter: Filter | None = None,
    balanced: bool = False,
    embeddings: bool = False,
    keep_dense_if_slower: bool = False,
    example_inputs: Any = None,
) -> nn.Module:
    """Replace the linear layers of a model by block-sparse ones, in place.

    Kept blocks keep the model's values, so a fresh model starts at its own initialisation and a
    trained one at what is left of its weights. Device, dtype, training flag, `requires_grad`,
    hooks and the bias parameters stay. Build the optimizer afterwards: the weights are new.

    Left in any case: layers that are sparse already, weights shared with another module (a
    language model's head tied to its embedding, but for `embeddings=True`), and the output
    projection inside `torch.nn.MultiheadAttention`, which torch reads as a plain weight.

    Args:
        model: Any module. If it is itself a linear layer, only the return value is sparse.
        density: Share of the blocks to keep, in (0, 1]: the same in every layer, or as a budget
            divides it over layers (`Uniform`, `ER`, `ERK`, `GlobalMagnitude`), or a mapping from
            layer names or globs to densities, budgets and patterns (`PerLayer`).
        blocksize: Shape of the blocks, an int or `(r, c)`; it need not divide the layers.
        method: Keep random blocks (train from scratch) or the strongest of each layer (prune),
            where the budget does not choose the blocks itself.
        filter: `filter(module, name)` says which `torch.nn.Linear` (subclasses too), transformers
            `Conv1D`, `torch.nn.LSTM` and `torch.nn.GRU` to replace. By default every linear layer
            of exactly these types but the model's output head, where the model names one
            (`get_output_embeddings`).
        balanced: Draw random patterns with as many blocks in each block row as in any other, and
            in each block column, give or take one. By chance alone 18 % of the rows of a 256×256
            layer stay empty at density 0.1 and blocksize 16.
        embeddings: Replace `torch.nn.Embedding` too, together with the heads and embeddings that
            share its weight: those that `filter` selects, or by default the model's input
            embedding, where it names one (`get_input_embeddings`), and else all.
        keep_dense_if_slower: Measure each linear layer on this machine, dense and sparse, as
            `advise` does, and leave those dense that would be slower or are not reached; a
            warning names them.
        example_inputs: What the model is run on to see the layers' inputs: a tensor, a tuple of
            arguments, or a mapping of keyword arguments. Needed for `keep_dense_if_slower`.

    Returns:
        The model.

    Raises:
        TypeError: If the model is no module or the filter cannot be called.
        ValueError: If an argument is out of range, the filter selects a shared weight, or a
            selected weight is computed (pruning masks, parametrizations). Nothing is replaced.

    Warns:
        UserWarning: If no layer was there to replace, or some stay dense as slower, saying why.

    Examples:
        >>> model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        >>> sparsify_(model, density=0.1, blocksize=16)[0]
        Linear(in_features=64, out_features=256, bias=True, blocksize=16, density=0.11, nnzb=7)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if filter is not None and not callable(filter):
        raise TypeError(
            f"filter must be callable as filter(module, name) -> bool, got {type(filter).__name__}"
        )
    if method not in ("random", "magnitude"):
        raise ValueError(f'method must be "random" or "magnitude", got {method!r}')
    flags = {"balanced": balanced, "embeddings": embeddings}
    for name, flag in (flags | {"keep_dense_if_slower": keep_dense_if_slower}).items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {flag!r}")
    _check_example(keep_dense_if_slower, example_inputs)
    block = _check.check_draw(None, blocksize, 1)
    budget = as_budget("density", density)
    targets, left = selected(model, filter, embeddings)
    if not targets:
        warnings.warn(
            f"sparsify_ replaced nothing: {left}; choose layers with filter=…, or leave the call "
            "out",
            UserWarning,
            stacklevel=2,
        )
    candidates = [
        Candidate(name, weight, block)
        for target in targets
        for name, weight in target.weights().items()
    ]
    patterns = chosen_patterns(budget, candidates, method, balanced)
    if keep_dense_if_slower and (left_dense := slower(targets, patterns, model, example_inputs)):
        names = [candidate.name for candidate in candidates]
        patterns = [
            None if name in left_dense else pattern
            for name, pattern in zip(names, patterns, strict=True)
        ]
        reasons = "; ".join(f"{name or 'the model'}: {why}" for name, why in left_dense.items())
        warnings.warn(
            f"sparsify_ left {len(left_dense)} of {len(names)} layers dense, as "
            f"keep_dense_if_slower asks: {reasons}",
            UserWarning,
            stacklevel=2,
        )
    made = built(targets, patterns)
    return _replace(model, made)


def densify_(model: nn.Module) -> nn.Module:
    """Replace the block-sparse layers of a model by dense ones of the same function, in place.

    Args:
        model: Any module. If it is itself a sparse layer, only the return value is dense.

    Returns:
        The model, with torch's layers (or the `Conv1D` that was there before) in each place.

    Raises:
        TypeError: If the model is no module.

    Examples:
        >>> model = nn.Sequential(Linear(64, 32, density=0.5))
        >>> densify_(model)
        Sequential(
          (0): Linear(in_features=64, out_features=32, bias=True)
        )
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    unfuse_(model)
    made: dict[nn.Module, nn.Module] = {}
    inner = {
        layer
        for module in model.modules()
        if isinstance(module, Recurrent)
        for layer in module.children()
    }
    for sparse in model.modules():
        if sparse not in inner:
            dense_twins(sparse, made)
    return _replace(model, made)


def _check_example(wanted: bool, example_inputs: Any) -> None:
    if wanted == (example_inputs is not None):
        return
    got = (
        "none with keep_dense_if_slower=True" if wanted else "some, but keep_dense_if_slower=False"
    )
    fix = "pass what the model is run on" if wanted else "pass keep_dense_if_slower=True too"
    raise ValueError(
        f"example_inputs: got {got}; allowed: inputs for the model exactly where layers are to be "
        f"measured; {fix}"
    )


def _replace(model: nn.Module, made: Mapping[nn.Module, nn.Module]) -> nn.Module:
    """Put new modules in every place of the old ones; a module used twice stays one."""
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and child in made:
                parent._modules[name] = made[child]
        if isinstance(parent, nn.TransformerEncoderLayer):
            _set_fused_activation(parent)
    return made.get(model, model)


def _set_fused_activation(layer: nn.TransformerEncoderLayer) -> None:
    """Keep torch's fused evaluation path, which reads dense weights, away from sparse layers."""
    if isinstance(layer.linear1, Linear) or isinstance(layer.linear2, Linear):
        layer.activation_relu_or_gelu = 0
    elif layer.activation is F.relu or isinstance(layer.activation, nn.ReLU):
        layer.activation_relu_or_gelu = 1
    elif layer.activation is F.gelu or isinstance(layer.activation, nn.GELU):
        layer.activation_relu_or_gelu = 2
