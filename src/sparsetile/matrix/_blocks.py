"""Blocks taken out of a dense matrix and put back: plain torch, differentiable, on any device."""

import torch
from jaxtyping import Shaped
from torch import Tensor

from sparsetile.matrix._check import check_dense, describe, message
from sparsetile.matrix._pattern import Pattern


def gather_blocks(w: Shaped[Tensor, "m k"], pattern: Pattern) -> Shaped[Tensor, "nnzb r c"]:
    """Copy the stored blocks out of a dense matrix.

    Needs memory for the blocks alone, nothing of the matrix's size. What a ragged block has
    beyond the edge is zero.

    Args:
        w: Dense matrix `[m, k]` of the pattern's shape, any strides.
        pattern: The blocks to take.

    Returns:
        Values `[nnzb, r, c]`, contiguous.

    Raises:
        TypeError: If `w` is not a tensor.
        ValueError: If shape or device differ from the pattern's.

    Examples:
        >>> p = Pattern((2, 4), 2, [0, 1], [1])
        >>> gather_blocks(torch.arange(8.0).reshape(2, 4), p)
        tensor([[[2., 3.],
                 [6., 7.]]])
    """
    check_dense("w", w)
    _check_fit("w", w, pattern.shape, pattern)
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    full_rows, full_cols = m // r, k // c
    # A view: the whole blocks of w as a grid of blocks.
    grid = w[: full_rows * r, : full_cols * c].unflatten(0, (full_rows, r))
    grid = grid.unflatten(2, (full_cols, c)).transpose(1, 2)
    row, col = pattern.row_indices, pattern.col_indices
    if not pattern.ragged:
        return grid[row, col].contiguous()
    whole = (row < full_rows) & (col < full_cols)
    inner, edge = whole.nonzero()[:, 0], (~whole).nonzero()[:, 0]
    values = w.new_zeros(pattern.nnzb, r, c).index_put((inner,), grid[row[inner], col[inner]])
    # Element by element for the few blocks on the edge: read inside, then blank what is outside.
    rows = row[edge].long()[:, None, None] * r + torch.arange(r, device=w.device)[:, None]
    cols = col[edge].long()[:, None, None] * c + torch.arange(c, device=w.device)
    taken = w[rows.clamp(max=m - 1), cols.clamp(max=k - 1)]
    taken = torch.where((rows < m) & (cols < k), taken, taken.new_zeros(()))
    return values.index_put((edge,), taken)


def scatter_blocks(values: Shaped[Tensor, "nnzb r c"], pattern: Pattern) -> Shaped[Tensor, "m k"]:
    """Write blocks into a dense matrix of zeros.

    Args:
        values: Blocks `[nnzb, r, c]`; what lies beyond a ragged edge is not read.
        pattern: Where they go.

    Returns:
        The dense matrix `[m, k]`, contiguous.

    Raises:
        TypeError: If `values` is not a tensor.
        ValueError: If shape or device differ from the pattern's.

    Examples:
        >>> p = Pattern((2, 3), 2, [0, 1], [1])
        >>> scatter_blocks(torch.ones(1, 2, 2), p)
        tensor([[0., 0., 1.],
                [0., 0., 1.]])
    """
    check_values(values, pattern)
    (m, k), (r, c), (mb, kb) = pattern.shape, pattern.blocksize, pattern.grid
    grid = values.new_zeros(mb, r, kb, c).transpose(1, 2)
    # Out of place: an in-place write would make autograd copy the dense gradient once more.
    grid = grid.index_put((pattern.row_indices, pattern.col_indices), values)
    dense = grid.transpose(1, 2).reshape(mb * r, kb * c)
    return dense[:m, :k].contiguous()


def check_values(values: object, pattern: object) -> None:
    """Refuse values that are not the blocks of a pattern.

    Args:
        values: What should be a tensor `[nnzb, r, c]`.
        pattern: What should be the pattern they belong to.

    Raises:
        TypeError: If either is of another type.
        ValueError: If shape, layout or device do not fit.

    Examples:
        >>> check_values(torch.zeros(1, 2, 2), Pattern((2, 4), 2, [0, 1], [1]))
    """
    if not isinstance(pattern, Pattern):
        raise TypeError(
            message(
                "pattern",
                got=describe(pattern),
                allowed="a sparsetile.Pattern",
                fix="make one with random_pattern, pattern_of or Pattern(...)",
            )
        )
    shape = (pattern.nnzb, *pattern.blocksize)
    if not isinstance(values, Tensor):
        raise TypeError(
            message(
                "values",
                got=describe(values),
                allowed=f"a torch tensor of shape {list(shape)}",
                fix="convert it with torch.as_tensor",
            )
        )
    if values.layout != torch.strided:
        raise ValueError(
            message(
                "values",
                got=describe(values),
                allowed="a dense (strided) tensor of blocks",
                fix="use BSR.from_torch for sparse tensors",
            )
        )
    _check_fit("values", values, shape, pattern)


def _check_fit(name: str, given: Tensor, shape: tuple[int, ...], pattern: Pattern) -> None:
    """Refuse a tensor of another shape or device than the pattern asks for."""
    if tuple(given.shape) != shape:
        raise ValueError(
            message(
                name,
                got=describe(given),
                allowed=f"shape {list(shape)} for a pattern of {pattern.summary()}",
                fix="use the pattern that belongs to it",
            )
        )
    if given.device != pattern.device:
        raise ValueError(
            message(
                name,
                got=f"{describe(given)} with a pattern on {pattern.device}",
                allowed="both on one device",
                fix="move the pattern with pattern.to(device)",
            )
        )
