"""What tiles find in the buckets that lie on them: the subgroups that are their own."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, UInt16

from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import Entries, Which, exclusive, scan


@dataclass(frozen=True, eq=False)
class Own:
    """The tiles' own subgroups of some buckets.

    Attributes:
        foreign: Subgroups of each bucket that are not its tile's own.
        own: Subgroups of each bucket that are.
        entries: All that buckets with own subgroups hold.
        words: Words of these buckets.
        bucket: Which of all buckets each subgroup of `entries` lies in.
        mine: Which subgroups of `entries` are their tile's own.
    """

    foreign: Int64[np.ndarray, " buckets"]
    own: Int64[np.ndarray, " buckets"]
    entries: Entries
    words: UInt16[np.ndarray, "some words"]
    bucket: Int64[np.ndarray, " subgroups"]
    mine: Bool[np.ndarray, " subgroups"]

    @property
    def blocks(self) -> Int64[np.ndarray, " own"]:
        """Which blocks of `entries` belong to own subgroups."""
        return np.flatnonzero(self.mine[self.entries.subgroup])


def find_own(
    meta: UInt16[np.ndarray, "buckets words"],
    wanted: Int64[np.ndarray, " buckets"],
    plan: DynamicPlan,
    which: Which,
) -> Own:
    """Read the words of buckets as far as they concern the tiles that they lie on.

    Foreign subgroups are passed over by their heads alone.

    Args:
        meta: Words of each bucket.
        wanted: Id of the subgroups that the tile of each bucket takes.
        plan: The plan.
        which: Whose words they are.

    Returns:
        The tiles' own subgroups, and how many others they passed over.
    """
    buckets, length = meta.shape
    flat = meta.reshape(-1)
    step_at = at.BLOCK_NEXT if at.is_block(plan) else at.NEXT
    foreign, own = np.zeros((2, buckets), np.int64)
    alive = np.arange(buckets)
    here = alive * length
    while True:
        ids = flat[here]
        going = np.flatnonzero(ids)
        if not len(going):
            break
        here, alive, ids = here[going], alive[going], ids[going]
        matching = ids == wanted[alive]
        own[alive] += matching
        foreign[alive] += ~matching
        step = flat[np.minimum(here + step_at, len(flat) - 1)].astype(np.int64)
        # Where the words are corrupt `scan` says so; here it is enough not to run astray.
        here = np.minimum(here + np.maximum(step, 1), (alive + 1) * length - 1)
        fits = (here < (alive + 1) * length - 1) | (flat[here] == 0)
        here, alive = here[fits], alive[fits]
    some = np.flatnonzero(own)
    words = meta[some]
    entries = scan(words, plan, which)
    bucket = some[entries.bucket]
    mine = entries.ix * plan.y + entries.iy + 1 == wanted[bucket]
    return Own(foreign, own, entries, words, bucket, mine)


@dataclass(frozen=True, eq=False)
class Workers:
    """Work that the words of own subgroups deal to workers.

    Attributes:
        subgroup: Subgroup of each worker.
        rows: Rows that it goes through.
        entries: Blocks that it multiplies.
        z: Columns of the dense operand that it computes.
    """

    subgroup: Int64[np.ndarray, " workers"]
    rows: Int64[np.ndarray, " workers"]
    entries: Int64[np.ndarray, " workers"]
    z: Int64[np.ndarray, " workers"]


def workers(found: Own, plan: DynamicPlan) -> Workers:
    """Workers of the element products: whole rows, and a part of the columns of each."""
    entries = found.entries
    head = _heads(found)
    flat = found.words.reshape(-1)
    own = np.flatnonzero(found.mine)
    subgroup, place = _places(own, head[own] + at.ELEMENT_HEADER, flat[head[own] + at.WORKERS], 5)
    first = entries.first[subgroup] + flat[place]
    row = np.searchsorted(entries.row_begin, first, side="right") - 1
    rows = flat[place + 3].astype(np.int64) + 1
    ends = np.concatenate((entries.row_begin, [len(entries.subgroup)]))
    return Workers(subgroup, rows, ends[row + rows] - ends[row], flat[place + 1].astype(np.int64))


def grad_w_workers(found: Own, plan: DynamicPlan) -> Workers:
    """Workers of the gradient of the weight: a run of blocks, whatever their rows."""
    entries = found.entries
    head = _heads(found)
    flat = found.words.reshape(-1)
    own = np.flatnonzero(found.mine)
    if at.is_block(plan):
        begin, many = head[own] + at.BLOCK_HEADER, flat[head[own] + at.BLOCK_WORKERS]
    else:
        begin = head[own] + at.ELEMENT_HEADER + flat[head[own] + at.WORKERS].astype(np.int64) * 5
        begin, many = begin + 1, flat[begin]
    subgroup, place = _places(own, begin, many, 4)
    first = entries.first[subgroup] + flat[place]
    take = flat[place + 3].astype(np.int64)
    row = np.searchsorted(entries.row_begin, first, side="right")
    last = np.searchsorted(entries.row_begin, first + take - 1, side="right")
    return Workers(subgroup, last - row + 1, take, np.full_like(take, plan.z_size))


def _heads(found: Own) -> Int64[np.ndarray, " subgroups"]:
    """Where subgroups begin in the words of all buckets."""
    return np.asarray(found.entries.bucket * found.words.shape[1] + found.entries.head)


def _places(
    owner: Int64[np.ndarray, " own"],
    begin: Int64[np.ndarray, " own"],
    many: UInt16[np.ndarray, " own"],
    words: int,
) -> tuple[Int64[np.ndarray, " workers"], Int64[np.ndarray, " workers"]]:
    """Subgroup of each worker, and where its words begin."""
    count = many.astype(np.int64)
    rank = np.arange(int(count.sum())) - exclusive(count).repeat(count)
    return owner.repeat(count), begin.repeat(count) + rank * words
