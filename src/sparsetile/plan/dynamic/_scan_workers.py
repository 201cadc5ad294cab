"""What the words of buckets say about each worker."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt16

from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import Entries, Which, corrupt, exclusive, scan


@dataclass(frozen=True, eq=False)
class WorkerEntries:
    """What each worker of each subgroup is to do.

    Attributes:
        subgroup: Subgroup of each worker, an index into the `Entries` of the same words.
        row: First row of each worker among all rows of the `Entries`.
        rows: Rows of each worker, of which the first and last may be shared.
        block: First block of each worker among all blocks of the `Entries`.
        count: Blocks of each worker.
        z_begin: First column of the dense operand of each worker.
        z_size: Columns of the dense operand of each worker, to whole grains.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> words = encode(small_plan(), small_matrix()).meta_buckets
        >>> scan_workers(words, small_plan()).z_size.tolist()
        [2, 2]
    """

    subgroup: Int64[np.ndarray, " workers"]
    row: Int64[np.ndarray, " workers"]
    rows: Int64[np.ndarray, " workers"]
    block: Int64[np.ndarray, " workers"]
    count: Int64[np.ndarray, " workers"]
    z_begin: Int64[np.ndarray, " workers"]
    z_size: Int64[np.ndarray, " workers"]


def scan_workers(
    meta_buckets: UInt16[np.ndarray, "buckets words"],
    plan: DynamicPlan,
    which: Which = "fwd",
    entries: Entries | None = None,
) -> WorkerEntries:
    """Read how workers share the subgroups of elements.

    Blocks have no such words: all workers see all blocks, and share the dense operand's columns.

    Args:
        meta_buckets: Words of each bucket.
        plan: The plan that they were encoded for, of elements.
        which: `"fwd"`, or `"grad_a"` for the gradient of the input's own words.
        entries: What `scan` finds in these words, if it is known already.

    Returns:
        The workers, subgroup by subgroup; none where blocks are encoded.

    Raises:
        ValueError: If the words contradict each other or the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> plan = small_plan()
        >>> scan_workers(encode(plan, small_matrix()).meta_buckets, plan).count.tolist()
        [4, 4]
    """
    found = scan(meta_buckets, plan, which) if entries is None else entries
    flat = meta_buckets.reshape(-1)
    if at.is_block(plan):
        return _nothing()
    head = found.bucket * meta_buckets.shape[1] + found.head
    place, subgroup = _places(head + at.ELEMENT_HEADER, flat[head + at.WORKERS], at.WORKER)
    words = [flat[place + field].astype(np.int64) for field in range(at.WORKER)]
    value, z_size, z_begin, rows, row_at = words
    rows = rows + 1
    row = _find_row(found, head, place + row_at, subgroup)
    last = row + rows - 1
    ends = found.row_first + found.rows
    if not ((last < ends[subgroup]) & (z_begin + z_size <= at.num_z(plan))).all():
        corrupt("a worker that reaches over the end of its subgroup")
    block = found.row_begin[row]
    if which == "fwd" and not (value == block - found.first[subgroup]).all():
        corrupt("a worker whose values are not those of its rows")
    count = found.row_begin[last] + found.row_count[last] - block
    return WorkerEntries(subgroup, row, rows, block, count, z_begin, z_size)


def scan_grad_w_workers(
    meta_buckets: UInt16[np.ndarray, "buckets words"],
    plan: DynamicPlan,
    entries: Entries | None = None,
) -> WorkerEntries:
    """Read how workers share the subgroups when the gradient of the weight is computed.

    Args:
        meta_buckets: Words of each bucket.
        plan: The plan that they were encoded for.
        entries: What `scan` finds in these words, if it is known already.

    Returns:
        The workers, subgroup by subgroup, each with all columns of the dense operand; none where
        the gradient of the weight is not planned.

    Raises:
        ValueError: If the words contradict each other or the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._plan import DynamicOptions
        >>> plan = small_plan(options=DynamicOptions(grad_w=True))
        >>> scan_grad_w_workers(encode(plan, small_matrix()).meta_buckets, plan).count.tolist()
        [4, 4]
    """
    found = scan(meta_buckets, plan) if entries is None else entries
    if not plan.options.grad_w:
        return _nothing()
    flat = meta_buckets.reshape(-1)
    head = found.bucket * meta_buckets.shape[1] + found.head
    if at.is_block(plan):
        begin, workers = head + at.BLOCK_HEADER, flat[head + at.BLOCK_WORKERS]
    else:
        counted = head + at.ELEMENT_HEADER + at.WORKER * flat[head + at.WORKERS].astype(np.int64)
        begin, workers = counted + 1, flat[counted]
    place, subgroup = _places(begin, workers, at.GRAD_W_WORKER)
    words = [flat[place + field].astype(np.int64) for field in range(at.GRAD_W_WORKER)]
    value, row_at, skipped, count = words
    row = _find_row(found, head, place + row_at, subgroup)
    block = found.row_begin[row] + skipped
    first = found.first[subgroup]
    good = (value == block - first) & (skipped < found.row_count[row]) & (count > 0)
    if not (good & (value + count <= found.count[subgroup])).all():
        corrupt("a worker whose values are not those of its rows")
    last = np.searchsorted(found.row_begin, block + count - 1, side="right") - 1
    z_size = np.full_like(row, at.num_z(plan))
    rows = last - row + 1
    return WorkerEntries(subgroup, row, rows, block, count, np.zeros_like(row), z_size)


def _places(
    begin: Int64[np.ndarray, " subgroups"], workers: UInt16[np.ndarray, " subgroups"], words: int
) -> tuple[Int64[np.ndarray, " workers"], Int64[np.ndarray, " workers"]]:
    """Place and subgroup of every worker's words."""
    count = workers.astype(np.int64)
    turn = np.arange(int(count.sum())) - exclusive(count).repeat(count)
    return begin.repeat(count) + words * turn, np.arange(len(count)).repeat(count)


def _find_row(
    found: Entries,
    head: Int64[np.ndarray, " subgroups"],
    place: Int64[np.ndarray, " workers"],
    subgroup: Int64[np.ndarray, " workers"],
) -> Int64[np.ndarray, " workers"]:
    """Which row has its words at each place."""
    rows_at = head.repeat(found.rows) + found.row_at
    row = np.searchsorted(rows_at, place)
    row = np.minimum(row, len(rows_at) - 1)
    own = (found.row_first[subgroup] <= row) & (row < (found.row_first + found.rows)[subgroup])
    if not (own & (rows_at[row] == place)).all():
        corrupt("a worker that begins in no row")
    return np.asarray(row)


def _nothing() -> WorkerEntries:
    return WorkerEntries(*np.zeros((7, 0), np.int64))
