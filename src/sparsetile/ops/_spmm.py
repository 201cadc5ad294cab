"""The product of a block-sparse matrix with a dense one: Y = W · X."""

from jaxtyping import Float
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.ops import _check
from sparsetile.ops._autocast import autocast
from sparsetile.ops._autograd import apply_spmm


def spmm(
    values: Float[Tensor, "nnzb r c"],
    pattern: Pattern,
    x: Float[Tensor, "*batch k n"],
) -> Float[Tensor, "*batch m n"]:
    """Multiply a block-sparse matrix by a dense one.

    Args:
        values: Stored blocks `[nnzb, r, c]`. Elements outside the matrix (ragged last blocks) are
            never read, and their gradient is zero.
        pattern: Which blocks of the `m×k` matrix are stored.
        x: Dense matrices `[..., k, n]`, any leading dimensions, any strides.

    Returns:
        `W · x`, `[..., m, n]`, summed in float32 or better; in the dtype of autocast where that
        is on.

    Raises:
        TypeError: If an operand is no floating tensor or the dtypes differ.
        ValueError: If shapes or devices do not fit.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import spmm
        >>> p = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
        >>> spmm(torch.ones(p.nnzb, 4, 4), p, torch.ones(12, 3)).shape
        torch.Size([8, 3])
    """
    _check.is_pattern("spmm", pattern)
    values, x, _ = autocast("spmm", ("values", "x"), values, x)
    _check.values_fit("spmm", values, pattern)
    m, k = pattern.shape
    if x.dim() == 1:
        raise ValueError(
            f"spmm: x has shape {list(x.shape)}, but it must be [..., k, n]; "
            "for one vector use x.unsqueeze(-1), or A @ x with a BSR"
        )
    _check.size("spmm", "x", x, -2, k, "[..., k, n]")
    return apply_spmm(values, pattern.crow_indices, pattern.col_indices, x, m, k, False)
