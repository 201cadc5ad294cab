"""Which checkpoints a sparse layer takes: its own, of any pattern, and dense ones."""

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparsetile.matrix import Pattern, gather_blocks

if TYPE_CHECKING:
    from sparsetile.nn._block_sparse import BlockSparse

_OWN = ("values", "crow_indices", "col_indices")


def translate_(state: dict[str, Any], prefix: str, layer: "BlockSparse") -> int:
    """Rewrite the entries of one layer so that they can be copied in, or refuse them all.

    Args:
        state: The checkpoint; entries under `prefix` are replaced in place.
        prefix: What the names of this layer's entries begin with.
        layer: The layer to load into; not changed.

    Returns:
        The number of blocks the layer must have room for.

    Raises:
        TypeError: If an entry is no tensor of the right kind.
        ValueError: If entries are missing or do not fit the layer.
    """
    own = [name for name in _OWN if prefix + name in state]
    dense = prefix + "weight" in state
    _check_bias(state, prefix, layer)
    if own:
        return _check_own(state, prefix, layer, own)
    if dense:
        _cut(state, prefix, layer)
    return layer.nnzb


def checked_forward(state: dict[str, Any], prefix: str) -> Tensor | None:
    """Check the forward set of one layer in a checkpoint, and make it int32 there.

    Args:
        state: The checkpoint.
        prefix: What the names of this layer's entries begin with.

    Returns:
        The blocks that the product is to use; None if the checkpoint names none.

    Raises:
        TypeError: If the entry is no tensor of integers.
        ValueError: If it does not list stored blocks, ascending.
    """
    if prefix + "forward_blocks" not in state:
        return None
    used = _tensor(state, prefix, "forward_blocks")
    if used.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"forward_blocks must be int32, got {used.dtype}")
    stored = len(_floating(state, prefix, "values")) if prefix + "values" in state else 0
    bounds = torch.tensor([-1, stored], device=used.device)
    if used.ndim != 1 or not bool((torch.cat((bounds[:1], used, bounds[1:])).diff() > 0).all()):
        raise ValueError(
            f"forward_blocks must list some of the {stored} stored blocks of the checkpoint, "
            "ascending; save and load it together with values"
        )
    state[prefix + "forward_blocks"] = used.int()
    return used.int()


def _check_own(state: dict[str, Any], prefix: str, layer: "BlockSparse", own: list[str]) -> int:
    if len(own) < len(_OWN):
        missing = ", ".join(name for name in _OWN if name not in own)
        raise ValueError(
            f"the checkpoint has {', '.join(own)} but not {missing}; values are only known "
            "together with their indices, so give all three or none"
        )
    values = _floating(state, prefix, "values")
    crow, col = (_tensor(state, prefix, name) for name in _OWN[1:])
    if values.ndim != 3:
        raise ValueError(f"values must be [nnzb, r, c], got shape {list(values.shape)}")
    if tuple(values.shape[1:]) != layer.blocksize:
        raise ValueError(
            f"the checkpoint's blocksize is {tuple(values.shape[1:])}, the layer's is "
            f"{layer.blocksize}; build the layer with the checkpoint's blocksize"
        )
    try:
        pattern = Pattern(layer.shape, layer.blocksize, crow, col)
    except (TypeError, ValueError) as fault:
        raise ValueError(f"the checkpoint's pattern is not valid: {fault}") from fault
    if pattern.nnzb != len(values):
        raise ValueError(
            f"the checkpoint has {len(values)} blocks of values for {pattern.nnzb} column indices"
        )
    state[prefix + "crow_indices"] = pattern.crow_indices
    state[prefix + "col_indices"] = pattern.col_indices
    return pattern.nnzb


def _cut(state: dict[str, Any], prefix: str, layer: "BlockSparse") -> None:
    """Turn a dense weight into values at the layer's pattern, and say what that loses."""
    weight = _floating(state, prefix, "weight")
    stored = layer.shape if layer._layout == "linear" else layer.shape[::-1]
    if tuple(weight.shape) != stored:
        raise ValueError(
            f"the checkpoint's dense weight must have shape {list(stored)}, "
            f"got {list(weight.shape)}"
        )
    weight = weight.detach() if layer._layout == "linear" else weight.detach().t()
    pattern = layer.pattern.to(weight.device)
    values = gather_blocks(weight, pattern).contiguous()
    total = float(weight.abs().sum(dtype=torch.float64))
    lost = total - float(values.abs().sum(dtype=torch.float64))
    if lost > 1e-9 * total:
        warnings.warn(
            f"{prefix}weight is dense: {layer.nnzb} blocks at the layer's pattern were loaded and "
            f"{lost / total:.1%} of its L1 norm was dropped; to keep the strongest blocks, load "
            'the dense model and call sparsify_(model, …, method="magnitude")',
            UserWarning,
            stacklevel=2,
        )
    del state[prefix + "weight"]
    state[prefix + "values"] = values
    for name in ("crow_indices", "col_indices"):
        state[prefix + name] = getattr(layer, name).clone()


def _check_bias(state: dict[str, Any], prefix: str, layer: "BlockSparse") -> None:
    own = layer._parameters.get("bias")
    if own is None or prefix + "bias" not in state:
        return
    bias = _floating(state, prefix, "bias")
    if bias.shape != own.shape:
        raise ValueError(f"bias must have shape {list(own.shape)}, got {list(bias.shape)}")


def _floating(state: dict[str, Any], prefix: str, name: str) -> Tensor:
    value = _tensor(state, prefix, name)
    if not value.is_floating_point():
        raise TypeError(f"{name} must be of a floating type, got {value.dtype}")
    return value


def _tensor(state: dict[str, Any], prefix: str, name: str) -> Tensor:
    value = state[prefix + name]
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if value.layout != torch.strided:
        raise ValueError(f"{name} must be a plain (strided) tensor, got layout {value.layout}")
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device and holds no data")
    return value
