"""Operands as the kernels take them: dense ones by address and stride, values without padding."""

from typing import Any, NamedTuple

from torch import Tensor

from sparsetile.ops.cpu._memo import TensorMemo

_last_columns: TensorMemo[Tensor] = TensorMemo(most=512)


class Dense(NamedTuple):
    """A batch of dense matrices ``[batch, height, columns]``, multiplied column by column.

    ``by_rows`` tells that a column is contiguous (the matrix is stored ``[columns, height]``),
    otherwise that a row is.
    """

    tensor: Tensor  # keeps the memory alive during the call
    by_rows: bool
    batch: int
    columns: int
    row_step: int  # bytes from one row to the next
    column_step: int
    batch_step: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Dense":
        """Take ``[batch, height, columns]``, copied only where neither axis is contiguous."""
        batch, height, columns = tensor.shape
        across, down, along = tensor.stride()
        by_rows = down == 1 or height == 1
        if not by_rows and along != 1 and columns != 1:
            tensor = tensor.contiguous()
            across, down, along = tensor.stride()
        size = tensor.element_size()
        return cls(tensor, by_rows, batch, columns, down * size, along * size, across * size)

    @classmethod
    def of_lines(cls, tensor: Tensor) -> "Dense":
        """Take ``[columns, height]``, as layers have it; a batch of one."""
        columns, height = tensor.shape
        along, down = tensor.stride()
        by_rows = down == 1 or height == 1
        if not by_rows and along != 1 and columns != 1:
            tensor, by_rows = tensor.contiguous(), True
            along, down = tensor.stride()
        size = tensor.element_size()
        return cls(tensor, by_rows, 1, columns, down * size, along * size, 0)

    @property
    def line_step(self) -> int:
        """Bytes from one line to the next, a line being what is contiguous."""
        return self.column_step if self.by_rows else self.row_step

    def address(self, item: int, column: int, row: int) -> int:
        """Address of one number."""
        offset = item * self.batch_step + column * self.column_step + row * self.row_step
        return self.tensor.data_ptr() + offset


def without_padding(
    values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int], *, columns: bool
) -> Tensor:
    """Return contiguous values whose padding cannot be felt.

    Padding of a ragged block may hold anything. In rows of the result it does no harm, since those
    are not stored. Where it is multiplied (in ``columns``, or in rows for the transpose) it meets
    zeros; only what is not finite is then felt, and zeroed in a copy.
    """
    values = values if values.is_contiguous() else values.detach().contiguous()
    (m, k), (_, r, c) = shape, values.shape
    if columns and k % c:
        last = _last_column(col, k // c)
        return _finite(values, (last, slice(None), slice(k % c, None)))
    if not columns and m % r:
        return _finite(values, (slice(int(crow[-2]), None), slice(m % r, None)))
    return values


def _finite(values: Tensor, padding: tuple[Any, ...]) -> Tensor:
    values = values.detach()
    if values[padding].isfinite().all():
        return values
    values = values.clone()
    values[padding] = 0
    return values


def _last_column(col: Tensor, last: int) -> Tensor:
    """Find the blocks of the last block column."""
    return _last_columns.get((col,), last, lambda: (col == last).nonzero().flatten())


def clear_padding(blocks: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
    """Zero the padding of computed blocks ``[sets, nnzb, r, c]``: an infinity may have met it."""
    (m, k), (r, c) = shape, blocks.shape[2:]
    if k % c:
        blocks[:, _last_column(col, k // c), :, k % c :] = 0
    if m % r:
        blocks[:, int(crow[-2]) :, m % r :] = 0
