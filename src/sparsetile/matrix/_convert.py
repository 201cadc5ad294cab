"""Lists of blocks or elements made canonical, and blocks spelled out as elements."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import message
from sparsetile.matrix._index import offsets_of
from sparsetile.matrix._pattern import Pattern


class Rows(NamedTuple):
    """A matrix as rows of single elements, columns ascending: the CSR of torch and scipy."""

    crow: Int[Tensor, " m1"]
    col: Int[Tensor, " numel"]
    values: Shaped[Tensor, " numel"]


def from_blocks(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    rows: Int[Tensor, " n"],
    cols: Int[Tensor, " n"],
    values: Shaped[Tensor, "n r c"],
) -> BSR:
    """Sort blocks and sum those that share a place.

    Args:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of the blocks.
        rows: Block row of each block, in any order.
        cols: Block column of each block.
        values: The blocks.

    Returns:
        A matrix with values of its own.

    Raises:
        ValueError: If an index is out of range.

    Examples:
        >>> one = torch.tensor([0, 0])
        >>> from_blocks((1, 1), (1, 1), one, one, torch.ones(2, 1, 1)).values
        tensor([[[2.]]])
    """
    mb, kb = -(-shape[0] // blocksize[0]), -(-shape[1] // blocksize[1])
    _check_range("block row", rows, mb)
    _check_range("block column", cols, kb)
    key, values = _coalesce(rows.long() * kb + cols, values)
    return BSR(values, _pattern_of_keys(shape, blocksize, key))


def from_elements(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    rows: Int[Tensor, " n"],
    cols: Int[Tensor, " n"],
    values: Shaped[Tensor, " n"],
) -> BSR:
    """Gather single elements into blocks, summing those that share a place.

    Args:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of the blocks to make.
        rows: Row of each element, in any order.
        cols: Column of each element.
        values: The elements.

    Returns:
        A matrix whose blocks hold every element given, explicit zeros too.

    Raises:
        ValueError: If an index is out of range.

    Examples:
        >>> i, j = torch.tensor([0, 1]), torch.tensor([1, 0])
        >>> from_elements((2, 2), (2, 2), i, j, torch.tensor([5.0, 7.0])).values
        tensor([[[0., 5.],
                 [7., 0.]]])
    """
    (m, k), (r, c) = shape, blocksize
    _check_range("row", rows, m)
    _check_range("column", cols, k)
    rows, cols = rows.long(), cols.long()
    place = (rows // r * -(-k // c) + cols // c) * (r * c) + rows % r * c + cols % c
    place, values = _coalesce(place, values)
    key, block = torch.unique_consecutive(place // (r * c), return_inverse=True)
    flat = values.new_zeros(len(key) * r * c)
    flat = flat.index_put((block * (r * c) + place % (r * c),), values)
    return BSR(flat.view(-1, r, c), _pattern_of_keys(shape, blocksize, key))


def pattern_of_elements(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    rows: Int[Tensor, " n"],
    cols: Int[Tensor, " n"],
) -> Pattern:
    """Find the blocks that hold the elements given; duplicates count once.

    Args:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of the blocks.
        rows: Row of each element, in any order.
        cols: Column of each element.

    Returns:
        The pattern.

    Raises:
        ValueError: If an index is out of range.

    Examples:
        >>> pattern_of_elements((4, 4), (2, 2), torch.tensor([3, 2]), torch.tensor([0, 1])).nnzb
        1
    """
    (m, k), (r, c) = shape, blocksize
    _check_range("row", rows, m)
    _check_range("column", cols, k)
    key = rows.long() // r * -(-k // c) + cols.long() // c
    # Files list elements row by row, so that equal blocks are mostly neighbours: fewer to sort.
    return _pattern_of_keys(shape, blocksize, torch.unique(torch.unique_consecutive(key)))


def to_rows(A: BSR, *, drop_zeros: bool) -> Rows:
    """Spell a matrix out element by element.

    Args:
        A: The matrix.
        drop_zeros: Leave out stored values that are zero.

    Returns:
        Elements inside the matrix, row by row, columns ascending, int64 indices.

    Examples:
        >>> A = BSR.from_dense(torch.eye(2), blocksize=2)
        >>> to_rows(A, drop_zeros=True).col
        tensor([0, 1])
    """
    (m, k), (r, c), p = A.shape, A.blocksize, A.pattern
    start = p.crow_indices.long()
    row, count = p.row_indices.long(), start.diff()
    values, block = A.values.detach().reshape(-1, c), torch.arange(p.nnzb, device=p.device)
    if r == 1:
        values = values.clone()
    else:
        # Every row of a block is a run of c elements. Runs go block row by block row, then by their
        # row in the block, then by block: run (b, i) comes at start·r + i·count + (b - start).
        first = (start[row] * (r - 1) + block)[:, None]
        at = first + torch.arange(r, device=p.device) * count[row][:, None]
        order = torch.empty(p.nnzb * r, dtype=torch.int64, device=p.device)
        order[at.flatten()] = torch.arange(p.nnzb * r, device=p.device)
        values, block = values[order], order // r
    col = (p.col_indices.long()[block] * c)[:, None] + torch.arange(c, device=p.device)
    crow = pad((count * c).repeat_interleave(r).cumsum(0), (1, 0))
    values, col = values.flatten(), col.flatten()
    # Rows beyond a ragged edge come last; columns beyond it sit at the end of their rows.
    crow = crow[: m + 1]
    values, col = values[: crow[-1]], col[: crow[-1]]
    if k % c or drop_zeros:
        kept = col < k
        if drop_zeros:
            kept &= values != 0
        crow = pad(kept.cumsum(0), (1, 0))[crow]
        values, col = values[kept], col[kept]
    return Rows(crow, col, values)


def drop_zero_blocks(A: BSR) -> BSR:
    """Leave out the blocks whose values inside the matrix are all zero.

    Args:
        A: The matrix.

    Returns:
        The matrix without them; `A` itself when there are none.

    Examples:
        >>> A = BSR.from_dense(torch.eye(4), blocksize=2, drop_zero_blocks=False)
        >>> A.nnzb, drop_zero_blocks(A).nnzb
        (4, 2)
    """
    kept = ((A.values != 0) & _inside(A.pattern)).flatten(1).any(1)
    if bool(kept.all()):
        return A
    p = A.pattern
    crow = pad(kept.cumsum(0), (1, 0))[p.crow_indices.long()]
    return BSR(A.values[kept], Pattern(p.shape, p.blocksize, crow, p.col_indices[kept]))


def reblock(A: BSR, blocksize: tuple[int, int]) -> BSR:
    """Store a matrix in blocks of another shape.

    Args:
        A: The matrix.
        blocksize: Rows and columns of the new blocks.

    Returns:
        Every block that holds a stored value of `A`; `A` itself when the shape is the same.

    Examples:
        >>> reblock(BSR.from_dense(torch.eye(4), blocksize=1), (2, 2)).nnzb
        2
    """
    if blocksize == A.blocksize:
        return A
    crow, col, values = to_rows(A, drop_zeros=False)
    return from_elements(A.shape, blocksize, spell_out(crow), col, values)


def spell_out(crow: Int[Tensor, " m1"]) -> Int[Tensor, " numel"]:
    """Turn row offsets into the row of each entry.

    Args:
        crow: Offsets of the rows.

    Returns:
        Row indices, int64.

    Examples:
        >>> spell_out(torch.tensor([0, 2, 2, 3]))
        tensor([0, 0, 2])
    """
    rows = torch.arange(len(crow) - 1, device=crow.device)
    return rows.repeat_interleave(crow.diff())


def _pattern_of_keys(shape: tuple[int, int], blocksize: tuple[int, int], key: Tensor) -> Pattern:
    """Turn ascending positions in the grid of blocks into a pattern."""
    mb, kb = -(-shape[0] // blocksize[0]), max(-(-shape[1] // blocksize[1]), 1)
    return Pattern(shape, blocksize, offsets_of(key // kb, mb), key % kb)


def _coalesce(key: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort by key and sum the values of equal keys; a copy even when there is nothing to do."""
    if bool((key[1:] > key[:-1]).all()):
        return key, values.clone(memory_format=torch.contiguous_format)
    key, order = torch.sort(key, stable=True)
    values = values[order].contiguous()
    # Adding to zero would turn -0.0 into 0.0, so only where there is something to add.
    if bool((key[1:] > key[:-1]).all()):
        return key, values
    unique, place = torch.unique_consecutive(key, return_inverse=True)
    return unique, values.new_zeros(len(unique), *values.shape[1:]).index_add(0, place, values)


def _check_range(name: str, index: Tensor, size: int) -> None:
    if not len(index) or bool((index.amin() >= 0) & (index.amax() < size)):
        return
    wrong = int(index[(index < 0) | (index >= size)][0])
    raise ValueError(
        message(
            name,
            got=wrong,
            allowed=f"0 to {size - 1}" if size else "none: the matrix is empty",
            fix="check the indices against the shape before converting",
        )
    )


def _inside(p: Pattern) -> Bool[Tensor, "*grid"]:
    """Mark the values that lie inside the matrix; a single True when all do."""
    if not p.ragged:
        return torch.ones((), dtype=torch.bool, device=p.device)
    (m, k), (r, c) = p.shape, p.blocksize
    rows = p.row_indices.long()[:, None] * r + torch.arange(r, device=p.device)
    cols = p.col_indices.long()[:, None] * c + torch.arange(c, device=p.device)
    return (rows < m)[:, :, None] & (cols < k)[:, None, :]
