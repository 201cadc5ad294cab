"""The product of a block-sparse matrix with a dense one: Y = W · X."""

from jaxtyping import Float
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.ops import _check
from sparsetile.ops._autocast import autocast
from sparsetile.ops._autograd import apply_spmm
from sparsetile.ops._register_out import into


def spmm(
    values: Float[Tensor, "nnzb r c"],
    pattern: Pattern,
    x: Float[Tensor, "*batch k n"],
    *,
    out: Float[Tensor, "*batch m n"] | None = None,
) -> Float[Tensor, "*batch m n"]:
    """Multiply a block-sparse matrix by a dense one.

    Args:
        values: Stored blocks `[nnzb, r, c]`. Elements outside the matrix (ragged last blocks) are
            never read, and their gradient is zero. bfloat16 or float16 are allowed beside a
            float32 x.
        pattern: Which blocks of the `m×k` matrix are stored.
        x: Dense matrices `[..., k, n]`, any leading dimensions, any strides.
        out: Where to write the result `[..., m, n]`, of any strides, its memory apart from that of
            the operands. As in torch, no gradient can be wanted then, and autocast casts nothing.

    Returns:
        `W · x`, `[..., m, n]`, in the dtype of x, or that of autocast where it is on; summed in
        float32 or better and rounded once. `out` where that was given.

    Raises:
        TypeError: If an operand is no floating tensor or the dtypes do not go together.
        ValueError: If shapes or devices do not fit, or `out` shares memory.
        RuntimeError: If `out` is given and a gradient is wanted.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import spmm
        >>> p = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
        >>> spmm(torch.ones(p.nnzb, 4, 4), p, torch.ones(12, 3)).shape
        torch.Size([8, 3])
    """
    _check.is_pattern("spmm", pattern)
    x, values, _ = autocast("spmm", ("x", "values"), x, values, casting=out is None)
    _check.values_fit("spmm", values, pattern)
    m, k = pattern.shape
    if x.dim() == 1:
        raise ValueError(
            f"spmm: x has shape {list(x.shape)}, but it must be [..., k, n]; "
            "for one vector use x.unsqueeze(-1), or A @ x with a BSR"
        )
    _check.size("spmm", "x", x, -2, k, "[..., k, n]")
    args = (values, pattern.crow_indices, pattern.col_indices, x, m, k, False)
    if out is not None:
        _check.is_tensor("spmm", "out", out)
        return into("spmm", out, *args)
    return apply_spmm(*args)
