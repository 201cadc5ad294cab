"""The product of a layer: y = x · Wᵀ + b with block-sparse W, in torch's layout."""

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.ops import _check
from sparsetile.ops._activation import activation_name
from sparsetile.ops._autocast import autocast
from sparsetile.ops._autograd import apply_linear
from sparsetile.ops._fast import at_once, remember
from sparsetile.ops._register_out import into

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]


def linear(
    x: Float[Tensor, "*batch k"],
    values: Float[Tensor, "nnzb r c"],
    pattern: Pattern,
    bias: Float[Tensor, " m"] | None = None,
    *,
    activation: Activation | None = None,
    out: Float[Tensor, "*batch m"] | None = None,
) -> Float[Tensor, "*batch m"]:
    """Multiply by a block-sparse weight as `torch.nn.functional.linear` does by a dense one.

    Args:
        x: Input `[..., k]`, any leading dimensions, any strides.
        values: Stored blocks of the weight `[nnzb, r, c]`. Elements outside the matrix (ragged
            last blocks) are never read, and their gradient is zero. bfloat16 or float16 are
            allowed beside float32 operands.
        pattern: Which blocks of the `m×k` weight are stored.
        bias: Added to the result `[m]`.
        activation: Function of torch.nn.functional to apply to the result: "relu", "gelu",
            "gelu_tanh" (its approximate form) or "silu". Part of the product where no gradient is
            wanted, which saves a pass over the result.
        out: Where to write the result `[..., m]`, of any strides, its memory apart from that of
            the operands. As in torch, no gradient can be wanted then, and autocast casts nothing.

    Returns:
        `activation(x · Wᵀ + bias)`, `[..., m]`, in the dtype of x, or that of autocast where it is
        on, as torch's own does. Summed in float32 or better and rounded once (twice for an
        activation with a gradient). `out` where that was given.

    Raises:
        TypeError: If an operand is no floating tensor or the dtypes do not go together.
        ValueError: If shapes or devices do not fit, or `out` shares memory.
        RuntimeError: If `out` is given and a gradient is wanted.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import linear
        >>> p = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
        >>> linear(torch.ones(5, 12), torch.ones(p.nnzb, 4, 4), p).shape
        torch.Size([5, 8])
    """
    op = "linear"
    _check.is_pattern(op, pattern)
    crow, col, shape = pattern.crow_indices, pattern.col_indices, pattern.shape
    function = activation_name(op, activation)
    if out is None:
        y = at_once(x, values, crow, col, shape, bias, function)
        if y is not None:
            return y
    x, values, bias = autocast(op, ("x", "values"), x, values, bias, casting=out is None)
    _check.values_fit(op, values, pattern)
    return _product(op, x, values, crow, col, shape, bias, function, out)


def linear_from_indices(
    x: Float[Tensor, "*batch k"],
    values: Float[Tensor, "nnzb r c"],
    crow_indices: Int[Tensor, " mb1"],
    col_indices: Int[Tensor, " nnzb"],
    shape: tuple[int, int],
    bias: Float[Tensor, " m"] | None = None,
    *,
    activation: Activation | None = None,
    out: Float[Tensor, "*batch m"] | None = None,
) -> Float[Tensor, "*batch m"]:
    """Multiply as `linear` does, by a weight whose pattern is two index tensors.

    The index tensors may be changed in place between calls, compiled ones too, by torch's in-place
    operations (`copy_`, `set_`, `crow[...] = ...`): what is kept about a pattern follows the
    version that those count up. Writes that count no version (through `.data`, numpy or other
    foreign views) are not seen. The content is trusted: a `Pattern` checks it, this function
    checks shapes only.

    Args:
        x: Input `[..., k]`.
        values: Stored blocks of the weight `[nnzb, r, c]`.
        crow_indices: Where each block row starts, int32 `[ceil(m / r) + 1]`.
        col_indices: Block column of each stored block, int32 `[nnzb]`, ascending in a row.
        shape: `(m, k)` of the weight.
        bias: Added to the result `[m]`.
        activation: As for `linear`.
        out: As for `linear`.

    Returns:
        `activation(x · Wᵀ + bias)`, `[..., m]`.

    Raises:
        TypeError: If an operand has a wrong type or dtype.
        ValueError: If shapes or devices do not fit, or `out` shares memory.
        RuntimeError: If `out` is given and a gradient is wanted.

    Examples:
        >>> import torch
        >>> from sparsetile.ops import linear_from_indices
        >>> crow, col = torch.tensor([0, 1, 2]).int(), torch.tensor([0, 0]).int()
        >>> linear_from_indices(torch.ones(1, 4), torch.ones(2, 1, 2), crow, col, (2, 4))
        tensor([[2., 2.]])
    """
    op = "linear_from_indices"
    function = activation_name(op, activation)
    if out is None:
        y = at_once(x, values, crow_indices, col_indices, shape, bias, function)
        if y is not None:
            return y
    x, values, bias = autocast(op, ("x", "values"), x, values, bias, casting=out is None)
    _check.indices(op, values, crow_indices, col_indices, shape)
    m, k = shape
    return _product(op, x, values, crow_indices, col_indices, (m, k), bias, function, out)


def _product(
    op: str,
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    shape: tuple[int, int],
    bias: Tensor | None,
    activation: str,
    out: Tensor | None,
) -> Tensor:
    m, k = shape
    _check.size(op, "x", x, -1, k, "[..., k]")
    if bias is not None and bias.shape != (m,):
        raise ValueError(
            f"{op}: bias has shape {list(bias.shape)}, but the weight has m = {m} rows; "
            f"it must be [{m}]"
        )
    if out is not None:
        _check.is_tensor(op, "out", out)
        return into("linear", out, x, values, crow, col, bias, m, k, False, activation)
    y = apply_linear(x, values, crow, col, bias, m, k, False, activation)
    remember(x, values, crow, col, shape, bias)
    return y
