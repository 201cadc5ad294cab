"""Bytes that the demo's models hold in training, as rows of a table."""

import torch
from torch import nn

from sparsetile.bench._model import in_block
from sparsetile.train import bytes_of

KINDS = ("weights", "indices", "gradients", "optimizer")


def memory_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, object]]:
    """Count the bytes of weights, indices, gradients and optimizer state.

    Args:
        model: The model, after a training step.
        optimizer: Its optimizer.

    Returns:
        One row for each kind and part; part is `blocks` (layers that may be sparse) or `rest`.

    Examples:
        >>> layer = torch.nn.Linear(4, 2, bias=False)
        >>> rows = memory_of(layer, torch.optim.SGD(layer.parameters()))
        >>> sum(row["bytes"] for row in rows)
        32
    """
    memory = bytes_of(model, optimizer, layers=_may_be_sparse)
    return [
        {"part": part, "kind": kind, "bytes": getattr(found, kind)}
        for part, found in (("blocks", memory.sparse), ("rest", memory.rest))
        for kind in KINDS
    ]


def _may_be_sparse(module: nn.Module, name: str) -> bool:
    # Norms sit inside the blocks too, but are dense everywhere and small.
    return in_block(module, name) and "ln_" not in name and "LayerNorm" not in name
