"""Subgroups written as the 16-bit words that vertices read."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Int64, UInt16

from sparsetile.matrix._check import message
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._cut import Pieces
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import exclusive
from sparsetile.plan.dynamic._workers import Shares, split_blocks, split_rows


def write_words(pieces: Pieces, plan: DynamicPlan) -> UInt16[np.ndarray, "tiles words"]:
    """Write the words of all buckets.

    Args:
        pieces: The subgroups, in the order in which each bucket holds them.
        plan: The plan.

    Returns:
        The words, zeros behind the end marks.

    Raises:
        ValueError: If a bucket is too small or a word would not fit 16 bits.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> from sparsetile.plan.dynamic._cut import cut
        >>> plan = small_plan()
        >>> one = cut(np.array([1]), np.array([2]), plan)
        >>> write_words(one, plan)[0, :18].tolist()
        [1, 0, 0, 1, 17, 2, 0, 14, 1, 0, 2, 0, 0, 5, 1, 1, 16, 0]
    """
    return _Writer(pieces, plan, None).words()


def write_words_grad_a(pieces: Pieces, plan: DynamicPlan) -> UInt16[np.ndarray, "tiles words"]:
    """Write the words that the gradient of the input has of its own: the subgroups transposed.

    Args:
        pieces: The subgroups, in the order in which each bucket holds them.
        plan: The plan, of elements.

    Returns:
        The words, zeros behind the end marks.

    Raises:
        ValueError: If a bucket is too small or a word would not fit 16 bits.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> from sparsetile.plan.dynamic._cut import cut
        >>> plan = small_plan(bucket_meta_grad_a=70)
        >>> one = cut(np.array([1]), np.array([2]), plan)
        >>> write_words_grad_a(one, plan)[0, 14:19].tolist()
        [2, 1, 0, 8, 0]
    """
    of_row = (
        np.add.reduceat(pieces.row_count, exclusive(pieces.rows))
        if len(pieces.rows)
        else pieces.rows
    )
    subgroup = np.arange(len(of_row)).repeat(of_row)
    row = pieces.row.repeat(pieces.row_count)
    order = _digits(pieces.column).argsort(kind="stable")
    order = order[_digits(subgroup[order]).argsort(kind="stable")]
    column = pieces.column[order]
    new = np.diff(column, prepend=-1) != 0
    new[exclusive(of_row)] = True
    begin = np.flatnonzero(new)
    flipped = Pieces(
        pieces.bucket,
        pieces.ix,
        pieces.iy,
        np.diff(np.searchsorted(begin, exclusive(of_row)), append=len(begin)),
        column[begin],
        np.diff(begin, append=len(column)),
        row[order],
        pieces.source[order],
    )
    return _Writer(flipped, plan, order - exclusive(of_row)[subgroup]).words()


def counts_of(pieces: Pieces) -> Int64[np.ndarray, " subgroups"]:
    """Blocks of each subgroup."""
    ends = np.cumsum(pieces.row_count)[np.cumsum(pieces.rows) - 1]
    return np.diff(ends, prepend=0)


def bucket_order(
    bucket: Int64[np.ndarray, " subgroups"], size: Int64[np.ndarray, " subgroups"]
) -> Int64[np.ndarray, " subgroups"]:
    """Where each subgroup begins in its bucket, when each bucket holds them in the order given."""
    order = bucket.argsort(kind="stable")
    before = exclusive(size[order])
    new = np.flatnonzero(np.diff(bucket[order], prepend=-1))
    start = np.empty_like(before)
    start[order] = before - before[new].repeat(np.diff(new, append=len(order)))
    return start


class _Writer:
    """Writes the words of one pass."""

    def __init__(
        self, pieces: Pieces, plan: DynamicPlan, gathered: Int64[np.ndarray, " blocks"] | None
    ) -> None:
        self.pieces, self.plan, self.gathered = pieces, plan, gathered
        self.words_each = 1 if gathered is None else 2
        self.length = plan.bucket_meta if gathered is None else plan.bucket_meta_grad_a
        self.row_first = exclusive(pieces.rows)
        self.row_begin = exclusive(pieces.row_count)
        self.row_end = self.row_begin + pieces.row_count
        self.first = self.row_begin[self.row_first]
        self.count = np.diff(self.first, append=len(pieces.column))
        self.shares = self._shares()
        self.grad_shares = self._grad_shares()
        subgroups = len(pieces.rows)
        self.workers = np.bincount(self.shares.subgroup, minlength=subgroups)
        self.grad_workers = np.bincount(self.grad_shares.subgroup, minlength=subgroups)

    def words(self) -> UInt16[np.ndarray, "tiles words"]:
        block, pieces, plan = at.is_block(self.plan), self.pieces, self.plan
        grad_w = plan.options.grad_w and self.gathered is None
        if block:
            self.fixed = at.BLOCK_HEADER + self.grad_workers * at.GRAD_W_WORKER
        else:
            more = grad_w * (1 + self.grad_workers * at.GRAD_W_WORKER)
            self.fixed = at.ELEMENT_HEADER + self.workers * at.WORKER + more
        size = self.fixed + pieces.rows * at.ROW + self.count * self.words_each
        start = bucket_order(pieces.bucket, size)
        self._check_room(start + size)
        self.head = pieces.bucket * self.length + start
        self.out = np.zeros(plan.tiles * self.length, np.uint16)
        number = pieces.ix * plan.y + pieces.iy + 1
        header = [number, pieces.ix, pieces.iy]
        if block:
            area = plan.kernel_block[0] * plan.kernel_block[1]
            header += [self.count * area, size, pieces.rows - 1, self.grad_workers]
        else:
            z = np.full_like(size, at.num_z(plan))
            header += [self.count, size, z, pieces.rows - 1, self.fixed, self.workers]
        self._put(self.head, header)
        if not block:
            self._write_workers(grad_w)
        if grad_w:
            self._write_grad_workers(block)
        self._write_rows(block)
        return self.out.reshape(plan.tiles, self.length)

    def _shares(self) -> Shares:
        plan = self.plan
        if at.is_block(plan):
            return split_blocks(self.count[:0], plan.machine.workers)
        grains = at.num_z(plan) // at.z_grain(plan)
        spans = self.first, self.count, self.row_first, self.pieces.rows, self.row_end
        return split_rows(*spans, grains, plan.machine.workers)

    def _grad_shares(self) -> Shares:
        wanted = self.plan.options.grad_w and self.gathered is None
        return split_blocks(self.count if wanted else self.count[:0], self.plan.machine.workers)

    def _write_workers(self, grad_w: bool) -> None:
        shares, grain = self.shares, at.z_grain(self.plan)
        whose, turn = shares.subgroup, shares.turn
        row = self.row_first[whose] + shares.begin
        before = self.row_begin[row] - self.first[whose]
        left = self.workers[whose] - turn
        words = left * at.WORKER + shares.begin * at.ROW + before * self.words_each
        words += grad_w * (1 + self.grad_workers[whose] * at.GRAD_W_WORKER)
        # What is gathered lies in the order of the words: no worker's values begin elsewhere.
        value = before if self.gathered is None else np.zeros_like(before)
        place = self.head[whose] + at.ELEMENT_HEADER + turn * at.WORKER
        numbers = (shares.z_size * grain, shares.z_begin * grain, shares.size - 1)
        self._put(place, (value, *numbers, words))

    def _write_grad_workers(self, block: bool) -> None:
        shares = self.grad_shares
        whose, turn = shares.subgroup, shares.turn
        begin = self.head + at.BLOCK_HEADER
        if not block:
            begin = self.head + at.ELEMENT_HEADER + self.workers * at.WORKER
            self._put(begin, (self.grad_workers,))
            begin = begin + 1
        value = self.first[whose] + shares.begin
        row = np.searchsorted(self.row_begin, value, side="right") - 1
        skipped = value - self.row_begin[row]
        words = (self.grad_workers[whose] - turn) * at.GRAD_W_WORKER
        words += (row - self.row_first[whose]) * at.ROW + shares.begin - skipped
        place = begin[whose] + turn * at.GRAD_W_WORKER
        self._put(place, (shares.begin, words, skipped, shares.size))

    def _write_rows(self, block: bool) -> None:
        pieces, words = self.pieces, self.words_each
        rows, count = pieces.rows, pieces.row_count
        scales = self.plan.kernel_block if block else (1, at.offset_scale(self.plan))
        step = np.arange(len(pieces.row)) - self.row_first.repeat(rows)
        before = self.row_begin - self.first.repeat(rows)
        place = (self.head + self.fixed).repeat(rows) + step * at.ROW + before * words
        self._put(place, (pieces.row * scales[0], count - block))
        target = (place + at.ROW - words * self.row_begin).repeat(count)
        target += words * np.arange(len(pieces.column))
        if self.gathered is not None:
            self._put(target, (self.gathered, pieces.column * scales[1]))
        else:
            self._put(target, (pieces.column * scales[1],))

    def _put(
        self, place: Int64[np.ndarray, " places"], fields: Iterable[Int64[np.ndarray, " places"]]
    ) -> None:
        for offset, field in enumerate(fields):
            most = int(field.max(initial=0))
            if most > at.LARGEST:
                raise ValueError(
                    message(
                        "encode",
                        got=f"{most} as an element of the meta-information",
                        allowed=f"0 to {at.LARGEST}, for elements have 16 bits",
                        fix="plan with more partitions (options x, y and z)",
                    )
                )
            self.out[place + offset] = field

    def _check_room(self, end: Int64[np.ndarray, " subgroups"]) -> None:
        """Refuse meta-information that leaves no room for the end mark in its bucket."""
        most = int(end.max(initial=0)) + 1
        if most > self.length:
            own = "" if self.gathered is None else " for the gradient of the input"
            fix = f"plan with oversize above {self.plan.options.oversize}"
            if own:
                fix += ", or with shared_buckets=True"
            raise ValueError(
                message(
                    "encode",
                    got=f"meta-information of {most} words{own} in a bucket",
                    allowed=f"at most {self.length}, as planned",
                    fix=fix,
                )
            )


def _digits(numbers: Int64[np.ndarray, " n"]) -> np.ndarray:
    """The same numbers in 16 bits if they fit, which numpy sorts by digits."""
    return numbers.astype(np.uint16) if numbers.max(initial=0) < 2**16 else numbers
