"""Knows the copies of a layer, and which of them other code keeps up to date."""

import weakref
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from sparsetile.nn._block_sparse import BlockSparse

# The copies of each layer made by copy.deepcopy.
_COPIES: "weakref.WeakKeyDictionary[BlockSparse, weakref.WeakSet[BlockSparse]]" = (
    weakref.WeakKeyDictionary()
)
# Versions of the tensors of a copy when its indices and values were last known to fit together.
_WHOLE: "weakref.WeakKeyDictionary[BlockSparse, tuple[int, ...]]" = weakref.WeakKeyDictionary()


def note_copy(layer: "BlockSparse", twin: "BlockSparse") -> None:
    """Remember that a layer was copied.

    Args:
        layer: The layer.
        twin: Its copy.
    """
    _COPIES.setdefault(layer, weakref.WeakSet()).add(twin)
    _WHOLE[twin] = _versions(twin)


def note_whole(layer: "BlockSparse") -> None:
    """Remember that indices and values of a layer were written together.

    Args:
        layer: The layer; nothing is noted of one that is no copy.
    """
    if layer in _WHOLE:
        _WHOLE[layer] = _versions(layer)


def averages_of(layer: "BlockSparse") -> list["BlockSparse"]:
    """Find the copies of a layer that other code averages with it.

    Averaging writes the values and copies the buffers, the indices among them, where a checkpoint
    loads both.

    Args:
        layer: The layer; its pattern has not moved since the last average was taken.

    Returns:
        The copies, each told of once.
    """
    found = []
    for twin in list(_COPIES.get(layer, ())):
        before, now = _WHOLE.get(twin), _versions(twin)
        if not before or not now or not all(a < b for a, b in zip(before, now, strict=True)):
            continue
        if twin.values.grad is None and twin.pattern == layer.pattern:
            found.append(twin)
            _COPIES[layer].discard(twin)
    return found


def _versions(layer: "BlockSparse") -> tuple[int, ...]:
    tensors: list[torch.Tensor] = [layer.values, layer.crow_indices, layer.col_indices]
    if any(tensor.is_meta or tensor.is_inference() for tensor in tensors):
        return ()
    return tuple(tensor._version for tensor in tensors)
