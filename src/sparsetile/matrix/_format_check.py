"""The arrays of a host format: taken from the user, checked, and put in order."""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from sparsetile.matrix._check import as_blocksize, as_shape, describe, message
from sparsetile.matrix._index import as_index, check_count, grid_of

_AXES = ("row", "column")
_KINDS = "biufc"


class Frame(NamedTuple):
    """What the index arrays of a format are checked against."""

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    values: Shaped[np.ndarray, " values"]

    @property
    def area(self) -> int:
        """Values of a block."""
        return self.blocksize[0] * self.blocksize[1]

    @property
    def nnzb(self) -> int:
        """Number of blocks."""
        return len(self.values) // self.area

    def blocks(self) -> Shaped[np.ndarray, "blocks area"]:
        """The values, one block a row."""
        return self.values.reshape(self.nnzb, self.area)


def as_frame(shape: object, blocksize: object, values: Any) -> Frame:
    """Take shape, block and values, and refuse those that do not fit each other.

    Args:
        shape: Rows and columns.
        blocksize: Side of a square block or `(r, c)`.
        values: Vector of numbers: numpy array, list or tensor.

    Returns:
        The three, with a copy of the values.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the block does not divide the shape or the count of the values.

    Examples:
        >>> as_frame((4, 4), 2, [1.0, 2.0, 3.0, 4.0]).nnzb
        1
    """
    (m, k), (r, c) = as_shape("shape", shape), as_blocksize(blocksize)
    for axis, size, side in ((0, m, r), (1, k, c)):
        if size % side:
            raise ValueError(
                message(
                    "shape",
                    got=f"{size} {_AXES[axis]}s in blocks of {side} {_AXES[axis]}s",
                    allowed="shapes that are multiples of the blocksize",
                    fix="pass another blocksize (1 holds any shape), or pad the matrix",
                )
            )
    grid_of((m, k), (r, c))
    array = as_values(values)
    if len(array) % (r * c):
        raise ValueError(
            message(
                "values",
                got=f"{len(array)} values in blocks of {r}×{c}",
                allowed=f"a multiple of {r * c}: every block is stored whole",
                fix="fill the blocks up with zeros",
            )
        )
    check_count("values", len(array) // (r * c))
    return Frame((m, k), (r, c), array)


def as_values(values: Any) -> Shaped[np.ndarray, " values"]:
    """Copy a vector of numbers that torch knows as well.

    Args:
        values: Numpy array, list or tensor.

    Returns:
        The copy.

    Raises:
        TypeError: If it holds no numbers, or of a dtype that torch does not know.
        ValueError: If it is not one-dimensional.

    Examples:
        >>> as_values([1.0, 2.0])
        array([1., 2.])
    """
    allowed = "one dimension of numbers of a dtype that numpy and torch know"
    fix = "flatten the blocks, each row by row, as in blocks.reshape(-1)"
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu().numpy()
        array = np.array(values, order="C")
        if array.dtype.kind not in _KINDS or not array.dtype.isnative:
            raise TypeError
        torch.from_numpy(array[:0])
    except (IndexError, RuntimeError, TypeError, ValueError):
        # A scalar, a list of lists of different lengths, text, a sparse tensor.
        got = describe(values)
        raise TypeError(message("values", got=got, allowed=allowed, fix=fix)) from None
    if array.ndim != 1:
        got = f"an array of shape {list(array.shape)}"
        raise ValueError(message("values", got=got, allowed=allowed, fix=fix))
    return array


def offset_array(
    name: str, value: Any, frame: Frame, *, axis: int
) -> Int64[np.ndarray, " offsets"]:
    """Copy offsets into the values; refuse those that do not run from none to all of them.

    Args:
        name: Argument name for the message.
        value: What the user passed.
        frame: What they are checked against.
        axis: 0 for offsets of block rows, 1 of block columns.

    Returns:
        The copy.

    Raises:
        TypeError: If it does not hold integers.
        ValueError: With the first offset that is wrong.

    Examples:
        >>> frame = as_frame((4, 4), 2, [1.0, 2.0, 3.0, 4.0])
        >>> offset_array("crow_indices", [0, 4, 4], frame, axis=0)
        array([0, 4, 4])
    """
    offsets = _integers(name, value)
    count, what = frame.shape[axis] // frame.blocksize[axis], _AXES[axis]
    fix = f"block {what} i holds the values {name}[i] to {name}[i + 1]"
    if len(offsets) != count + 1:
        got = f"{len(offsets)} offsets"
        allowed = f"{count + 1}, one more than the {count} block {what}s"
        raise ValueError(message(name, got=got, allowed=allowed, fix=fix))
    total = len(frame.values)
    if offsets[0] != 0:
        got, allowed = f"a first offset of {offsets[0]}", "0"
    elif offsets[-1] != total:
        got, allowed = f"a last offset of {offsets[-1]}", f"{total}, the number of values"
    elif (offsets[1:] < offsets[:-1]).any():
        at = int((offsets[1:] < offsets[:-1]).argmax())
        got = f"offsets that fall from {offsets[at]} to {offsets[at + 1]} in block {what} {at}"
        allowed = "offsets that never fall"
    elif (offsets % frame.area).any():
        at = int((offsets % frame.area).argmax())
        got = f"offset {offsets[at]} of block {what} {at}"
        allowed = f"multiples of {frame.area}, the values of a block"
    else:
        return offsets
    raise ValueError(message(name, got=got, allowed=allowed, fix=fix))


def index_array(name: str, value: Any, frame: Frame, *, axis: int) -> Int64[np.ndarray, " blocks"]:
    """Copy the first rows or columns of blocks; refuse those outside or amid blocks.

    Args:
        name: Argument name for the message.
        value: What the user passed.
        frame: What they are checked against.
        axis: 0 for rows, 1 for columns.

    Returns:
        The copy.

    Raises:
        TypeError: If it does not hold integers.
        ValueError: With the first index that is wrong.

    Examples:
        >>> frame = as_frame((4, 4), 2, [1.0, 2.0, 3.0, 4.0])
        >>> index_array("col_indices", [2], frame, axis=1)
        array([2])
    """
    index = _integers(name, value)
    size, side, what = frame.shape[axis], frame.blocksize[axis], _AXES[axis]
    fix = f"pass the first {what} of each block, counted in single {what}s from 0"
    if len(index) != frame.nnzb:
        got = f"{len(index)} indices beside {len(frame.values)} values"
        allowed = f"{frame.nnzb}, one for each block of {frame.area} values"
        raise ValueError(message(name, got=got, allowed=allowed, fix=fix))
    outside = (index < 0) | (index >= size)
    if outside.any():
        at = int(outside.argmax())
        allowed = f"0 to {size - side}" if size else f"none: there are no {what}s"
    elif (index % side).any():
        at, allowed = int((index % side != 0).argmax()), f"multiples of {side}, the side of a block"
    else:
        return index
    got = f"{what} {index[at]} for block {at}"
    raise ValueError(message(name, got=got, allowed=allowed, fix=fix))


def sort_blocks(
    name: str,
    frame: Frame,
    row: Int64[np.ndarray, " blocks"],
    col: Int64[np.ndarray, " blocks"],
    *,
    by: int,
) -> slice | Int64[np.ndarray, " blocks"]:
    """Find the order of blocks by row, then column, or the other way; refuse duplicates.

    Args:
        name: Argument name for the message.
        frame: Shape and block.
        row: First row of each block.
        col: First column of each block.
        by: 0 to sort by row first, 1 by column first.

    Returns:
        What to index the blocks with: all of them as they are, or their order.

    Raises:
        ValueError: If two blocks share a place.

    Examples:
        >>> frame = as_frame((1, 2), 1, [1.0, 2.0])
        >>> sort_blocks("col_indices", frame, np.array([0, 0]), np.array([1, 0]), by=0)
        array([1, 0])
    """
    (m, k), (r, c) = frame.shape, frame.blocksize
    key = row // r * (k // c) + col // c if by == 0 else col // c * (m // r) + row // r
    if (key[1:] > key[:-1]).all():
        return slice(None)
    order = np.argsort(key, kind="stable")
    key = key[order]
    same = key[1:] == key[:-1]
    if same.any():
        at = order[int(same.argmax())]
        raise ValueError(
            message(
                name,
                got=f"two blocks at row {row[at]}, column {col[at]}",
                allowed="one block at a place",
                fix="add them up first: BSR.from_torch and BSR.from_scipy do",
            )
        )
    return order


def _integers(name: str, value: Any) -> Int64[np.ndarray, " n"]:
    """Copy a vector of integers to int64."""
    # torch warns of arrays that cannot be written, and has no negative strides.
    index = as_index(name, value.copy() if isinstance(value, np.ndarray) else value)
    return index.detach().cpu().to(torch.int64, copy=True).contiguous().numpy()
