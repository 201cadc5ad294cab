"""Index tensors of a pattern: taken from the user, checked, and turned into their transpose."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sparsetile.matrix._check import describe, message

INT32_MAX = 2**31 - 1


def as_index(name: str, value: Any) -> Int[Tensor, " n"]:
    """Take a vector of integers from a tensor, list or numpy array, as it is or as int64.

    Args:
        name: Argument name for the message.
        value: What the user passed.

    Returns:
        An integer tensor of one dimension; it may share memory with `value`.

    Raises:
        TypeError: If it does not hold integers.
        ValueError: If it is not one-dimensional, or is sparse or on the meta device.

    Examples:
        >>> as_index("crow_indices", [0, 1, 3])
        tensor([0, 1, 3])
    """
    fix = "pass block indices as an int32 or int64 vector"
    allowed = "integers, one dimension"
    if isinstance(value, Tensor):
        index = value
    else:
        try:
            array = np.asarray(value)
            index = torch.from_numpy(array.astype(np.int64) if array.size == 0 else array)
        except (TypeError, ValueError):
            raise TypeError(message(name, got=describe(value), allowed=allowed, fix=fix)) from None
    got = describe(index)
    if index.layout != torch.strided or index.is_meta:
        raise ValueError(message(name, got=got, allowed="a dense tensor that holds data", fix=fix))
    if index.dtype == torch.bool or index.is_floating_point() or index.is_complex():
        raise TypeError(message(name, got=got, allowed=allowed, fix=fix))
    if index.ndim != 1:
        raise ValueError(message(name, got=got, allowed=allowed, fix=fix))
    # Comparisons of unsigned tensors are not implemented everywhere.
    return index if index.dtype in (torch.int32, torch.int64) else index.long()


def check_crow(crow: Int[Tensor, " mb1"], block_rows: int, nnzb: int) -> None:
    """Refuse row offsets that do not run from 0 to the number of blocks without going back.

    Args:
        crow: Offsets of the block rows.
        block_rows: Number of block rows of the matrix.
        nnzb: Number of column indices.

    Raises:
        ValueError: With the first offset that is wrong.

    Examples:
        >>> check_crow(torch.tensor([0, 1, 3]), block_rows=2, nnzb=3)
    """
    if len(crow) != block_rows + 1:
        raise ValueError(
            message(
                "crow_indices",
                got=f"{len(crow)} offsets",
                allowed=f"{block_rows + 1}, one more than the {block_rows} block rows",
                fix="check shape and blocksize: the last block row counts even when it is ragged",
            )
        )
    check_count("col_indices", nnzb)
    good = (crow[0] == 0) & (crow[-1] == nnzb) & (crow[1:] >= crow[:-1]).all()
    if bool(good):
        return
    if int(crow[0]) != 0:
        got, allowed = f"a first offset of {int(crow[0])}", "0"
    elif int(crow[-1]) != nnzb:
        got, allowed = f"a last offset of {int(crow[-1])}", f"{nnzb}, the number of col_indices"
    else:
        row = int((crow[1:] < crow[:-1]).nonzero()[0])
        got = f"offsets that fall from {int(crow[row])} to {int(crow[row + 1])} in block row {row}"
        allowed = "offsets that never fall"
    raise ValueError(
        message(
            "crow_indices",
            got=got,
            allowed=allowed,
            fix="row i holds the blocks crow_indices[i] to crow_indices[i + 1]",
        )
    )


def grid_of(shape: tuple[int, int], blocksize: tuple[int, int]) -> tuple[int, int]:
    """Count block rows and block columns, ragged ones included, and refuse more than int32 counts.

    Args:
        shape: Rows and columns of the matrix.
        blocksize: Rows and columns of a block.

    Returns:
        `(mb, kb)`.

    Raises:
        ValueError: If there are too many to be numbered.

    Examples:
        >>> grid_of((5, 8), (4, 4))
        (2, 2)
    """
    mb, kb = -(-shape[0] // blocksize[0]), -(-shape[1] // blocksize[1])
    if max(mb, kb) >= INT32_MAX:
        raise ValueError(
            message(
                "shape",
                got=f"{mb}×{kb} blocks",
                allowed=f"at most {INT32_MAX - 1} a side (int32)",
                fix="use larger blocks",
            )
        )
    return mb, kb


def check_count(name: str, nnzb: int) -> None:
    """Refuse more stored blocks than int32 counts, before memory for them is asked for.

    Args:
        name: The argument that asks for so many.
        nnzb: Number of stored blocks.

    Raises:
        ValueError: If there are too many.

    Examples:
        >>> check_count("density", 10**6)
    """
    if nnzb > INT32_MAX:
        raise ValueError(
            message(
                name,
                got=f"{nnzb} blocks to store",
                allowed=f"at most {INT32_MAX} (int32)",
                fix="use larger blocks",
            )
        )


def check_col(col: Int[Tensor, " nnzb"], row: Int[Tensor, " nnzb"], block_cols: int) -> None:
    """Refuse columns out of range, out of order or stored twice.

    Args:
        col: Block column of each block.
        row: Block row of each block.
        block_cols: Number of block columns of the matrix.

    Raises:
        ValueError: With the first block that is wrong.

    Examples:
        >>> check_col(torch.tensor([0, 2, 1]), torch.tensor([0, 0, 1]), block_cols=3)
    """
    if not len(col):
        return
    same_row = row[1:] == row[:-1]
    inside = (col.amin() >= 0) & (col.amax() < block_cols)
    if bool(inside & ~(same_row & (col[1:] <= col[:-1])).any()):
        return
    outside = ((col < 0) | (col >= block_cols)).nonzero()
    if len(outside):
        at = int(outside[0])
        got = f"block column {int(col[at])} in block row {int(row[at])}"
        allowed = f"0 to {block_cols - 1} ({block_cols} block columns)"
        fix = "count in blocks, not in single columns"
    else:
        at = int((same_row & (col[1:] <= col[:-1])).nonzero()[0])
        first, second = int(col[at]), int(col[at + 1])
        if first == second:
            got = f"a duplicate: block column {first} twice in block row {int(row[at])}"
            fix = "BSR.from_torch and BSR.from_scipy sum duplicates"
        else:
            got = f"unsorted columns: {first} before {second} in block row {int(row[at])}"
            fix = "sort the columns of each row; BSR.from_torch and BSR.from_scipy do"
        allowed = "columns strictly ascending within a row"
    raise ValueError(message("col_indices", got=got, allowed=allowed, fix=fix))


def offsets_of(ids: Int[Tensor, " n"], length: int) -> Int[Tensor, " length1"]:
    """Count how often each of `length` ids occurs, as running offsets.

    Args:
        ids: Ids in [0, length), in any order.
        length: Number of ids.

    Returns:
        int32 offsets with a leading 0 and the total as last.

    Examples:
        >>> offsets_of(torch.tensor([0, 0, 2]), 3)
        tensor([0, 2, 2, 3], dtype=torch.int32)
    """
    counts = torch.bincount(ids, minlength=length)
    offsets = torch.zeros(length + 1, dtype=torch.int32, device=ids.device)
    torch.cumsum(counts, 0, dtype=torch.int32, out=offsets[1:])
    return offsets


def column_order(col: Int[Tensor, " nnzb"], block_cols: int) -> Int[Tensor, " nnzb"]:
    """Sort blocks by column, keeping row order within a column.

    Args:
        col: Block column of each block, blocks in row order.
        block_cols: Number of block columns.

    Returns:
        int64 positions: entry i is the block that comes i-th.

    Examples:
        >>> column_order(torch.tensor([0, 2, 0]), block_cols=3)
        tensor([0, 2, 1])
    """
    # torch sorts 16-bit keys by radix, three times as fast as 32-bit ones.
    key = col.short() if block_cols <= 2**15 else col
    return torch.sort(key, stable=True).indices
