"""Runs of elements moved between flat arrays, without a loop over the runs."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from jaxtyping import Int64

Runs: TypeAlias = Int64[np.ndarray, " runs"]

_CHUNK = 64 << 20  # bytes of temporaries at a time
_ALIKE = 64  # runs of one length that are worth a call of their own


def move(
    source: npt.NDArray[np.generic],
    target: npt.NDArray[np.generic],
    source_start: Runs,
    target_start: Runs,
    length: Runs,
) -> None:
    """Copy runs of `source` to where they go in `target`, another array of the same dtype."""
    kept = length > 0
    if not kept.all():
        source_start, target_start, length = source_start[kept], target_start[kept], length[kept]
    for runs, size in _equal(length):
        if size:
            _windows(source, target, source_start[runs], target_start[runs], size)
        else:
            _expanded(source, target, source_start[runs], target_start[runs], length[runs])


def _equal(length: Runs) -> Iterator[tuple[slice | npt.NDArray[np.int64], int]]:
    """Runs of one length each, with that length; or 0 with a bounded part of mixed ones."""
    if not length.size:
        return
    if length.min() == length.max():
        yield slice(None), int(length[0])
        return
    order = np.argsort(length)
    ordered = length[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    if len(begins) <= max(_ALIKE, length.size // _ALIKE):
        for begin, end in pairwise([*begins.tolist(), length.size]):
            yield order[begin:end], int(ordered[begin])
    else:
        # Few elements of index at a time; a run longer than that is alone.
        part = np.cumsum(length) // (_CHUNK // 32)
        cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), length.size]
        for begin, end in pairwise(cuts):
            yield slice(begin, end), 0


def _windows(
    source: npt.NDArray[np.generic],
    target: npt.NDArray[np.generic],
    source_start: Runs,
    target_start: Runs,
    size: int,
) -> None:
    """Copy runs of one length: rows of overlapping views, so that no index is expanded."""
    rows = max(1, _CHUNK // (size * source.itemsize))
    view = np.lib.stride_tricks.sliding_window_view
    reads, writes = view(source, size), view(target, size, writeable=True)
    for at in range(0, source_start.size, rows):
        writes[target_start[at : at + rows]] = reads[source_start[at : at + rows]]


def _expanded(
    source: npt.NDArray[np.generic],
    target: npt.NDArray[np.generic],
    source_start: Runs,
    target_start: Runs,
    length: Runs,
) -> None:
    """Copy runs of any lengths through the index of every element."""
    ends = np.cumsum(length)
    within = np.arange(ends[-1]) - np.repeat(ends - length, length)
    read = np.repeat(source_start, length) + within
    target[np.repeat(target_start, length) + within] = source[read]
