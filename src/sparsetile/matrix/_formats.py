"""A block-sparse matrix as plain numpy arrays by row, by column, or block by block.

These are the host formats of Graphcore's popsparse library (poplibs): indices count single rows and
columns, and are those of a block's first one; offsets count values, not blocks.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._check import as_blocksize, message
from sparsetile.matrix._convert import from_blocks, reblock
from sparsetile.matrix._format_check import (
    as_frame,
    index_array,
    offset_array,
    sort_blocks,
)
from sparsetile.matrix._pattern import Pattern

F = TypeVar("F", bound="Format")


class Format:
    """What the three formats share.

    Attributes:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of a block.
        values: The blocks one after the other, each row by row.

    Examples:
        >>> issubclass(COO, Format)
        True
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    values: Shaped[np.ndarray, " values"]

    def to_bsr(self) -> BSR:
        """Make a BSR; each format says how."""
        raise NotImplementedError

    @classmethod
    def from_bsr(cls: type[F], A: BSR, blocksize: int | tuple[int, int] | None = None) -> F:
        """Take a BSR; each format says how."""
        raise NotImplementedError

    @property
    def nnzb(self) -> int:
        """Number of stored blocks."""
        return len(self.values) // (self.blocksize[0] * self.blocksize[1])

    @property
    def T(self: F) -> F:  # noqa: N802  torch's spelling
        """The transposed matrix in the same format, with arrays of its own."""
        return type(self).from_bsr(self.to_bsr().T)

    def reblock(self: F, blocksize: int | tuple[int, int]) -> F:
        """Store the matrix in blocks of another shape.

        Smaller blocks that divide these hold the same values. Others also hold the zeros
        that fill them up.

        Args:
            blocksize: Side of a square block or `(r, c)`; it divides the shape.

        Returns:
            The matrix in the same format, with arrays of its own.

        Raises:
            TypeError: If it is not an integer or a pair of them.
            ValueError: If it does not divide the shape.

        Examples:
            >>> COO((4, 4), 1, [1, 3], [0, 2], [5.0, 6.0]).reblock(2).values
            array([0., 0., 5., 0., 0., 0., 6., 0.])
        """
        return type(self).from_bsr(self.to_bsr(), blocksize)

    def __repr__(self) -> str:
        (m, k), (r, c) = self.shape, self.blocksize
        sides = str(r) if r == c else f"{r}×{c}"
        counts = "1 block" if self.nnzb == 1 else f"{self.nnzb} blocks"
        return f"{type(self).__name__}({m}×{k}, blocksize={sides}, {counts}, {self.values.dtype})"


@dataclass(frozen=True, eq=False, init=False, repr=False)
class CSR(Format):
    """A block-sparse matrix by row: for every row of blocks, their first columns and values.

    Graphcore's popsparse library calls it CSRMatrix. Checked when made. Columns may come in any
    order; they are kept sorted, with their blocks. The arrays are copies, tensors are taken too.

    Attributes:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of a block.
        crow_indices: int64 offsets `[m / r + 1]` into `values`: multiples of r·c.
        col_indices: int64 first column of each block: multiples of c, ascending in a row.
        values: The blocks one after the other, each row by row.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the arrays do not describe such a matrix.

    Examples:
        >>> A = CSR((4, 4), 2, [0, 4, 4], [2], [1.0, 2.0, 3.0, 4.0])
        >>> A
        CSR(4×4, blocksize=2, 1 block, float64)
        >>> A.to_bsr().to_dense()[:2]
        tensor([[0., 0., 1., 2.],
                [0., 0., 3., 4.]], dtype=torch.float64)
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    crow_indices: Int64[np.ndarray, " rows1"]
    col_indices: Int64[np.ndarray, " blocks"]
    values: Shaped[np.ndarray, " values"]

    def __init__(
        self,
        shape: tuple[int, int],
        blocksize: int | tuple[int, int],
        crow_indices: Any,
        col_indices: Any,
        values: Any,
    ) -> None:
        frame = as_frame(shape, blocksize, values)
        crow = offset_array("crow_indices", crow_indices, frame, axis=0)
        col = index_array("col_indices", col_indices, frame, axis=1)
        rows = np.arange(len(crow) - 1).repeat(np.diff(crow) // frame.area)
        order = sort_blocks("col_indices", frame, rows * frame.blocksize[0], col, by=0)
        self.__dict__.update(
            shape=frame.shape,
            blocksize=frame.blocksize,
            crow_indices=crow,
            col_indices=col[order],
            values=frame.blocks()[order].reshape(-1),
        )

    def to_bsr(self) -> BSR:
        """Make a BSR of the same blocks.

        Returns:
            The matrix on the CPU, with values of its own.

        Examples:
            >>> CSR((1, 2), 1, [0, 1], [1], [5.0]).to_bsr()
            BSR(1×2, blocksize=1, density=0.50, 1 block, float64, cpu)
        """
        r, c = self.blocksize
        crow, col = self.crow_indices // (r * c), self.col_indices // c
        blocks = torch.from_numpy(self.values.copy()).view(-1, r, c)
        return BSR(blocks, Pattern(self.shape, self.blocksize, crow, col))

    @classmethod
    def from_bsr(cls: type["CSR"], A: BSR, blocksize: int | tuple[int, int] | None = None) -> "CSR":
        """Take the blocks of a BSR, row by row. No gradient flows through.

        Args:
            A: The matrix; its blocks, or the new ones, divide its shape.
            blocksize: Blocks to store it in; None keeps those of `A`.

        Returns:
            The matrix, with arrays of its own.

        Raises:
            TypeError: If numpy has no such dtype.
            ValueError: If blocks are ragged.

        Examples:
            >>> CSR.from_bsr(BSR.from_dense(torch.eye(4), 2)).crow_indices
            array([0, 4, 8])
        """
        values, p = _parts(A, blocksize)
        crow = p.crow_indices.numpy().astype(np.int64) * (p.blocksize[0] * p.blocksize[1])
        col = p.col_indices.numpy().astype(np.int64) * p.blocksize[1]
        return cls(p.shape, p.blocksize, crow, col, values.numpy().reshape(-1))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class CSC(Format):
    """A block-sparse matrix by column: for every column of blocks, their first rows and values.

    Graphcore's popsparse library calls it CSCMatrix. Checked when made. Rows may come in any
    order; they are kept sorted, with their blocks. The arrays are copies, tensors are taken too.

    Attributes:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of a block.
        ccol_indices: int64 offsets `[k / c + 1]` into `values`: multiples of r·c.
        row_indices: int64 first row of each block: multiples of r, ascending in a column.
        values: The blocks one after the other, each row by row.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the arrays do not describe such a matrix.

    Examples:
        >>> CSC((4, 4), 2, [0, 0, 4], [0], [1.0, 2.0, 3.0, 4.0]).to_bsr().to_dense()[:2]
        tensor([[0., 0., 1., 2.],
                [0., 0., 3., 4.]], dtype=torch.float64)
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    ccol_indices: Int64[np.ndarray, " columns1"]
    row_indices: Int64[np.ndarray, " blocks"]
    values: Shaped[np.ndarray, " values"]

    def __init__(
        self,
        shape: tuple[int, int],
        blocksize: int | tuple[int, int],
        ccol_indices: Any,
        row_indices: Any,
        values: Any,
    ) -> None:
        frame = as_frame(shape, blocksize, values)
        ccol = offset_array("ccol_indices", ccol_indices, frame, axis=1)
        row = index_array("row_indices", row_indices, frame, axis=0)
        columns = np.arange(len(ccol) - 1).repeat(np.diff(ccol) // frame.area)
        order = sort_blocks("row_indices", frame, row, columns * frame.blocksize[1], by=1)
        self.__dict__.update(
            shape=frame.shape,
            blocksize=frame.blocksize,
            ccol_indices=ccol,
            row_indices=row[order],
            values=frame.blocks()[order].reshape(-1),
        )

    def to_bsr(self) -> BSR:
        """Make a BSR of the same blocks.

        Returns:
            The matrix on the CPU, with values of its own.

        Examples:
            >>> CSC((2, 1), 1, [0, 1], [1], [5.0]).to_bsr()
            BSR(2×1, blocksize=1, density=0.50, 1 block, float64, cpu)
        """
        (m, k), (r, c) = self.shape, self.blocksize
        flipped = Pattern((k, m), (c, r), self.ccol_indices // (r * c), self.row_indices // r)
        # The values of a block stay row by row: only the order of the blocks changes.
        blocks = torch.from_numpy(self.values).view(-1, r, c)
        return BSR(blocks[flipped.transpose_permutation], flipped.T)

    @classmethod
    def from_bsr(cls: type["CSC"], A: BSR, blocksize: int | tuple[int, int] | None = None) -> "CSC":
        """Take the blocks of a BSR, column by column. No gradient flows through.

        Args:
            A: The matrix; its blocks, or the new ones, divide its shape.
            blocksize: Blocks to store it in; None keeps those of `A`.

        Returns:
            The matrix, with arrays of its own.

        Raises:
            TypeError: If numpy has no such dtype.
            ValueError: If blocks are ragged.

        Examples:
            >>> CSC.from_bsr(BSR.from_dense(torch.eye(4), 2)).row_indices
            array([0, 2])
        """
        values, p = _parts(A, blocksize)
        r, c = p.blocksize
        ccol = p.T.crow_indices.numpy().astype(np.int64) * (r * c)
        row = p.T.col_indices.numpy().astype(np.int64) * r
        blocks = values[p.transpose_permutation].numpy()
        return cls(p.shape, p.blocksize, ccol, row, blocks.reshape(-1))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class COO(Format):
    """A block-sparse matrix block by block: first row, first column and values of each.

    Graphcore's popsparse library calls it COOMatrix. Checked when made. Blocks may come in any
    order; they are kept sorted by row, then column. The arrays are copies, tensors are taken too.

    Attributes:
        shape: Rows and columns `(m, k)`.
        blocksize: Rows and columns `(r, c)` of a block.
        row_indices: int64 first row of each block: multiples of r.
        col_indices: int64 first column of each block: multiples of c.
        values: The blocks one after the other, each row by row.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the arrays do not describe such a matrix.

    Examples:
        >>> COO((4, 4), 2, [0], [2], [1.0, 2.0, 3.0, 4.0]).to_bsr().to_dense()[:2]
        tensor([[0., 0., 1., 2.],
                [0., 0., 3., 4.]], dtype=torch.float64)
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    row_indices: Int64[np.ndarray, " blocks"]
    col_indices: Int64[np.ndarray, " blocks"]
    values: Shaped[np.ndarray, " values"]

    def __init__(
        self,
        shape: tuple[int, int],
        blocksize: int | tuple[int, int],
        row_indices: Any,
        col_indices: Any,
        values: Any,
    ) -> None:
        frame = as_frame(shape, blocksize, values)
        row = index_array("row_indices", row_indices, frame, axis=0)
        col = index_array("col_indices", col_indices, frame, axis=1)
        order = sort_blocks("row_indices and col_indices", frame, row, col, by=0)
        self.__dict__.update(
            shape=frame.shape,
            blocksize=frame.blocksize,
            row_indices=row[order],
            col_indices=col[order],
            values=frame.blocks()[order].reshape(-1),
        )

    def to_bsr(self) -> BSR:
        """Make a BSR of the same blocks.

        Returns:
            The matrix on the CPU, with values of its own.

        Examples:
            >>> COO((1, 2), 1, [0], [1], [5.0]).to_bsr()
            BSR(1×2, blocksize=1, density=0.50, 1 block, float64, cpu)
        """
        r, c = self.blocksize
        row, col = torch.from_numpy(self.row_indices // r), torch.from_numpy(self.col_indices // c)
        blocks = torch.from_numpy(self.values).view(-1, r, c)
        return from_blocks(self.shape, self.blocksize, row, col, blocks)

    @classmethod
    def from_bsr(cls: type["COO"], A: BSR, blocksize: int | tuple[int, int] | None = None) -> "COO":
        """Take the blocks of a BSR, sorted by row, then column. No gradient flows through.

        Args:
            A: The matrix; its blocks, or the new ones, divide its shape.
            blocksize: Blocks to store it in; None keeps those of `A`.

        Returns:
            The matrix, with arrays of its own.

        Raises:
            TypeError: If numpy has no such dtype.
            ValueError: If blocks are ragged.

        Examples:
            >>> COO.from_bsr(BSR.from_dense(torch.eye(4), 2)).row_indices
            array([0, 2])
        """
        values, p = _parts(A, blocksize)
        row = p.row_indices.numpy().astype(np.int64) * p.blocksize[0]
        col = p.col_indices.numpy().astype(np.int64) * p.blocksize[1]
        return cls(p.shape, p.blocksize, row, col, values.numpy().reshape(-1))


def _parts(
    A: BSR, blocksize: int | tuple[int, int] | None
) -> tuple[Shaped[Tensor, "blocks r c"], Pattern]:
    """The blocks, stored in another shape if asked for, and their pattern; both on the CPU."""
    wanted = A.blocksize if blocksize is None else as_blocksize(blocksize)
    if A.dtype == torch.bfloat16:
        allowed, fix = "dtypes that numpy knows", "convert it with A.float() first"
        raise TypeError(message("A", got="a bfloat16 matrix", allowed=allowed, fix=fix))
    if A.shape[0] % wanted[0] or A.shape[1] % wanted[1]:
        raise ValueError(
            message(
                "blocksize",
                got=f"blocks of {wanted[0]}×{wanted[1]} in a matrix of {A.shape[0]}×{A.shape[1]}",
                allowed="blocks whose sides divide the shape",
                fix="pass another blocksize: 1 holds any shape",
            )
        )
    A = reblock(A.detach().cpu(), wanted)
    return A.values.contiguous(), A.pattern
