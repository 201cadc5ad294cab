"""What torch.autocast means for the products: operands are cast, as torch's own products do."""

import torch
from torch import Tensor

from sparsetile.ops import _check

Operands = tuple[Tensor, Tensor, Tensor | None]


def autocast(
    op: str,
    names: tuple[str, str],
    x: Tensor,
    y: Tensor,
    bias: Tensor | None = None,
    *,
    casting: bool = True,
) -> Operands:
    """Check the floating operands of a product and cast them where autocast is on.

    float64 stays as it is, as in torch. The cast is differentiable, so gradients have the dtype
    of the parameters.

    Args:
        op: The function to name in errors.
        names: What x and y are called there.
        x: First operand.
        y: Second operand.
        bias: Third operand, if any.
        casting: False for a product into a given tensor, which autocast leaves alone in torch too.

    Returns:
        The three operands on one device, of one floating dtype; those called `values` may be of a
        narrower one where autocast is off.
    """
    mixed = names[1] == "values"
    if _check.in_order(x, y, bias, mixed) and not (
        casting and torch.is_autocast_enabled(x.device.type)
    ):
        return x, y, bias
    named = dict(zip((*names, "bias"), (x, y, bias), strict=True))
    _check.operands(op, named)
    kind = x.device.type
    if casting and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        x, y = _cast(x, kind, dtype), _cast(y, kind, dtype)
        bias = None if bias is None else _cast(bias, kind, dtype)
        named = dict(zip(named, (x, y, bias), strict=True))
    _check.agree(op, named)
    return x, y, bias


def _cast(t: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
    return t if t.device.type != kind or t.dtype is torch.float64 else t.to(dtype)
