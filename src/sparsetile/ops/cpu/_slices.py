"""The sliced order of small blocks: what a sliced kernel walks through, made once per pattern.

Columns are cut into k-blocks whose slice of the dense operand fits the first cache, rows into
chunks whose results fit the second. Within one (chunk, k-block) the block rows are sorted by how
many blocks they hold there and taken S at a time: a *slice*. Its blocks are stored ``[j][S]``, so
one trip count serves S rows and hardly changes from slice to slice.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sparsetile.ops.cpu._index import Index

_SLACK = 256  # entries past the end that a kernel may read when it looks ahead
_CHUNKS = 4  # at least, so that threads find work in a short matrix
_CHUNK_ROWS = (128, 1024)  # bounds of a chunk's rows: its results stay in the second cache


@dataclass(frozen=True)
class Slices:
    """The blocks of a matrix in sliced order. A *slot* holds a block, or padding."""

    k_block: int  # columns of a k-block
    chunk_rows: int  # rows of a chunk
    chunks: int
    k_blocks: int
    table: Tensor  # int64[chunks, k_blocks, 3]: first slice, last slice, first slot
    lengths: Tensor  # int32[slices]: trip count of each
    rows: Tensor  # int32[slices, S]: first row of each block row within its chunk
    index: Tensor  # uint16[slots]: first row of the block within the k-block's panel
    source: Tensor  # int32[slots]: the block of the values in each slot, -1 for padding
    slots: int

    def fields(self) -> dict[str, int]:
        """Give the addresses that kernels take."""
        names = ("table", "lengths", "rows", "index", "source")
        return {name: getattr(self, name).data_ptr() for name in names}


def slices_of(index: Index, block: tuple[int, int], k: int, k_block: int, together: int) -> Slices:
    """Sort the blocks of an index into slices.

    Args:
        index: The matrix as it is multiplied.
        block: Rows and columns of a block as it is multiplied.
        k: Columns of the matrix.
        k_block: Columns of a k-block; a multiple of the block's.
        together: Block rows of a slice, S.
    """
    height, width = block
    col = index.col.numpy()[: index.nnzb].astype(np.int64)
    block_rows = index.block_rows
    chunk_rows = min(max(-(-block_rows * height // _CHUNKS), _CHUNK_ROWS[0]), _CHUNK_ROWS[1])
    chunk = max(1, chunk_rows // height)  # block rows
    chunks, k_blocks = -(-block_rows // chunk), max(1, -(-k // k_block))
    row = np.repeat(np.arange(block_rows), np.diff(index.crow.numpy()))
    segment = row * k_blocks + col * width // k_block
    counts = np.bincount(segment, minlength=block_rows * k_blocks)
    starts = (np.cumsum(counts) - counts).reshape(block_rows, k_blocks)
    counts = counts.reshape(block_rows, k_blocks)
    table = np.zeros((chunks, k_blocks, 3), np.int64)
    lengths, rows, source = [], [], []
    slices = slots = 0
    for c in range(chunks):
        these = slice(c * chunk, (c + 1) * chunk)
        for b in range(k_blocks):
            count, start = counts[these, b], starts[these, b]
            order = np.argsort(-count, kind="stable")[: np.count_nonzero(count)]
            n = -(-len(order) // together)
            padded = np.full(n * together, -1)
            padded[: len(order)] = order
            real = padded >= 0
            length = np.where(real, count[padded], 0).reshape(n, together).max(axis=1, initial=0)
            table[c, b] = slices, slices + n, slots
            lengths.append(length)
            # rows that fill up the last slice add their zeros past the end of the chunk
            rows.append(np.where(real, padded * height, chunk * height))
            source.append(_slots(padded, real, length, count, start, together))
            slices, slots = slices + n, slots + len(source[-1])
    found = np.concatenate(source) if source else np.zeros(0, np.int64)
    held = found >= 0
    place = np.full(len(found), k_block)  # padding multiplies rows of zeros at the panel's end
    place[held] = col[found[held]] * width % k_block
    position = np.full(len(found), -1)
    position[held] = index.position.numpy()[found[held]]
    return Slices(
        k_block,
        chunk * height,
        chunks,
        k_blocks,
        torch.from_numpy(table),
        torch.from_numpy(np.concatenate([*lengths, [0]]).astype(np.int32)),
        torch.from_numpy(np.concatenate([*rows, [0] * _SLACK]).astype(np.int32)),
        torch.from_numpy(np.pad(place, (0, _SLACK)).astype(np.uint16)),
        torch.from_numpy(np.pad(position, (0, _SLACK)).astype(np.int32)),
        len(found),
    )


def _slots(
    rows: np.ndarray,
    real: np.ndarray,
    length: np.ndarray,
    count: np.ndarray,
    start: np.ndarray,
    together: int,
) -> np.ndarray:
    """List the blocks of one (chunk, k-block) slot by slot, -1 where a row has run out."""
    number = np.repeat(np.arange(len(length)), length)
    j = np.arange(len(number)) - np.repeat(np.cumsum(length) - length, length)
    row = rows.reshape(-1, together)[number]
    inside = real.reshape(-1, together)[number] & (j[:, None] < count[row])
    return np.where(inside, start[row] + j[:, None], -1).ravel()
