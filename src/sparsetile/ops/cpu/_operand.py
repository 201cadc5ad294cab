"""Operands as the kernels take them: dense ones by address and stride, values without padding."""

from dataclasses import dataclass

from torch import Tensor

from sparsetile.ops.cpu._call import Call, Layout


@dataclass(frozen=True)
class Dense:
    """A batch of dense matrices ``[batch, height, columns]``, multiplied column by column.

    ``by_rows`` tells that a column is contiguous (the matrix is stored ``[columns, height]``),
    otherwise that a row is.
    """

    tensor: Tensor  # keeps the memory alive during the call
    by_rows: bool

    @classmethod
    def of(cls, tensor: Tensor) -> "Dense":
        """Take ``[batch, height, columns]``, copied only where neither axis is contiguous."""
        _, height, columns = tensor.shape
        _, down, across = tensor.stride()
        if down == 1 or height == 1:
            return cls(tensor, by_rows=True)
        if across == 1 or columns == 1:
            return cls(tensor, by_rows=False)
        return cls(tensor.contiguous(), by_rows=False)

    @property
    def batch(self) -> int:
        """Number of matrices."""
        return self.tensor.shape[0]

    @property
    def columns(self) -> int:
        """Number of columns of each."""
        return self.tensor.shape[2]

    def address(self, item: int, column: int, row: int) -> int:
        """Address of one number."""
        batch, down, across = self.tensor.stride()
        offset = item * batch + column * across + row * down
        return self.tensor.data_ptr() + self.tensor.element_size() * offset

    def strides(self) -> tuple[int, int]:
        """Bytes from one line to the next, a line being what is contiguous, and between items."""
        batch, down, across = self.tensor.stride()
        size = self.tensor.element_size()
        return (across if self.by_rows else down) * size, batch * size

    def fill(self, call: Call, layout: Layout, name: str, column: int) -> None:
        """Set the argument fields of this operand, from a column on."""
        stride, batch = self.strides()
        address = self.address(0, column, 0)
        layout.fill(call, **{name: address, f"{name}_stride": stride, f"{name}_batch": batch})


def without_padding(
    values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int], *, columns: bool
) -> Tensor:
    """Return contiguous values whose padding cannot be felt.

    Padding of a ragged block may hold anything. In rows of the result it does no harm, since those
    are not stored; where it would multiply (``columns``, or rows for the transpose) it is zeroed,
    in a copy made only for ragged patterns.
    """
    values = values.detach().contiguous()
    (m, k), (_, r, c) = shape, values.shape
    if columns and k % c:
        values = values.clone()
        values[col == k // c, :, k % c :] = 0
    elif not columns and m % r:
        values = values.clone()
        values[int(crow[-2]) :, m % r :] = 0
    return values


def clear_padding(blocks: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> None:
    """Zero the padding of computed blocks ``[sets, nnzb, r, c]``: an infinity may have met it."""
    (m, k), (r, c) = shape, blocks.shape[2:]
    if k % c:
        blocks[:, col == k // c, :, k % c :] = 0
    if m % r:
        blocks[:, int(crow[-2]) :, m % r :] = 0
