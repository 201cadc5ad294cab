"""What torch.autocast means for the products: operands are cast, as torch's own products do."""

from typing import Any

import torch
from torch import Tensor

from sparsetile.ops import _check


def autocast(op: str, tensors: dict[str, Tensor | None]) -> Any:
    """Check the floating operands and cast them where autocast is on.

    float64 stays as it is, as in torch. The cast is differentiable, so gradients have the dtype
    of the parameters.

    Args:
        op: The function to name in errors.
        tensors: Its floating operands by argument name; the first is never None.

    Returns:
        The operands in the same order.
    """
    _check.operands(op, tensors)
    first = next(iter(tensors.values()))
    assert first is not None
    kind = first.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        tensors = {name: _cast(t, kind, dtype) for name, t in tensors.items()}
    _check.agree(op, tensors)
    return tensors.values()


def _cast(t: Tensor | None, kind: str, dtype: torch.dtype) -> Tensor | None:
    if t is None or t.device.type != kind or t.dtype is torch.float64:
        return t
    return t.to(dtype)
