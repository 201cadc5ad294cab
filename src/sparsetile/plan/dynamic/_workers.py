"""How the work of a subgroup is shared among the workers of a tile."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64


@dataclass(frozen=True, eq=False)
class Shares:
    """What each worker takes, subgroup by subgroup.

    Attributes:
        subgroup: Subgroup of each share.
        turn: Which worker of its subgroup takes it, from 0.
        begin: First row of the share, or first block for the gradient of the weight.
        size: Rows of the share, or blocks.
        z_begin: First grain of the columns of the dense operand.
        z_size: Grains of it.
    """

    subgroup: Int64[np.ndarray, " shares"]
    turn: Int64[np.ndarray, " shares"]
    begin: Int64[np.ndarray, " shares"]
    size: Int64[np.ndarray, " shares"]
    z_begin: Int64[np.ndarray, " shares"]
    z_size: Int64[np.ndarray, " shares"]


@lru_cache(maxsize=4096)
def grid_split(rows: int, columns: int, workers: int) -> tuple[tuple[int, int, int, int], ...]:
    """Cut a grid of equal cells into at most one piece for each worker.

    Pieces of equal size first; what workers remain halve the largest piece, along its longer side,
    as long as it can be halved. The rule is that of Graphcore's popsparse library (poplibs).

    Args:
        rows: Rows of the grid, at least 1.
        columns: Columns of the grid, at least 1.
        workers: Pieces wanted.

    Returns:
        For each piece its first row, rows, first column and columns.

    Examples:
        >>> grid_split(1, 5, 4)
        ((0, 1, 0, 1), (0, 1, 2, 2), (0, 1, 4, 1), (0, 1, 1, 1))
    """
    each = -(-rows * columns // workers)
    tall = min(-(-each // columns), rows)
    wide = min(-(-each // tall), columns)
    down, across = rows // tall, columns // wide
    pieces = [
        (
            i * tall,
            tall if i + 1 < down else rows - i * tall,
            j * wide,
            wide if j + 1 < across else columns - j * wide,
        )
        for i in range(down)
        for j in range(across)
    ]
    while len(pieces) < workers:
        largest = max(range(len(pieces)), key=lambda i: pieces[i][1] * pieces[i][3])
        row, high, column, long = pieces[largest]
        if high > long:
            half = (high + 1) // 2
            pieces[largest] = (row, half, column, long)
            pieces.append((row + half, high - half, column, long))
        elif long > 1:
            half = (long + 1) // 2
            pieces[largest] = (row, high, column, half)
            pieces.append((row, high, column + half, long - half))
        else:
            break
    return tuple(pieces)


def split_rows(
    first: Int64[np.ndarray, " subgroups"],
    count: Int64[np.ndarray, " subgroups"],
    row_first: Int64[np.ndarray, " subgroups"],
    rows: Int64[np.ndarray, " subgroups"],
    row_end: Int64[np.ndarray, " rows"],
    grains: int,
    workers: int,
) -> Shares:
    """Share the rows of subgroups, or rows and columns of the dense operand.

    Where a worker can have more than two rows, rows are shared so that each has about the same
    number of non-zeros; else a grid of rows and grains of the dense operand is cut.

    Args:
        first: First block of each subgroup; subgroups follow each other.
        count: Blocks of each subgroup.
        row_first: First row of each subgroup.
        rows: Rows of each subgroup, at least 1.
        row_end: Where each row's blocks end.
        grains: Grains of the dense operand's columns.
        workers: Workers of a tile.

    Returns:
        The shares, with rows counted from the subgroup's first.

    Examples:
        >>> one = np.array([0]), np.array([26]), np.array([0]), np.array([13])
        >>> split_rows(*one, 2 * np.arange(1, 14), grains=1, workers=6).size.tolist()
        [2, 3, 2, 3, 2, 1]
    """
    table, turns, index = _templates(np.where(rows > 2 * workers, 1, rows), grains, workers)
    shares = table[index]
    here = np.arange(workers) < turns[index][:, None]
    many = np.flatnonzero(rows > 2 * workers)
    if len(many):
        goal = -(-count[many] // workers)[:, None] * np.arange(1, workers + 1)
        ends = np.searchsorted(row_end, first[many, None] + goal, side="right")
        ends = np.minimum(ends - row_first[many, None], rows[many, None])
        begins = np.concatenate([np.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
        all_z = np.broadcast_to(np.array([0, grains]), (len(many), workers, 2))
        shares[many] = np.concatenate([np.stack([begins, ends - begins], -1), all_z], axis=2)
        here[many] = ends > begins
    return _shares(shares, here)


def split_blocks(count: Int64[np.ndarray, " subgroups"], workers: int) -> Shares:
    """Share the blocks of subgroups for the gradient of the weight, whatever their rows.

    Args:
        count: Blocks of each subgroup, at least 1.
        workers: Workers of a tile.

    Returns:
        The shares, with blocks counted from the subgroup's first.

    Examples:
        >>> split_blocks(np.array([3, 8]), 6).size.tolist()
        [1, 1, 1, 1, 1, 2, 2, 1, 1]
    """
    kinds, index = np.unique(count, return_inverse=True)
    pieces = [grid_split(1, int(kind), workers) for kind in kinds]
    table = np.zeros((len(kinds), workers, 4), np.int64)
    for row, found in zip(table, pieces, strict=True):
        row[: len(found), :2] = [(begin, size) for _, _, begin, size in found]
    turns = np.array([len(found) for found in pieces], np.int64)
    return _shares(table[index], np.arange(workers) < turns[index][:, None])


def _templates(
    rows: Int64[np.ndarray, " subgroups"], grains: int, workers: int
) -> tuple[
    Int64[np.ndarray, "kinds workers 4"],
    Int64[np.ndarray, " kinds"],
    Int64[np.ndarray, " subgroups"],
]:
    """The cut of a grid for each number of rows there is, and which subgroup takes which."""
    kinds, index = np.unique(rows, return_inverse=True)
    pieces = [grid_split(int(kind), grains, workers) for kind in kinds]
    table = np.zeros((len(kinds), workers, 4), np.int64)
    for row, found in zip(table, pieces, strict=True):
        row[: len(found)] = found
    return table, np.array([len(found) for found in pieces], np.int64), index


def _shares(table: Int64[np.ndarray, "subgroups workers 4"], here: np.ndarray) -> Shares:
    """The shares that are there, subgroup by subgroup."""
    subgroup, column = np.nonzero(here)
    turn = (here.cumsum(axis=1) - 1)[here]
    begin, size, z_begin, z_size = table[subgroup, column].T
    return Shares(subgroup, turn, begin, size, z_begin, z_size)
