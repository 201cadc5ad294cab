"""What does not fit in its bucket finds room in others."""

import numpy as np
from jaxtyping import Int64

from sparsetile.matrix._check import message
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._cut import Pieces
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import exclusive

Rows = tuple[Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"], Int64[np.ndarray, " rows"]]
"""Rows in their partition, the first block of each among all blocks, and the blocks of each."""

_Numbers = Int64[np.ndarray, " _"]
_TRANSPOSED_BLOCK = 2  # words of a non-zero for the gradient of the input
_MOST_TRANSPOSED = at.ROW + _TRANSPOSED_BLOCK  # if nothing else is in its column


def spill(pieces: Pieces, plan: DynamicPlan, grad_a: bool = False) -> Pieces:
    """Move rows out of buckets that are too full.

    Whole rows are taken from the end of such a bucket until the rest fits, be it in values, in
    words, or with `grad_a` in the words that the gradient of the input has of its own. They find
    room, the largest overflow first, in three widening ranges: buckets of the same partition of W,
    of the same rows of W, and all; in each range first as whole rows, then as parts of rows. Within
    a range the nearest bucket in the direction in which buckets travel is filled first, or, without
    `optimise_for_speed`, the emptiest. This is how Graphcore's popsparse library (poplibs) does it.

    With `force_spills` everything moves to where it has the longest way back, into any bucket. (In
    poplibs it may stay with its partition, and needs no propagation where z is cut.)

    Args:
        pieces: One subgroup for every bucket that has blocks, in order of ix, iy and iz.
        plan: The plan.
        grad_a: Whether the own words of the gradient of the input count.

    Returns:
        The subgroups with what has moved; the very ones given if all fit.

    Raises:
        ValueError: If buckets overflow: there is no room left.

    Examples:
        >>> from sparsetile.plan.dynamic._cut import cut
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> plan = small_plan(bucket_values=2)
        >>> first_row = cut(np.zeros(4, int), np.arange(4), plan)
        >>> first_row.bucket.tolist(), spill(first_row, plan).bucket.tolist()
        ([0], [0, 2])
    """
    spiller = _Spiller(pieces, plan, grad_a)
    if not spiller.left:
        return pieces
    spans = (plan.z, plan.y * plan.z, plan.tiles)
    for span in spans[2:] if plan.options.force_spills else spans:
        for split in (False, True):
            spiller.settle(span, split)
    spiller.check_settled()
    return spiller.pieces()


def _transposed_words(
    column: _Numbers, begin: _Numbers, count: _Numbers
) -> Int64[np.ndarray, " rows"]:
    """Words of the first row, the first two and so on when rows and columns change places."""
    blocks = (begin - exclusive(count)).repeat(count) + np.arange(int(count.sum()))
    first = np.unique(column[blocks], return_index=True)[1]
    new = np.bincount(np.arange(len(count)).repeat(count)[first], minlength=len(count))
    return np.asarray((new * at.ROW + count * _TRANSPOSED_BLOCK).cumsum())


class _Leftover:
    """Rows of one subgroup that have no bucket yet, the last row first."""

    def __init__(self, piece: int, home: int, rows: Rows, column: _Numbers) -> None:
        self.piece, self.home, self.column = piece, home, column
        self.row, self.begin, self.count = (part[::-1].copy() for part in rows)

    def __len__(self) -> int:
        return len(self.row)

    def least(self, split: bool) -> int:
        """Blocks that a bucket must have room for to take any of it."""
        return 1 if split else int(self.count[0])

    def take(self, words: int, words_grad_a: int | None, blocks: int, split: bool) -> Rows:
        """Give away what fits in so many words and blocks, in ascending order of rows."""
        used_words, used = (self.count + at.ROW).cumsum(), self.count.cumsum()
        fit = int(used_words.searchsorted(words, "right"))
        whole = min(fit, int(used.searchsorted(blocks, "right")))
        if words_grad_a is not None:
            transposed = _transposed_words(self.column, self.begin, self.count)
            whole = min(whole, int(transposed.searchsorted(words_grad_a, "right")))
            if whole:
                words_grad_a -= int(transposed[whole - 1])
        parts = [part[:whole] for part in (self.row, self.begin, self.count)]
        self.row, self.begin, self.count = (
            part[whole:] for part in (self.row, self.begin, self.count)
        )
        if split and len(self):
            if whole:
                words, blocks = words - int(used_words[whole - 1]), blocks - int(used[whole - 1])
            some = min(words - at.ROW, blocks)
            if words_grad_a is not None:
                some = min(some, words_grad_a // _MOST_TRANSPOSED)
            if some > 0:
                self.count = self.count.copy()
                self.count[0] -= some
                rest = (self.row[0], self.begin[0] + self.count[0], some)
                parts = [np.append(part, end) for part, end in zip(parts, rest, strict=True)]
        row, begin, count = (part[::-1] for part in parts)
        return row, begin, count


class _Spiller:
    """The buckets in order of ix, iy and iz, and what has no room in them."""

    def __init__(self, pieces: Pieces, plan: DynamicPlan, grad_a: bool) -> None:
        self.given, self.plan = pieces, plan
        self.words_room, self.room = plan.bucket_meta - 1, at.capacity(plan)
        self.fixed = at.most_fixed_words(plan)
        self.words, self.words_grad_a, self.blocks = np.zeros((3, plan.tiles), np.int64)
        self.grad_a = grad_a
        self.fixed_grad_a = at.most_fixed_words_grad_a(plan)
        self.room_grad_a = plan.bucket_meta_grad_a - 1
        self.moved: list[tuple[int, int, Rows]] = []
        self.begin = exclusive(pieces.row_count)
        first = exclusive(pieces.rows)
        ends = np.append(self.begin, len(pieces.column))
        count = ends[first + pieces.rows] - ends[first]
        words = self.fixed + pieces.rows * at.ROW + count
        words_grad_a = self._all_transposed(count) + self.fixed_grad_a
        z = pieces.bucket // plan.x % plan.z
        self.home = (pieces.ix * plan.y + pieces.iy) * plan.z + z
        over = (words > self.words_room) | (count > self.room) | plan.options.force_spills
        over |= self.grad_a & (words_grad_a > self.room_grad_a)
        self.kept = pieces.rows.copy()
        self.left = [self._shorten(int(p), int(first[p])) for p in np.flatnonzero(over)]
        fits = ~over
        self.words[self.home[fits]], self.blocks[self.home[fits]] = words[fits], count[fits]
        self.words_grad_a[self.home[fits]] = words_grad_a[fits]

    def settle(self, span: int, split: bool) -> None:
        """Find room in the `span` buckets around each home, for whole rows or parts of rows."""
        waiting = [item for item in self.left if len(item)]
        waiting.sort(key=lambda item: (item.home // span, -int(item.count.sum()), -len(item)))
        for item in waiting:
            candidates = self._candidates(item.home, span)
            while len(item) and len(candidates):
                least = item.least(split)
                good = self.words_room - self.words[candidates] >= self.fixed + at.ROW + least
                good &= self.room - self.blocks[candidates] >= least
                if self.grad_a:
                    left = self.room_grad_a - self.words_grad_a[candidates]
                    good &= left >= self.fixed_grad_a + _MOST_TRANSPOSED * least
                hit = int(good.argmax())
                if not good[hit]:
                    break
                self._move(item, int(candidates[hit]), split)
                candidates = candidates[hit + 1 :]

    def check_settled(self) -> None:
        """Refuse a matrix of which something has found no room."""
        blocks = sum(int(item.count.sum()) for item in self.left)
        if not blocks:
            return
        tiles, oversize = self.plan.tiles, self.plan.options.oversize
        words = sum(int((item.count + at.ROW).sum()) for item in self.left)
        share = blocks / max(1, tiles * self.room) + words / max(1, tiles * self.words_room)
        enough = max(oversize + 0.01, (1 + oversize) * (1 + share) - 1)
        raise ValueError(
            message(
                "Overflow in buckets",
                got=f"{blocks} of {len(self.given.column)} blocks, with {words} words of "
                "meta-information, that find no room",
                allowed=f"{self.room} blocks and {self.words_room} words in each of {tiles} "
                "buckets",
                fix=f"plan with a larger oversize than {oversize}, as {enough:.2f}, "
                "or store fewer blocks",
            )
        )

    def pieces(self) -> Pieces:
        """The subgroups that have stayed, then those that have moved, in the order they did."""
        given, plan = self.given, self.plan
        stays = np.flatnonzero(self.kept)
        rank = np.arange(len(given.row)) - exclusive(given.rows).repeat(given.rows)
        here = rank < self.kept.repeat(given.rows)
        moved = [rows for _, _, rows in self.moved]
        row, begin, count = (
            np.concatenate([part[here], *(rows[i] for rows in moved)])
            for i, part in enumerate((given.row, self.begin, given.row_count))
        )
        block = (begin - exclusive(count)).repeat(count) + np.arange(int(count.sum()))
        to = np.array([bucket for bucket, _, _ in self.moved], np.int64)
        piece = np.concatenate([stays, np.array([p for _, p, _ in self.moved], np.int64)])
        cell, z = np.divmod(to, plan.z)
        tile = (cell % plan.y * plan.z + z) * plan.x + cell // plan.y
        lengths = np.array([len(rows[0]) for rows in moved], np.int64)
        return Pieces(
            np.concatenate([given.bucket[stays], tile]),
            given.ix[piece],
            given.iy[piece],
            np.concatenate([self.kept[stays], lengths]),
            row,
            count,
            given.column[block],
            given.source[block],
        )

    def _all_transposed(self, count: _Numbers) -> Int64[np.ndarray, " subgroups"]:
        """Words of each whole subgroup for the gradient of the input, without the fixed ones."""
        if not self.grad_a:
            return np.zeros_like(count)
        wide = self.plan.y_size
        seen = np.zeros(len(count) * wide, np.bool_)
        seen[np.arange(len(count)).repeat(count) * wide + self.given.column] = True
        return np.asarray(seen.reshape(-1, wide).sum(1) * at.ROW + count * _TRANSPOSED_BLOCK)

    def _shorten(self, piece: int, first: int) -> _Leftover:
        """Keep the first rows of a subgroup that fit; take the others."""
        rows = slice(first, first + int(self.given.rows[piece]))
        count, home = self.given.row_count[rows], int(self.home[piece])
        words, blocks = self.fixed + (count + at.ROW).cumsum(), count.cumsum()
        kept = 0
        if not self.plan.options.force_spills:
            fit = int(words.searchsorted(self.words_room, "right"))
            kept = min(fit, int(blocks.searchsorted(self.room, "right")))
        if kept and self.grad_a:
            transposed = _transposed_words(self.given.column, self.begin[rows], count)
            transposed += self.fixed_grad_a
            kept = min(kept, int(transposed.searchsorted(self.room_grad_a, "right")))
            self.words_grad_a[home] = transposed[kept - 1] if kept else 0
        if kept:
            self.words[home], self.blocks[home] = words[kept - 1], blocks[kept - 1]
        self.kept[piece] = kept
        rest = slice(rows.start + kept, rows.stop)
        left = self.given.row[rest], self.begin[rest], self.given.row_count[rest]
        return _Leftover(piece, home, left, self.given.column)

    def _candidates(self, home: int, span: int) -> Int64[np.ndarray, " buckets"]:
        """The buckets of a range, in the order in which they are filled."""
        start, near = home // span * span, np.arange(span)
        options, plan = self.plan.options, self.plan
        if options.force_spills:
            cell, z = np.divmod(near, plan.z)
            back_x = (home // (plan.y * plan.z) - cell // plan.y) % plan.x
            back_y = (home // plan.z - cell) % plan.y
            # The bucket it came from is the last of all.
            turn = np.where(near == home, plan.z, (z - home) % plan.z)
            return np.lexsort((turn, -back_y, -back_x))
        if options.optimise_for_speed:
            return start + (home - start - near) % span
        return start + np.lexsort(
            (self.words[start : start + span], self.blocks[start : start + span])
        )

    def _move(self, item: _Leftover, bucket: int, split: bool) -> None:
        """Give a bucket what it has room for."""
        words = self.words_room - int(self.words[bucket]) - self.fixed
        words_grad_a = None
        if self.grad_a:
            words_grad_a = self.room_grad_a - int(self.words_grad_a[bucket]) - self.fixed_grad_a
        rows = item.take(words, words_grad_a, self.room - int(self.blocks[bucket]), split)
        if self.grad_a:
            transposed = _transposed_words(self.given.column, *rows[1:])
            self.words_grad_a[bucket] += self.fixed_grad_a + int(transposed[-1])
        blocks = int(rows[2].sum())
        self.words[bucket] += self.fixed + at.ROW * len(rows[0]) + blocks
        self.blocks[bucket] += blocks
        self.moved.append((bucket, item.piece, rows))
