"""What the words of buckets say, read as the tiles' vertices read them: from the words alone."""

from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
from jaxtyping import Bool, Int64, UInt16

from sparsetile.matrix._check import message
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._plan import DynamicPlan

Which = Literal["fwd", "grad_a"]


@dataclass(frozen=True, eq=False)
class Entries:
    """The subgroups of all buckets, their rows and their non-zeros, bucket by bucket.

    "Block" is an element where the plan's blocks are 1×1. Rows and columns are those of W in blocks
    whichever words were read; but what "its rows" are for the gradient of the input's own words
    are columns of W.

    Attributes:
        bucket: Bucket of each subgroup.
        ix: Row partition that a subgroup belongs to.
        iy: Column partition that it belongs to.
        first: First block of each subgroup.
        count: Blocks of each subgroup.
        value_first: Where the values of each subgroup begin in its bucket.
        head: Word of its bucket where each subgroup begins.
        row_first: First row of each subgroup.
        rows: Rows of each subgroup.
        row: Subgroup by subgroup, the row in the partition, in blocks.
        row_at: Words from the head of its subgroup to each row.
        row_begin: First block of each row.
        row_count: Blocks of each row.
        subgroup: Subgroup of each block.
        w_row: Row in W of each block.
        w_column: Column in W of each block.
        local_row: Row in its partition of each block.
        local_column: Column in its partition of each block.
        value: Where the values of each block begin in its bucket.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> found = scan(encode(small_plan(), small_matrix()).meta_buckets, small_plan())
        >>> found.ix.tolist(), found.iy.tolist(), found.rows.tolist()
        ([0, 1], [0, 1], [4, 4])
    """

    bucket: Int64[np.ndarray, " subgroups"]
    ix: Int64[np.ndarray, " subgroups"]
    iy: Int64[np.ndarray, " subgroups"]
    first: Int64[np.ndarray, " subgroups"]
    count: Int64[np.ndarray, " subgroups"]
    value_first: Int64[np.ndarray, " subgroups"]
    head: Int64[np.ndarray, " subgroups"]
    row_first: Int64[np.ndarray, " subgroups"]
    rows: Int64[np.ndarray, " subgroups"]
    row: Int64[np.ndarray, " rows"]
    row_at: Int64[np.ndarray, " rows"]
    row_begin: Int64[np.ndarray, " rows"]
    row_count: Int64[np.ndarray, " rows"]
    subgroup: Int64[np.ndarray, " blocks"]
    w_row: Int64[np.ndarray, " blocks"]
    w_column: Int64[np.ndarray, " blocks"]
    local_row: Int64[np.ndarray, " blocks"]
    local_column: Int64[np.ndarray, " blocks"]
    value: Int64[np.ndarray, " blocks"]


@dataclass(frozen=True, eq=False)
class _Found:
    """The headers of all subgroups; words count from the first bucket's first."""

    bucket: Int64[np.ndarray, " subgroups"]
    head: Int64[np.ndarray, " subgroups"]
    begin: Int64[np.ndarray, " subgroups"]
    end: Int64[np.ndarray, " subgroups"]
    ix: Int64[np.ndarray, " subgroups"]
    iy: Int64[np.ndarray, " subgroups"]
    rows: Int64[np.ndarray, " subgroups"]
    count: Int64[np.ndarray, " subgroups"]


def scan(
    meta_buckets: UInt16[np.ndarray, "buckets words"], plan: DynamicPlan, which: Which = "fwd"
) -> Entries:
    """Read the words of all buckets, subgroup by subgroup until the end mark.

    Args:
        meta_buckets: Words of each bucket, in any order of buckets and of any number.
        plan: The plan that they were encoded for.
        which: `"fwd"`, or `"grad_a"` for the gradient of the input's own words.

    Returns:
        What they hold.

    Raises:
        ValueError: If the words contradict each other or the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> plan = small_plan()
        >>> found = scan(encode(plan, small_matrix()).meta_buckets, plan)
        >>> found.bucket.tolist(), found.count.tolist(), found.w_row.tolist()
        ([0, 3], [4, 4], [0, 1, 2, 3, 4, 5, 6, 7])
    """
    buckets, length = meta_buckets.shape
    allowed = plan.bucket_meta if which == "fwd" else plan.bucket_meta_grad_a
    if length != allowed or length == 0:
        raise ValueError(
            message(
                "meta_buckets",
                got=f"{length} words in a bucket",
                allowed=f"{allowed} words, more than none, for {which!r} with this plan",
                fix="pass those of the same plan; shared buckets have no words for grad_a",
            )
        )
    flat = meta_buckets.reshape(-1)
    bucket, head = _subgroups(flat, buckets, length, at.is_block(plan))
    found = _headers(flat, bucket, head, plan, which)
    row_at, row_count = _rows(flat, found, at.is_block(plan), 1 + (which == "grad_a"))
    return _entries(flat, plan, which, found, row_at, row_count)


def _subgroups(
    flat: UInt16[np.ndarray, " all"], buckets: int, length: int, block: bool
) -> tuple[Int64[np.ndarray, " subgroups"], Int64[np.ndarray, " subgroups"]]:
    """Bucket and place of every subgroup, bucket by bucket."""
    header, step_at = (at.BLOCK_HEADER, at.BLOCK_NEXT) if block else (at.ELEMENT_HEADER, at.NEXT)
    here, alive = np.arange(buckets) * length, np.arange(buckets)
    owners, heads = [alive[:0]], [alive[:0]]
    while True:
        going = flat[here] != 0
        here, alive = here[going], alive[going]
        if not len(alive):
            break
        room = (alive + 1) * length - here
        _check(room > header, "a subgroup reaches over the end of its bucket")
        step = flat[here + step_at].astype(np.int64)
        _check((step >= header) & (step < room), "no next subgroup where one is said to be")
        owners.append(alive)
        heads.append(here)
        here = here + step
    owner = np.concatenate(owners)
    order = owner.argsort(kind="stable")
    return owner[order], np.concatenate(heads)[order]


def _headers(
    flat: UInt16[np.ndarray, " all"],
    bucket: Int64[np.ndarray, " subgroups"],
    head: Int64[np.ndarray, " subgroups"],
    plan: DynamicPlan,
    which: Which,
) -> _Found:
    """Read the header of every subgroup, and check that it fits what follows."""

    def word(field: int | Int64[np.ndarray, " subgroups"]) -> Int64[np.ndarray, " subgroups"]:
        return np.asarray(flat[head + field].astype(np.int64))

    ix, iy = np.divmod(word(at.ID) - 1, plan.y)
    agree = (ix < plan.x) & (word(at.X) == ix) & (word(at.Y) == iy)
    _check(agree, "no such partition as a subgroup's")
    grad_w = plan.options.grad_w and which == "fwd"
    if at.is_block(plan):
        area = plan.kernel_block[0] * plan.kernel_block[1]
        count, rest = np.divmod(word(at.BLOCK_VALUES), area)
        _check(rest == 0, "a subgroup ends inside a block")
        rows, step, workers = word(at.BLOCK_ROWS) + 1, word(at.BLOCK_NEXT), word(at.BLOCK_WORKERS)
        _check(workers <= plan.machine.workers * grad_w, "too many workers")
        fixed = at.BLOCK_HEADER + workers * at.GRAD_W_WORKER
        size = fixed + rows * at.ROW + count
    else:
        rows, step, workers = word(at.ROWS) + 1, word(at.NEXT), word(at.WORKERS)
        count = word(at.COUNT)
        _check(workers <= plan.machine.workers, "too many workers")
        _check(word(at.NUM_Z) == at.num_z(plan), "a subgroup for another dense operand")
        fixed = at.ELEMENT_HEADER + workers * at.WORKER
        if grad_w:
            _check(fixed < step, "workers reach over the end of their subgroup")
            more = word(fixed)
            _check(more <= plan.machine.workers, "too many workers")
            fixed = fixed + 1 + more * at.GRAD_W_WORKER
        _check(word(at.FIRST_ROW) == fixed, "rows do not follow the workers")
        size = fixed + rows * at.ROW + count * (1 if which == "fwd" else 2)
    _check((size == step) & (rows <= count), "counts do not fill their subgroup")
    return _Found(bucket, head, head + fixed, head + step, ix, iy, rows, count)


def _value_offsets(
    bucket: Int64[np.ndarray, " subgroups"],
    count: Int64[np.ndarray, " subgroups"],
    plan: DynamicPlan,
) -> Int64[np.ndarray, " subgroups"]:
    """Where the values of each subgroup begin: they follow each other in every bucket."""
    before = exclusive(count)
    new = np.flatnonzero(np.diff(bucket, prepend=-1))
    first = before - before[new].repeat(np.diff(new, append=len(bucket)))
    _check(first + count <= at.capacity(plan), "more values than a bucket holds")
    return np.asarray(first * (plan.kernel_block[0] * plan.kernel_block[1]))


def _rows(
    flat: UInt16[np.ndarray, " all"], found: _Found, block: bool, words: int
) -> tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]:
    """Place and length of every row; all subgroups step from row to row together."""
    # With the subgroups of most rows first, those that still have rows are always the first ones.
    rows = found.rows
    order = np.argsort(-rows, kind="stable")
    first, here, stop = exclusive(rows)[order], found.begin[order], found.end[order]
    place, length = np.empty((2, int(rows.sum())), np.int64)
    left = np.searchsorted(-rows[order], -np.arange(int(rows.max(initial=0))), side="left")
    for step, live in enumerate(left):
        now = here[:live]
        _check(now + at.ROW <= stop[:live], "rows reach over the end of their subgroup")
        count = flat[now + 1].astype(np.int64) + block
        target = first[:live] + step
        place[target], length[target] = now, count
        here[:live] += at.ROW + words * count
    _check(here == stop, "rows do not fill their subgroup")
    _check(length > 0, "a row without anything in it")
    return place, length


def _entries(
    flat: UInt16[np.ndarray, " all"],
    plan: DynamicPlan,
    which: Which,
    found: _Found,
    row_at: Int64[np.ndarray, " rows"],
    row_count: Int64[np.ndarray, " rows"],
) -> Entries:
    """Read rows and columns, and check that they are in their partition and ascend."""
    words, (r, c) = 1 + (which == "grad_a"), plan.kernel_block
    ix, iy, rows, count = found.ix, found.iy, found.rows, found.count
    value_first = _value_offsets(found.bucket, count, plan)
    sizes = (plan.x_size // r, plan.y_size // c)
    ends = (-(-plan.m // r) - ix * sizes[0], -(-plan.k // c) - iy * sizes[1])
    limits = [np.minimum(size, end) for size, end in zip(sizes, ends, strict=True)]
    scales = (r, c) if at.is_block(plan) else (1, at.offset_scale(plan))
    if which == "grad_a":
        limits.reverse()
    first, row_begin, subgroup_of_row = exclusive(count), exclusive(row_count), _owners(rows)
    major, rest = np.divmod(flat[row_at].astype(np.int64), scales[0])
    _check((rest == 0) & (major < limits[0][subgroup_of_row]), "a row outside its partition")
    _check(_ascending(major, exclusive(rows)), "rows of a subgroup that do not ascend")
    total = int(row_count.sum())
    place = (row_at + at.ROW - words * row_begin).repeat(row_count) + words * np.arange(total)
    minor, rest = np.divmod(flat[place + words - 1].astype(np.int32), np.int32(scales[1]))
    subgroup = _owners(count)
    inside = (rest == 0) & (minor < limits[1].repeat(count))
    _check(inside, "a column outside its partition")
    _check(_ascending(minor, row_begin), "columns of a row that do not ascend")
    if which == "fwd":
        rank = np.arange(total) - first.repeat(count)
    else:
        rank = flat[place].astype(np.int64)
        _check(rank < count.repeat(count), "a value outside its subgroup")
    local_row, local_column = major.repeat(row_count), minor.astype(np.int64)
    if which == "grad_a":
        local_row, local_column = local_column, local_row
    return Entries(
        bucket=found.bucket,
        ix=ix,
        iy=iy,
        first=first,
        count=count,
        value_first=value_first,
        head=found.head % (plan.bucket_meta if which == "fwd" else plan.bucket_meta_grad_a),
        row_first=exclusive(rows),
        rows=rows,
        row=major,
        row_at=row_at - found.head.repeat(rows),
        row_begin=row_begin,
        row_count=row_count,
        subgroup=subgroup,
        w_row=local_row + (ix * sizes[0]).repeat(count),
        w_column=local_column + (iy * sizes[1]).repeat(count),
        local_row=local_row,
        local_column=local_column,
        value=value_first.repeat(count) + rank * (r * c),
    )


def exclusive(counts: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Sum of what comes before each."""
    return np.asarray(np.cumsum(counts) - counts)


def _owners(counts: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " total"]:
    return np.arange(len(counts)).repeat(counts)


def _ascending(
    numbers: np.ndarray, first: Int64[np.ndarray, " runs"]
) -> Bool[np.ndarray, " numbers"]:
    """Whether each number is more than the one before it, in runs that begin at `first`."""
    rising = np.diff(numbers, prepend=numbers[:1] - 1) > 0
    rising[first] = True
    return rising


def _check(good: Bool[np.ndarray, " n"], wrong: str) -> None:
    """Refuse words of which one is not good."""
    if not good.all():
        corrupt(wrong)


def corrupt(wrong: str) -> NoReturn:
    """Refuse words; say what is wrong."""
    raise ValueError(
        message(
            "corrupt or invalid meta-information",
            got=wrong,
            allowed="words that encode wrote for this plan",
            fix="encode the matrix again",
        )
    )
