"""The product of a layer: y = x · Wᵀ + b with block-sparse W, in torch's layout."""

from jaxtyping import Float, Int
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.ops import _check
from sparsetile.ops._autocast import autocast
from sparsetile.ops._autograd import apply_linear


def linear(
    x: Float[Tensor, "*batch k"],
    values: Float[Tensor, "nnzb r c"],
    pattern: Pattern,
    bias: Float[Tensor, " m"] | None = None,
) -> Float[Tensor, "*batch m"]:
    """Multiply by a block-sparse weight as `torch.nn.functional.linear` does by a dense one.

    Args:
        x: Input `[..., k]`, any leading dimensions, any strides.
        values: Stored blocks of the weight `[nnzb, r, c]`. Elements outside the matrix (ragged
            last blocks) are never read, and their gradient is zero.
        pattern: Which blocks of the `m×k` weight are stored.
        bias: Added to the result `[m]`.

    Returns:
        `x · Wᵀ + bias`, `[..., m]`, summed in float32 or better; in the dtype of autocast where
        that is on, as torch's own does.

    Raises:
        TypeError: If an operand is no floating tensor or the dtypes differ.
        ValueError: If shapes or devices do not fit.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import linear
        >>> p = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
        >>> linear(torch.ones(5, 12), torch.ones(p.nnzb, 4, 4), p).shape
        torch.Size([5, 8])
    """
    _check.is_pattern("linear", pattern)
    x, values, bias = autocast("linear", ("x", "values"), x, values, bias)
    _check.values_fit("linear", values, pattern)
    crow, col = pattern.crow_indices, pattern.col_indices
    return _product("linear", x, values, crow, col, pattern.shape, bias)


def linear_from_indices(
    x: Float[Tensor, "*batch k"],
    values: Float[Tensor, "nnzb r c"],
    crow_indices: Int[Tensor, " mb1"],
    col_indices: Int[Tensor, " nnzb"],
    shape: tuple[int, int],
    bias: Float[Tensor, " m"] | None = None,
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

    Returns:
        `x · Wᵀ + bias`, `[..., m]`.

    Raises:
        TypeError: If an operand has a wrong type or dtype.
        ValueError: If shapes or devices do not fit.

    Examples:
        >>> import torch
        >>> from sparsetile.ops import linear_from_indices
        >>> crow, col = torch.tensor([0, 1, 2]).int(), torch.tensor([0, 0]).int()
        >>> linear_from_indices(torch.ones(1, 4), torch.ones(2, 1, 2), crow, col, (2, 4))
        tensor([[2., 2.]])
    """
    x, values, bias = autocast("linear_from_indices", ("x", "values"), x, values, bias)
    _check.indices("linear_from_indices", values, crow_indices, col_indices, shape)
    m, k = shape
    return _product("linear_from_indices", x, values, crow_indices, col_indices, (m, k), bias)


def _product(
    op: str,
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    shape: tuple[int, int],
    bias: Tensor | None,
) -> Tensor:
    m, k = shape
    _check.size(op, "x", x, -1, k, "[..., k]")
    if bias is not None and bias.shape != (m,):
        raise ValueError(
            f"{op}: bias has shape {list(bias.shape)}, but the weight has m = {m} rows; "
            f"it must be [{m}]"
        )
    return apply_linear(x, values, crow, col, bias, m, k, False)
