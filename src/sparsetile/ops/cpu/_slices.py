"""The sliced order of small blocks: what a sliced kernel walks through, made once per pattern.

Columns are cut into k-blocks whose slice of the dense operand fits the first cache, rows into
chunks whose results fit the second. Within one (chunk, k-block) the block rows are sorted by how
many blocks they hold there and taken S at a time. S rows of equal length make one *slice*; where
lengths differ, a first slice takes what all have and further ones the rest of the longer rows, with
other rows repeated in the empty places and their sums thrown away. So one trip count serves S rows,
it hardly changes from slice to slice, and no padding is ever multiplied.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sparsetile.ops.cpu._index import Index

_SLACK = 256  # entries past the end that a kernel may read when it looks ahead
_CHUNKS = 4  # at least, so that threads find work in a short matrix
_CHUNK_ROWS = (128, 1024)  # bounds of a chunk's rows: its results stay in the second cache


@dataclass(frozen=True)
class Slices:
    """The blocks of a matrix in sliced order. A *slot* is one block of one step of a slice."""

    k_block: int  # columns of a k-block
    chunk_rows: int  # rows of a chunk
    chunks: int
    k_blocks: int
    table: Tensor  # int64[chunks, k_blocks, 3]: first slice, last slice, first slot
    lengths: Tensor  # int32[slices]: steps of each
    rows: Tensor  # int32[slices, S]: first row of each block row within its chunk
    starts: Tensor  # int32[slices, S]: its first block there, in the order of the index
    index: Tensor  # uint16[slots]: first row of the block within the k-block's panel
    source: Tensor  # int32[slots]: where the block lies among the values
    repeated: Tensor  # bool[slots]: whether it only fills an empty place
    slots: int

    def without(self, *names: str) -> "Slices":
        """Forget arrays of the slots' size that a plan does not need."""
        return replace(self, **{name: getattr(self, name)[:0].clone() for name in names})

    def fields(self) -> dict[str, int]:
        """Give the addresses that kernels take."""
        names = ("table", "lengths", "rows", "index")
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
    starts = np.cumsum(counts) - counts
    split = (chunks, chunk, k_blocks)
    counts, starts = (_by_segment(array, split) for array in (counts, starts))
    table, lengths, rows, first, blocks, repeated = _sort(counts, starts, together)
    # what fills an empty place adds to rows past the end of the chunk
    rows = np.where(rows >= 0, rows, chunk) * height
    place = col[blocks] * width % k_block
    return Slices(
        k_block=k_block,
        chunk_rows=chunk * height,
        chunks=chunks,
        k_blocks=k_blocks,
        table=torch.from_numpy(table.reshape(chunks, k_blocks, 3)),
        lengths=_with_slack(lengths, np.int32),
        rows=_with_slack(rows, np.int32),
        starts=_with_slack(first, np.int32),
        index=_with_slack(place, np.uint16),
        source=_with_slack(index.position.numpy()[blocks], np.int32),
        repeated=torch.from_numpy(repeated),
        slots=len(blocks),
    )


class _Sorted(NamedTuple):
    """Slices of all segments, a segment being one (chunk, k-block)."""

    table: np.ndarray  # [segments, 3]: first slice, last slice, first slot
    lengths: np.ndarray  # [slices]
    rows: np.ndarray  # [slices · S] within the chunk, -1 in empty places
    starts: np.ndarray  # [slices · S]
    blocks: np.ndarray  # [slots]
    repeated: np.ndarray  # [slots]


def _by_segment(array: np.ndarray, split: tuple[int, int, int]) -> np.ndarray:
    """Lay numbers of [block row, k-block] out as [segment, block row of the chunk]."""
    chunks, chunk, k_blocks = split
    room = np.zeros(chunks * chunk * k_blocks, array.dtype)
    room[: len(array)] = array
    return room.reshape(split).transpose(0, 2, 1).reshape(chunks * k_blocks, chunk)


def _sort(count: np.ndarray, start: np.ndarray, together: int) -> _Sorted:
    """Sort the block rows of each segment by length, and cut S at a time where lengths differ."""
    segments, chunk = count.shape
    order = np.argsort(-count, axis=1, kind="stable")
    groups = -(-chunk // together)
    room = np.zeros((3, segments, groups * together), np.int64)
    for part, array in zip(room, (order, count, start), strict=True):
        part[:, :chunk] = order if array is order else np.take_along_axis(array, order, 1)
    room = room.reshape(3, segments * groups, together)
    filled = room[1, :, 0].nonzero()[0]  # each group begins with its longest
    order, length, start = room[:, filled]
    upper = length[:, ::-1]
    lower = np.zeros_like(upper)
    lower[:, 1:] = upper[:, :-1]
    group, cut = np.nonzero(upper > lower)
    lower, steps = lower[group, cut], (upper - lower)[group, cut]
    active = length[group] > lower[:, None]
    first = start[group]
    first = np.where(active, first, first[:, :1]) + lower[:, None]
    number = np.repeat(np.arange(len(steps)), steps)
    step = np.arange(len(number)) - np.repeat(np.cumsum(steps) - steps, steps)
    segment = filled[group] // groups
    last = np.searchsorted(segment, np.arange(segments), side="right")
    slot = np.concatenate([[0], np.cumsum(steps * together)])
    table = np.empty((segments, 3), np.int64)
    table[:, 1] = last
    table[1:, 0], table[:1, 0] = last[:-1], 0
    table[:, 2] = slot[table[:, 0]]
    return _Sorted(
        table=table,
        lengths=steps,
        rows=np.where(active, order[group], -1).ravel(),
        starts=first.ravel(),
        blocks=(first[number] + step[:, None]).ravel(),
        repeated=~active[number].ravel(),
    )


def _with_slack(array: np.ndarray, dtype: npt.DTypeLike) -> Tensor:
    """Copy an array to a tensor, with room for a kernel that looks ahead."""
    return torch.from_numpy(np.pad(array, (0, _SLACK)).astype(dtype))
