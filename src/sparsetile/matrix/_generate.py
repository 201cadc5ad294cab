"""Patterns made by rule or by chance."""

import numpy as np
import torch
from numpy.typing import NDArray

from sparsetile.matrix._balanced import balanced_places
from sparsetile.matrix._check import (
    as_blocksize,
    as_density,
    as_device,
    as_int,
    as_size,
    message,
)
from sparsetile.matrix._index import check_count, grid_of
from sparsetile.matrix._pattern import Pattern


def random_pattern(
    m: int,
    k: int,
    *,
    blocksize: int | tuple[int, int],
    density: float,
    seed: int,
    balanced: bool = False,
    device: torch.device | str | int | None = None,
) -> Pattern:
    """Choose blocks uniformly at random, the same ones for a seed on every machine.

    Args:
        m: Rows.
        k: Columns.
        blocksize: Side of a square block or `(r, c)`.
        density: Fraction of the blocks to store, in (0, 1].
        seed: Integer from 0 up.
        balanced: Give every block row the same count, and every block column (one more in some
            where it does not divide).
        device: Where the index tensors shall live.

    Returns:
        A pattern of exactly `round(density * blocks)` blocks, at least one unless there are none.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> random_pattern(64, 64, blocksize=16, density=0.25, seed=0)
        Pattern(64×64, blocksize=16, density=0.25, 4 blocks, cpu)
    """
    m, k, (r, c) = as_size("m", m), as_size("k", k), as_blocksize(blocksize)
    density = as_density(density)
    seed = as_int("seed", seed, least=0, most=2**64 - 1, fix="pass an integer, as in seed=0")
    device = as_device(device)
    mb, kb = grid_of((m, k), (r, c))
    count = block_count(mb * kb, density)
    check_count("density", count)
    # The raw stream of a bit generator is fixed by numpy's promise; its distributions are not.
    bits = np.random.PCG64(seed)
    if balanced:
        place = balanced_places(bits, count, mb, kb)
    else:
        place = _choose(bits, count, mb * kb)
    row, col = np.divmod(place, max(kb, 1))
    crow = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=mb))])
    return Pattern((m, k), (r, c), crow, col).to(device)


def banded_pattern(
    m: int,
    k: int,
    *,
    blocksize: int | tuple[int, int],
    lower: int,
    upper: int,
    device: torch.device | str | int | None = None,
) -> Pattern:
    """Keep the blocks that touch a band around the main diagonal.

    Args:
        m: Rows.
        k: Columns.
        blocksize: Side of a square block or `(r, c)`.
        lower: Diagonals below the main one, counted in elements.
        upper: Diagonals above the main one.
        device: Where the index tensors shall live.

    Returns:
        The blocks that hold an element (i, j) with -lower ≤ j - i ≤ upper.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a size or a bandwidth is negative.

    Examples:
        >>> banded_pattern(6, 6, blocksize=2, lower=1, upper=0).block_mask().int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    fix = "pass a number of diagonals, 0 for none"
    lower = as_int("lower", lower, least=0, fix=fix)
    upper = as_int("upper", upper, least=0, fix=fix)
    return _band(as_size("m", m), as_size("k", k), as_blocksize(blocksize), lower, upper, device)


def causal_pattern(
    m: int,
    k: int,
    *,
    blocksize: int | tuple[int, int],
    diagonal: int = 0,
    device: torch.device | str | int | None = None,
) -> Pattern:
    """Keep the blocks that touch the lower triangle, as in causal attention.

    Args:
        m: Rows (queries).
        k: Columns (keys).
        blocksize: Side of a square block or `(r, c)`.
        diagonal: Last diagonal kept, as in `torch.tril`; `k - m` aligns the last query and key.
        device: Where the index tensors shall live.

    Returns:
        The blocks that hold an element (i, j) with j ≤ i + diagonal.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a size is negative.

    Examples:
        >>> causal_pattern(6, 6, blocksize=2).block_mask().int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    m, k = as_size("m", m), as_size("k", k)
    upper = as_int("diagonal", diagonal, least=-(2**31), fix="pass an integer as to torch.tril")
    return _band(m, k, as_blocksize(blocksize), m, upper, device)


def block_diagonal_pattern(
    m: int,
    k: int,
    *,
    blocksize: int | tuple[int, int],
    groups: int | None = None,
    device: torch.device | str | int | None = None,
) -> Pattern:
    """Split block rows and block columns into groups and keep what joins equal groups.

    Args:
        m: Rows.
        k: Columns.
        blocksize: Side of a square block or `(r, c)`.
        groups: Number of groups, nearly equal in size; None makes as many as there can be.
        device: Where the index tensors shall live.

    Returns:
        The pattern of the diagonal groups.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If there are more groups than block rows or block columns.

    Examples:
        >>> block_diagonal_pattern(8, 8, blocksize=2, groups=2).block_mask().int()
        tensor([[1, 1, 0, 0],
                [1, 1, 0, 0],
                [0, 0, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    m, k, (r, c) = as_size("m", m), as_size("k", k), as_blocksize(blocksize)
    mb, kb = grid_of((m, k), (r, c))
    most = max(min(mb, kb), 1)
    fix = f"pass 1 to {most}, or None for {most}"
    count = most if groups is None else as_int("groups", groups, least=1, fix=fix)
    if count > most:
        raise ValueError(
            message(
                "groups",
                got=count,
                allowed=f"at most {most} for {mb}×{kb} blocks",
                fix="use fewer groups or smaller blocks",
            )
        )
    # Row I belongs to the group g with g·mb ≤ I·count + count - 1 < (g + 1)·mb, and so for columns.
    group = ((np.arange(mb) + 1) * count - 1) // max(mb, 1)
    first, stop = group * kb // count, (group + 1) * kb // count
    return _pattern_of_ranges((m, k), (r, c), first, stop, device)


def block_count(blocks: int, density: float) -> int:
    """Turn a density into a number of blocks.

    Args:
        blocks: Blocks of the whole grid.
        density: Fraction to keep, in (0, 1].

    Returns:
        The nearest count, at least one unless there are no blocks at all.

    Examples:
        >>> block_count(100, 0.126), block_count(100, 0.001), block_count(0, 0.5)
        (13, 1, 0)
    """
    return min(blocks, max(1, round(density * blocks)))


def pattern_of_blocks(
    kept: torch.Tensor, shape: tuple[int, int], blocksize: tuple[int, int]
) -> Pattern:
    """Store the blocks marked in a grid.

    Args:
        kept: Boolean grid `[mb, kb]`.
        shape: Rows and columns of the matrix.
        blocksize: Rows and columns of a block.

    Returns:
        The pattern on the grid's device.

    Examples:
        >>> pattern_of_blocks(torch.eye(2, dtype=torch.bool), (4, 4), (2, 2)).nnzb
        2
    """
    crow = torch.zeros(kept.shape[0] + 1, dtype=torch.int64, device=kept.device)
    crow[1:] = kept.sum(dim=1).cumsum(0)
    return Pattern(shape, blocksize, crow, kept.nonzero()[:, 1])


def _choose(bits: np.random.PCG64, count: int, size: int) -> NDArray[np.int64]:
    """Choose `count` of `size` places, every choice being equally likely; ascending."""
    if count > size // 2:
        # Few stay free: choose those instead.
        taken = np.ones(size, dtype=np.bool_)
        taken[_choose(bits, size - count, size)] = False
        return np.flatnonzero(taken)
    # Marks in the whole grid are quickest, but a huge grid with few blocks has no room for them.
    marked = np.zeros(size if size <= 64 * count else 0, dtype=np.bool_)
    places = np.zeros(0, dtype=np.int64)
    missing = count
    # Draw what is missing, keep it, count again: places drawn twice are drawn anew.
    while missing:
        drawn = (bits.random_raw(missing) % np.uint64(size)).astype(np.int64)
        if len(marked):
            marked[drawn] = True
            missing = count - int(np.count_nonzero(marked))
        else:
            places = np.union1d(places, drawn)
            missing = count - len(places)
    return np.flatnonzero(marked) if len(marked) else places


def _band(
    m: int,
    k: int,
    blocksize: tuple[int, int],
    lower: int,
    upper: int,
    device: torch.device | str | int | None,
) -> Pattern:
    """Keep the blocks with an element on the diagonals -lower to upper."""
    r, c = blocksize
    grid_of((m, k), blocksize)
    top = np.arange(0, m, r)
    bottom = np.minimum(top + r, m) - 1
    first = np.maximum(top - lower, 0)
    # A band that has left the matrix on the right touches no block, not even a ragged one.
    stop = np.where(first < k, np.minimum(bottom + upper, k - 1) // c + 1, 0)
    return _pattern_of_ranges((m, k), blocksize, first // c, stop, device)


def _pattern_of_ranges(
    shape: tuple[int, int],
    blocksize: tuple[int, int],
    first: NDArray[np.int64],
    stop: NDArray[np.int64],
    device: torch.device | str | int | None,
) -> Pattern:
    """Store block columns first[I] to stop[I] - 1 of each block row I."""
    device = as_device(device)
    counts = np.maximum(stop - first, 0)
    check_count("shape", int(counts.sum()))
    crow = np.concatenate([[0], np.cumsum(counts)])
    col = np.arange(crow[-1]) - np.repeat(crow[:-1] - first, counts)
    return Pattern(shape, blocksize, crow, col).to(device)
