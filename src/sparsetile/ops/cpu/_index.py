"""The stored blocks in the order a product reads them: by rows, or by columns for the transpose."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sparsetile.plan import balanced_bands

_SLACK = 16  # entries past the end that a kernel may read when it looks ahead


@dataclass
class Index:
    """Compressed rows of the matrix as multiplied: W itself, or its transpose."""

    crow: Tensor  # int32[block_rows + 1]
    col: Tensor  # int32[nnzb + slack]
    position: Tensor  # int32[nnzb + slack]: where each block lies among the values
    nnzb: int
    _bounds: dict[int, Tensor] = field(default_factory=dict)

    @property
    def block_rows(self) -> int:
        """Number of block rows."""
        return len(self.crow) - 1

    def bounds(self, parts: int) -> Tensor:
        """Cut the block rows into consecutive parts of about equal work; int64[parts + 1]."""
        found = self._bounds.get(parts)
        if found is None:
            work = np.diff(self.crow.numpy()) + 1  # an empty row still stores its zeros
            bounds = torch.from_numpy(balanced_bands(work, parts).astype(np.int64))
            # whoever was first: plans keep addresses, so what was given out once must stay
            found = self._bounds.setdefault(parts, bounds)
        return found


def index_of(crow: Tensor, col: Tensor, block_columns: int, *, transpose: bool) -> Index:
    """Make the index of a pattern, or of its transpose."""
    rows, columns = crow.numpy().astype(np.int32), col.numpy().astype(np.int32)
    _check(rows, columns, block_columns)
    if not transpose:
        position = np.arange(len(columns), dtype=np.int32)
    else:
        # a stable sort of 16-bit keys is a radix sort: ten times quicker for millions of blocks
        keys = columns.astype(np.uint16) if block_columns <= 2**16 else columns
        position = np.argsort(keys, kind="stable").astype(np.int32)
        of_block = np.repeat(np.arange(len(rows) - 1, dtype=np.int32), np.diff(rows))
        counts = np.bincount(columns, minlength=block_columns)
        rows, columns = (
            np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            of_block[position],
        )
    padded = [torch.from_numpy(np.pad(array, (0, _SLACK))) for array in (columns, position)]
    return Index(torch.from_numpy(rows), padded[0], padded[1], len(col))


def _check(rows: np.ndarray, columns: np.ndarray, block_columns: int) -> None:
    """Refuse indices that would lead a kernel astray: buffers can be overwritten by anybody."""
    if rows[0] != 0 or rows[-1] != len(columns) or (np.diff(rows) < 0).any():
        raise ValueError(
            f"crow_indices must rise from 0 to the number of blocks, {len(columns)}; "
            f"they run from {rows[0]} to {rows[-1]}; write both index buffers together"
        )
    if len(columns) and not 0 <= columns.min() <= columns.max() < block_columns:
        raise ValueError(
            f"col_indices run from {columns.min()} to {columns.max()}; "
            f"the matrix has block columns 0 to {block_columns - 1}"
        )
