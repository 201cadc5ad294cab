"""What tiles find in the buckets that lie on them: the subgroups that are their own."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64, UInt16

from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import Entries, Which, scan


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
