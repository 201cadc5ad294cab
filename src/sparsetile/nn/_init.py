"""First values of a sparse layer, by the number of inputs each output really has."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from sparsetile.matrix import Pattern


def fan_in(pattern: Pattern) -> Float[Tensor, " mb"]:
    """Count the stored input columns of every block row.

    Args:
        pattern: Which blocks are stored.

    Returns:
        Columns inside the matrix that are stored, one count for each block row.

    Examples:
        >>> fan_in(Pattern((4, 5), 2, [0, 2, 3], [0, 2, 1]))
        tensor([3., 2.])
    """
    k, c = pattern.shape[1], pattern.blocksize[1]
    width = (k - pattern.col_indices.long() * c).clamp(max=c)
    fan = torch.zeros(pattern.grid[0], dtype=torch.float32, device=pattern.device)
    return fan.index_add_(0, pattern.row_indices.long(), width.float())


def inside(pattern: Pattern) -> Bool[Tensor, "nnzb r c"]:
    """Tell the entries of the blocks that lie inside the matrix from their padding.

    Args:
        pattern: Which blocks are stored.

    Returns:
        True where an entry belongs to the matrix.

    Examples:
        >>> inside(Pattern((2, 3), 2, [0, 1], [1])).tolist()
        [[[True, False], [True, False]]]
    """
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    rows = pattern.row_indices[:, None] * r + torch.arange(r, device=pattern.device)
    columns = pattern.col_indices[:, None] * c + torch.arange(c, device=pattern.device)
    return (rows < m)[:, :, None] & (columns < k)[:, None, :]


@torch.no_grad()
def fill_(values: Tensor, bias: Tensor | None, pattern: Pattern) -> None:
    """Draw values and bias uniformly within ±1/√fan-in, row by row.

    This is what `torch.nn.Linear` does, with the fan-in that is left: a row that stores 40
    of 400 inputs is drawn within ±1/√40. The bias of a row that stores nothing is drawn within
    ±1/√k. Padding is zero.
    """
    k = pattern.shape[1]
    fan = fan_in(pattern)
    bound = fan.clamp(min=1).rsqrt()
    values.uniform_(-1, 1)
    values *= bound[pattern.row_indices.long(), None, None].to(values.dtype)
    if pattern.ragged:
        values.masked_fill_(~inside(pattern), 0)
    if bias is not None:
        bound = torch.where(fan == 0, float(max(k, 1)) ** -0.5, bound)
        by_row = bound.repeat_interleave(pattern.blocksize[0])[: len(bias)]
        bias.uniform_(-1, 1)
        bias *= by_row.to(bias.dtype) if k else 0


def drawn(
    pattern: Pattern, blocks: Int64[Tensor, " n"], generator: torch.Generator
) -> Float[Tensor, "n r c"]:
    """Draw some blocks as `fill_` draws them all.

    Args:
        pattern: Which blocks are stored.
        blocks: Which of them to draw.
        generator: A generator on the CPU, so that every device draws alike.

    Returns:
        Their values, float32; padding is zero.

    Examples:
        >>> pattern = Pattern((2, 8), 2, [0, 2], [1, 3])  # 4 inputs in each row
        >>> bool((drawn(pattern, torch.tensor([1]), torch.Generator()).abs() <= 0.5).all())
        True
    """
    values = torch.rand(len(blocks), *pattern.blocksize, generator=generator) * 2 - 1
    bound = fan_in(pattern).clamp(min=1).rsqrt()[pattern.row_indices[blocks].long()]
    values = values.to(pattern.device) * bound[:, None, None]
    return torch.where(inside(pattern)[blocks], values, 0) if pattern.ragged else values
