"""Sampled product: the blocks of A · B that a pattern stores."""

import torch
from jaxtyping import Float
from torch import Tensor

from sparsetile.matrix import Pattern
from sparsetile.ops import _check
from sparsetile.ops._autocast import autocast
from sparsetile.ops._autograd import apply_sddmm
from sparsetile.ops._register_out import into


def sddmm(
    a: Float[Tensor, "*batch_a m t"],
    b: Float[Tensor, "*batch_b t k"],
    pattern: Pattern,
    *,
    out: Float[Tensor, "*batch nnzb r c"] | None = None,
) -> Float[Tensor, "*batch nnzb r c"]:
    """Compute the blocks of a dense product that a pattern stores, and no others.

    Args:
        a: Left factors `[..., m, t]`, any strides.
        b: Right factors `[..., t, k]`, any strides; leading dimensions broadcast as in
            `torch.matmul`.
        pattern: Which blocks of the `m×k` product to compute.
        out: Where to write the blocks `[..., nnzb, r, c]`, of any strides, its memory apart from
            that of the operands. As in torch, no gradient can be wanted then, and autocast casts
            nothing.

    Returns:
        The blocks `[..., nnzb, r, c]`, summed in float32 or better and rounded once; zero outside
        the matrix. `out` where that was given.

    Raises:
        TypeError: If an operand is no floating tensor or the dtypes differ.
        ValueError: If shapes or devices do not fit, or `out` shares memory.
        RuntimeError: If `out` is given and a gradient is wanted.

    Examples:
        >>> import torch
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.ops import sddmm
        >>> p = random_pattern(8, 12, blocksize=4, density=0.5, seed=0)
        >>> sddmm(torch.ones(8, 5), torch.ones(5, 12), p).shape
        torch.Size([3, 4, 4])
    """
    _check.is_pattern("sddmm", pattern)
    a, b, _ = autocast("sddmm", ("a", "b"), a, b, casting=out is None)
    m, k = pattern.shape
    _check.size("sddmm", "a", a, -2, m, "[..., m, t]")
    _check.size("sddmm", "b", b, -1, k, "[..., t, k]")
    _check.size("sddmm", "b", b, -2, a.shape[-1], "[..., t, k]")
    _check.pattern_device("sddmm", "a", a, pattern)
    if a.shape[:-2] != b.shape[:-2]:
        try:
            lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except RuntimeError:
            raise ValueError(
                f"sddmm: the leading dimensions of a {list(a.shape)} and b {list(b.shape)} do not "
                "broadcast; make them equal, or 1 where one is repeated"
            ) from None
        a, b = a.expand(*lead, *a.shape[-2:]), b.expand(*lead, *b.shape[-2:])
    r, c = pattern.blocksize
    args = (a, b, pattern.crow_indices, pattern.col_indices, r, c, False)
    if out is not None:
        _check.is_tensor("sddmm", "out", out)
        return into("sddmm", out, *args)
    return apply_sddmm(*args)
