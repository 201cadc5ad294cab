"""Makes the linear layers of any model sparse, or dense again, in place."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

import torch.nn.functional as F
from torch import nn

from sparsetile.matrix import Pattern
from sparsetile.nn import _check, _dense
from sparsetile.nn._budget import Budget, Candidate
from sparsetile.nn._budget_layers import as_budget
from sparsetile.nn._budget_patterns import chosen_patterns
from sparsetile.nn._linear import Linear
from sparsetile.nn._tied import output_head, tied_weights

Filter = Callable[[nn.Module, str], bool]

# Handles of hooks find their hooks through these dictionaries, so the dictionaries move along.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def sparsify_(
    model: nn.Module,
    *,
    density: float | Budget | Mapping[str, float | Budget | Pattern | None],
    blocksize: int | tuple[int, int],
    method: Literal["random", "magnitude"] = "random",
    filter: Filter | None = None,
    balanced: bool = False,
) -> nn.Module:
    """Replace the linear layers of a model by block-sparse ones, in place.

    Kept blocks keep the model's values, so a fresh model starts at its own initialisation and a
    trained one at what is left of its weights. Device, dtype, training flag, `requires_grad`,
    hooks and the bias parameters stay. Build the optimizer afterwards: the weights are new.

    Left dense in any case: layers that are sparse already, weights shared with another module (a
    language model's head tied to its embedding), and the output projection inside
    `torch.nn.MultiheadAttention`, which torch reads as a plain weight.

    Args:
        model: Any module. If it is itself a linear layer, only the return value is sparse.
        density: Share of the blocks to keep, in (0, 1]: the same in every layer, or as a budget
            divides it over layers (`Uniform`, `ER`, `ERK`, `GlobalMagnitude`), or a mapping from
            layer names or globs to densities, budgets and patterns (`PerLayer`).
        blocksize: Shape of the blocks, an int or `(r, c)`; it need not divide the layers.
        method: Keep random blocks (train from scratch) or the strongest of each layer (prune),
            where the budget does not choose the blocks itself.
        filter: `filter(module, name)` says which `torch.nn.Linear` (subclasses too) and
            transformers `Conv1D` to replace. By default every layer of exactly these types but
            the model's output head, where the model names one (`get_output_embeddings`).
        balanced: Draw random patterns with as many blocks in each block row as in any other, and
            in each block column, give or take one. By chance alone 18 % of the rows of a 256×256
            layer stay empty at density 0.1 and blocksize 16.

    Returns:
        The model.

    Raises:
        TypeError: If the model is no module or the filter cannot be called.
        ValueError: If an argument is out of range, the filter selects a shared weight, or a
            selected weight is computed (pruning masks, parametrizations). Nothing is replaced.

    Warns:
        UserWarning: If no layer was there to replace, saying why.

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
    if not isinstance(balanced, bool):
        raise TypeError(f"balanced must be True or False, got {balanced!r}")
    block = _check.check_draw(None, blocksize, 1)
    budget = as_budget("density", density)
    selected, left = _selected(model, filter)
    if not selected:
        warnings.warn(
            f"sparsify_ replaced nothing: {left}; choose layers with filter=…, or leave the call "
            "out",
            UserWarning,
            stacklevel=2,
        )
    candidates = [
        Candidate(name, _dense.parts(dense)[0].detach(), block) for name, dense in selected.items()
    ]
    patterns = chosen_patterns(budget, candidates, method, balanced)
    made = {
        dense: Linear.from_linear(dense, pattern=pattern)
        for dense, pattern in zip(selected.values(), patterns, strict=True)
        if pattern is not None
    }
    for dense, sparse in made.items():
        sparse.register_parameter("bias", dense._parameters.get("bias"))
        _share_hooks(dense, sparse)
    return _replace(model, made)


def densify_(model: nn.Module) -> nn.Module:
    """Replace the block-sparse layers of a model by dense ones of the same function, in place.

    Args:
        model: Any module. If it is itself a sparse layer, only the return value is dense.

    Returns:
        The model, with `torch.nn.Linear` (or the `Conv1D` that was there before) in each place.

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
    made: dict[nn.Module, nn.Module] = {}
    for sparse in model.modules():
        if isinstance(sparse, Linear):
            dense = _conv1d(sparse) if sparse._layout == "conv1d" else sparse.to_linear()
            dense.register_parameter("bias", sparse.bias)
            _share_hooks(sparse, dense)
            made[sparse] = dense
    return _replace(model, made)


def _selected(model: nn.Module, filter: Filter | None) -> tuple[dict[str, nn.Module], str]:
    """The dense layers to replace by name, all fit for it, and why the others are left."""
    tied, head = tied_weights(model), output_head(model)
    chosen: dict[str, nn.Module] = {}
    left: Counter[str] = Counter()
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            left["sparse already"] += 1
        if not isinstance(module, nn.Linear) and not _dense.is_conv1d(module):
            continue
        if why := _left_dense(module, name, filter, tied, head):
            left[why] += 1
            continue
        if name in tied:
            raise ValueError(
                f"filter selects {name!r}, whose weight is shared with {tied[name]!r}; a shared "
                "weight stays dense: leave it out in filter, or untie it first"
            )
        if why := _dense.unfit(module):
            raise ValueError(f"layer {name!r} cannot be made sparse: {why}")
        chosen[name] = module
    reasons = ", ".join(f"{count} {why}" for why, count in left.items())
    return (
        chosen,
        f"the model's linear layers: {reasons}" if left else "the model has no linear layer",
    )


def _left_dense(
    module: nn.Module, name: str, filter: Filter | None, tied: Mapping[str, str], head: object
) -> str | None:
    """Why a dense linear layer is passed over; None if it is selected."""
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return "inside MultiheadAttention"
    if filter is not None:
        return None if filter(module, name) else "not selected by filter"
    if _dense.plain_type(module) is not nn.Linear and not _dense.is_conv1d(module):
        return "of a subclass"
    if module is head:
        return "the output head"
    return "with a shared weight" if name in tied else None


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


def _share_hooks(old: nn.Module, new: nn.Module) -> None:
    for name in _HOOKS:
        setattr(new, name, getattr(old, name))


def _conv1d(sparse: Linear) -> nn.Module:
    """The transformers layer that a sparse one was made of."""
    from transformers.pytorch_utils import Conv1D

    dense = sparse.to_linear()
    conv = Conv1D(0, 0)
    conv.nf, conv.nx = sparse.out_features, sparse.in_features
    conv.weight = nn.Parameter(
        dense.weight.detach().t().contiguous(), requires_grad=dense.weight.requires_grad
    )
    return conv.train(sparse.training)
