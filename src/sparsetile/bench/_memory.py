"""Bytes that training holds: counted from the tensors, not estimated."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sparsetile.bench._model import in_block

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
    rows: list[dict[str, object]] = []
    names = {id(p): n for n, p in model.named_parameters()}
    for part in ("blocks", "rest"):
        inside = part == "blocks"
        parameters = [p for p in model.parameters() if _in_layers(names[id(p)]) == inside]
        buffers = [b for n, b in model.named_buffers() if _in_layers(n) == inside]
        state = [
            value
            for p in parameters
            for value in optimizer.state.get(p, {}).values()
            if isinstance(value, Tensor)
        ]
        tensors: dict[str, Iterable[Tensor]] = {
            "weights": parameters,
            "indices": [b for b in buffers if b.dtype in (torch.int32, torch.int64)],
            "gradients": [p.grad for p in parameters if p.grad is not None],
            "optimizer": state,
        }
        rows += [
            {"part": part, "kind": kind, "bytes": sum(t.nbytes for t in tensors[kind])}
            for kind in KINDS
        ]
    return rows


def _in_layers(name: str) -> bool:
    # Norms sit inside the blocks too, but are dense everywhere and small.
    return in_block(nn.Identity(), name) and "ln_" not in name and "LayerNorm" not in name
