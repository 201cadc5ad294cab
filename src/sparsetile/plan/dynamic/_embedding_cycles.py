"""Cycles of looking rows up in buckets, and of adding to them; estimates of our own.

Graphcore's popsparse library (poplibs) has vertices for both, but no figures of them are at hand.
These follow from what such a vertex must do: its supervisor goes through the heads of a bucket's
subgroups, at the cost that poplibs' planner has for that; workers go through the rows of the
tile's own subgroups, as rows are of different lengths and can only be walked; and numbers are
moved through a path of 64 bits, a row's blocks in vectors, single numbers one at a time.
"""

import numpy as np
from jaxtyping import Float64, Int64

from sparsetile.plan.dynamic._embedding_rows import Hits
from sparsetile.plan.dynamic._plan import DynamicPlan

_Tiles = Int64[np.ndarray, " tiles"]

_CALL, _HEAD, _OWN = 30, 32, 47  # of the supervisor: a call, a head, a head of the tile's own
_WALK, _COMPARE, _ROW, _BLOCK = 4, 3, 8, 5  # of a worker: next row, compare, a row, a block found


def slice_cycles(
    plan: DynamicPlan, subgroups: _Tiles, own: _Tiles, rows: _Tiles, asked: _Tiles, hits: Hits
) -> _Tiles:
    """Cycles of tiles that copy rows out of a bucket.

    Workers share the indices; for each of its own a worker walks, at worst, all rows.

    Args:
        plan: The plan.
        subgroups: Subgroups in each tile's bucket.
        own: Those of its column partition.
        rows: Rows of these.
        asked: Indices that each tile looks for.
        hits: What is found.

    Returns:
        Cycles of each tile that has a part.
    """
    c, workers = plan.kernel_block[1], plan.machine.workers
    half = plan.dtype == "float16"
    if plan.kernel_block == (1, 1):
        each = 5 if half else 3  # half a word is written by reading the word first
    else:
        each = _BLOCK + 2 * -(-c // (4 if half else 2))
    worker = hits.tile * workers + hits.at % workers
    found = np.bincount(worker, _ROW + each * hits.count, plan.tiles * workers)
    walked = -(-asked // workers) * (_ROW + _WALK * rows)
    return _total(plan, subgroups, own, walked + found.reshape(-1, workers).max(1))


def update_cycles(
    plan: DynamicPlan, subgroups: _Tiles, own: _Tiles, rows: _Tiles, asked: _Tiles, hits: Hits
) -> _Tiles:
    """Cycles of tiles that add rows to sums for the numbers of a bucket.

    Workers share the rows as they do in the gradient of the weight, so that none adds where
    another does; a worker compares each of its rows with all indices.

    Args:
        plan: The plan.
        subgroups: Subgroups in each tile's bucket.
        own: Those of the column partition whose rows have come.
        rows: Rows of these.
        asked: Indices that have come to each tile.
        hits: What is found.

    Returns:
        Cycles of each tile that has a part.
    """
    c, workers = plan.kernel_block[1], plan.machine.workers
    # Sums are float32: two make a vector, which is loaded, added to and stored.
    each = 5 if plan.kernel_block == (1, 1) else _BLOCK + 3 * -(-c // 2)
    found = np.bincount(hits.tile, _ROW + each * hits.count, plan.tiles)
    walked = -(-rows // workers) * (_WALK + _COMPARE * asked)
    return _total(plan, subgroups, own, walked + np.ceil(found / workers))


def apply_cycles(plan: DynamicPlan) -> int:
    """Cycles of a tile that adds its scaled sums to the numbers of its bucket.

    Two sums at a time are loaded, scaled, added and stored.
    """
    share = -(-plan.bucket_values // plan.machine.workers)
    return plan.machine.workers * (20 + 4 * -(-share // 2))


def _total(
    plan: DynamicPlan,
    subgroups: _Tiles,
    own: _Tiles,
    worker: Float64[np.ndarray, " tiles"] | _Tiles,
) -> _Tiles:
    supervisor = _CALL + _HEAD * subgroups + _OWN * own
    cycles = supervisor + (own > 0) * worker * plan.machine.workers
    return np.asarray(np.ceil(cycles), np.int64)
