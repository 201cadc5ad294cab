"""Which blocks of a matrix are stored."""

import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sparsetile.matrix._check import as_blocksize, as_device, as_shape, describe, message
from sparsetile.matrix._index import (
    as_index,
    check_col,
    check_crow,
    column_order,
    grid_of,
    offsets_of,
)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Pattern:
    """The stored blocks of a block-sparse matrix, row by row.

    Checked when made: block rows ascending, columns strictly ascending within a row. Sizes need
    not be multiples of the block: the last block row or column may be ragged. Two patterns are
    equal when they store the same blocks, on whatever device.

    Its attributes cannot be set. Treat its tensors as read-only: writing into them is not noticed,
    and hash, `T` and what else is kept would tell of the blocks before. Clone them to change them.

    Attributes:
        shape: Rows and columns `(m, k)` of the matrix.
        blocksize: Rows and columns `(r, c)` of a block.
        crow_indices: int32 offsets `[ceil(m / r) + 1]` of the block rows.
        col_indices: int32 block column of each stored block `[nnzb]`.

    Examples:
        >>> Pattern((4, 6), 2, [0, 1, 3], [2, 0, 1])
        Pattern(4×6, blocksize=2, density=0.50, 3 blocks, cpu)
    """

    shape: tuple[int, int]
    blocksize: tuple[int, int]
    crow_indices: Int[Tensor, " mb1"]
    col_indices: Int[Tensor, " nnzb"]

    def __init__(
        self,
        shape: tuple[int, int],
        blocksize: int | tuple[int, int],
        crow_indices: Any,
        col_indices: Any,
    ) -> None:
        """Check the indices and keep an int32 copy of them.

        Args:
            shape: Rows and columns `(m, k)`.
            blocksize: Side of a square block or `(r, c)`.
            crow_indices: Offsets of the block rows: integer tensor, list or numpy array.
            col_indices: Block columns, ascending within a row: the same.

        Raises:
            TypeError: If an argument is of the wrong type, or indices are not integers.
            ValueError: If the indices do not describe blocks of such a matrix.
        """
        (m, k), (r, c) = as_shape("shape", shape), as_blocksize(blocksize)
        block_rows, block_cols = grid_of((m, k), (r, c))
        crow, col = as_index("crow_indices", crow_indices), as_index("col_indices", col_indices)
        if crow.device != col.device:
            raise ValueError(
                message(
                    "col_indices",
                    got=f"{describe(col)} beside crow_indices on {crow.device}",
                    allowed="both on one device",
                    fix="move one with .to(device)",
                )
            )
        check_crow(crow, block_rows, len(col))
        row = _rows(crow, len(col))
        check_col(col, row, block_cols)
        # Written past the frozen dataclass's own __setattr__, once.
        self.__dict__.update(
            shape=(m, k),
            blocksize=(r, c),
            crow_indices=crow.detach().to(torch.int32, copy=True).contiguous(),
            col_indices=col.detach().to(torch.int32, copy=True).contiguous(),
            row_indices=row,
        )

    @property
    def nnzb(self) -> int:
        """Number of stored blocks."""
        return len(self.col_indices)

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns `(mb, kb)`, ragged ones included."""
        return -(-self.shape[0] // self.blocksize[0]), -(-self.shape[1] // self.blocksize[1])

    @property
    def device(self) -> torch.device:
        """Where the index tensors live."""
        return self.col_indices.device

    @property
    def ragged(self) -> bool:
        """Whether the last block row or column reaches over the edge of the matrix."""
        return bool(self.shape[0] % self.blocksize[0] or self.shape[1] % self.blocksize[1])

    @cached_property
    def row_indices(self) -> Int[Tensor, " nnzb"]:
        """Block row of each stored block, int32."""
        return _rows(self.crow_indices, self.nnzb)

    @cached_property
    def density(self) -> float:
        """Stored values inside the matrix over m·k; 0 for an empty matrix."""
        (m, k), (r, c), (mb, kb) = self.shape, self.blocksize, self.grid
        if m * k == 0:
            return 0.0
        # What the ragged last row and column of blocks hold beyond the edge.
        over_m, over_k = mb * r - m, kb * c - k
        stored = self.nnzb * r * c
        if over_m or over_k:
            low, right = self.row_indices == mb - 1, self.col_indices == kb - 1
            stored -= int(low.sum()) * over_m * c + int(right.sum()) * over_k * r
            stored += int((low & right).sum()) * over_m * over_k
        return stored / (m * k)

    @property
    def T(self) -> "Pattern":  # noqa: N802  torch's spelling
        """The pattern of the transposed matrix; its own `T` is this pattern again."""
        source = self.__dict__.get("_transpose_of", lambda: None)()
        return self._transposed if source is None else source

    @cached_property
    def transpose_permutation(self) -> Int[Tensor, " nnzb"]:
        """Where the blocks of `T` come from: block i of `T` is block `[i]` of this one, int64."""
        return column_order(self.col_indices, self.grid[1])

    @cached_property
    def _transposed(self) -> "Pattern":
        flipped = Pattern(
            (self.shape[1], self.shape[0]),
            (self.blocksize[1], self.blocksize[0]),
            offsets_of(self.col_indices, self.grid[1]),
            self.row_indices.index_select(0, self.transpose_permutation),
        )
        # Weak, so that the pair is no reference cycle and is freed at once.
        flipped.__dict__["_transpose_of"] = weakref.ref(self)
        return flipped

    def to(self, device: torch.device | str | int) -> "Pattern":
        """Copy the pattern to a device; itself when it is there already.

        Args:
            device: Where the index tensors shall live.

        Returns:
            A pattern equal to this one.

        Raises:
            ValueError: If the device does not exist or holds no data.

        Examples:
            >>> p = Pattern((4, 4), 2, [0, 1, 2], [0, 1])
            >>> p.to("cpu") is p
            True
        """
        target = as_device(device)
        crow = self.crow_indices.to(target)
        if crow is self.crow_indices:
            return self
        return Pattern(self.shape, self.blocksize, crow, self.col_indices.to(target))

    def block_mask(self) -> Bool[Tensor, "mb kb"]:
        """Mark the stored blocks in a grid of one element a block.

        Returns:
            True where a block is stored.

        Examples:
            >>> Pattern((4, 4), 2, [0, 1, 2], [0, 1]).block_mask()
            tensor([[ True, False],
                    [False,  True]])
        """
        mask = torch.zeros(self.grid, dtype=torch.bool, device=self.device)
        mask[self.row_indices, self.col_indices] = True
        return mask

    def to_mask(self) -> Bool[Tensor, "m k"]:
        """Mark the stored elements in a dense mask of the matrix's size.

        Returns:
            True where a value is stored.

        Examples:
            >>> Pattern((2, 4), 2, [0, 1], [1]).to_mask()
            tensor([[False, False,  True,  True],
                    [False, False,  True,  True]])
        """
        (m, k), (r, c) = self.shape, self.blocksize
        tall = self.block_mask().repeat_interleave(r, 0)[:m]
        return tall.repeat_interleave(c, 1)[:, :k].contiguous()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        if self is other:
            return True
        if (self.shape, self.blocksize, self.nnzb) != (other.shape, other.blocksize, other.nnzb):
            return False
        return torch.equal(self.crow_indices, other.crow_indices.to(self.device)) and torch.equal(
            self.col_indices, other.col_indices.to(self.device)
        )

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        crow, col = (t.cpu().numpy().tobytes() for t in (self.crow_indices, self.col_indices))
        return hash((self.shape, self.blocksize, crow, col))

    def __copy__(self) -> "Pattern":
        return self

    def __deepcopy__(self, memo: dict[Any, Any]) -> "Pattern":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: what comes from a file is checked, caches stay behind.
        return Pattern, (self.shape, self.blocksize, self.crow_indices, self.col_indices)

    def __repr__(self) -> str:
        return f"Pattern({self.summary()}, {self.device})"

    def summary(self) -> str:
        """Say shape, blocksize, density and count in one line.

        Returns:
            The text that `repr` shows.

        Examples:
            >>> Pattern((4, 8), (2, 4), [0, 1, 2], [0, 1]).summary()
            '4×8, blocksize=2×4, density=0.50, 2 blocks'
        """
        (m, k), (r, c) = self.shape, self.blocksize
        side = str(r) if r == c else f"{r}×{c}"
        # Two decimals, but never 0.00 for a matrix that stores something.
        rounded = f"{self.density:.2f}"
        density = f"{self.density:.1g}" if self.density and float(rounded) == 0 else rounded
        blocks = "1 block" if self.nnzb == 1 else f"{self.nnzb} blocks"
        return f"{m}×{k}, blocksize={side}, density={density}, {blocks}"

    def _repr_html_(self) -> str:
        from sparsetile.matrix._svg import spy_svg

        return f"<div>{spy_svg(self, cells=64)}<br><code>{self!r}</code></div>"


def _rows(crow: Int[Tensor, " mb1"], nnzb: int) -> Int[Tensor, " nnzb"]:
    """Spell out the block row of each block."""
    if crow.device.type == "cpu":
        # torch enters its threads here however few the blocks; in a forked child they are dead
        each = np.arange(len(crow) - 1, dtype=np.int32)
        return torch.from_numpy(each.repeat(np.diff(crow.detach().numpy())))
    rows = torch.arange(len(crow) - 1, dtype=torch.int32, device=crow.device)
    return rows.repeat_interleave(crow.diff(), output_size=nnzb)
