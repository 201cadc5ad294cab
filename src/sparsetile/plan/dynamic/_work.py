"""Cycles that tiles take with the subgroups they find."""

import numpy as np
from jaxtyping import Float64, Int64

from sparsetile.plan.dynamic import _vertex_block as block
from sparsetile.plan.dynamic import _vertex_element as element
from sparsetile.plan.dynamic._own import Own
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._scan import Which
from sparsetile.plan.dynamic._scan_workers import (
    WorkerEntries,
    scan_grad_w_workers,
    scan_workers,
)


def work(
    plan: DynamicPlan,
    method: str,
    found: Own,
    tile: Int64[np.ndarray, " buckets"],
    tiles: int,
) -> Int64[np.ndarray, " tiles"]:
    """Cycles of each tile for one call of its vertex.

    Args:
        plan: The plan.
        method: Name of the vertex, one of the plan's methods.
        found: What the tiles find.
        tile: Tile of each bucket.
        tiles: How many tiles there are.

    Returns:
        Cycles, of the workers in turn and the supervisor together.
    """
    foreign, own = found.foreign, found.own
    vain = _sum(tile, np.where(own > 0, 0, foreign), tiles)
    holding = _sum(tile, np.minimum(own, 1), tiles)
    # All heads of a bucket are looked at; `before` is what each bucket with own ones adds.
    looked = _sum(tile, np.where(own > 0, foreign + own - 1, 0), tiles)
    before = looked / np.maximum(holding, 1)
    subgroup_tile = tile[found.bucket]
    mine = found.mine
    rows, blocks = found.entries.rows, found.entries.count
    all_rows = _sum(subgroup_tile[mine], rows[mine], tiles)
    all_blocks = _sum(subgroup_tile[mine], blocks[mine], tiles)
    per_row = all_blocks / np.maximum(all_rows, 1)
    kind = (plan.kernel_block, plan.dtype, plan.options.partials)
    if method in ("ForwardAMPBlock", "TransposeAMPBlock"):
        turned = method == "TransposeAMPBlock"
        z = -(-plan.z_size // plan.machine.workers)
        each = block.block_forward(rows, blocks / np.maximum(rows, 1), z, *kind, turned)
        supervisor = block.block_supervisor(vain, holding, before, all_rows, per_row, *kind, turned)
    elif method == "GradWAMPBlock":
        part = blocks / np.maximum(rows, 1)
        each, own_supervisor = block.block_grad_w_amp(rows, part, plan.z_size, *kind)
        supervisor = element.element_supervisor("GradW", vain, holding, before)
        supervisor = supervisor + _sum(
            subgroup_tile[mine], np.asarray(own_supervisor, np.float64)[mine], tiles
        )
    else:
        each = _each(plan, method, found)
        kind_of = "GradW" if method == "GradWBlock" else method
        supervisor = element.element_supervisor(kind_of, vain, holding, before)
    slowest = _sum(subgroup_tile[mine], np.asarray(each, np.float64)[mine], tiles)
    return np.ceil(slowest * plan.machine.workers + supervisor).astype(np.int64)


def _each(plan: DynamicPlan, method: str, found: Own) -> Float64[np.ndarray, " subgroups"]:
    """Cycles of the slowest worker of each subgroup."""
    entries = found.entries
    if method == "Transpose":
        start, row, entry = element.transpose_parts(plan.z_size, plan.dtype)
        share = -(-entries.row_count // plan.machine.workers)
        of_row = np.arange(len(entries.rows)).repeat(entries.rows)
        shares = np.bincount(of_row, share, len(entries.rows))
        return np.asarray(start + entries.rows * row + shares * entry, np.float64)
    if method in ("Forward", "GradA"):
        which: Which = "fwd" if method == "Forward" else "grad_a"
        dealt = scan_workers(found.words, plan, which, entries)
    else:
        dealt = scan_grad_w_workers(found.words, plan, entries)
    per_row = dealt.count / dealt.rows
    if method == "Forward":
        cycles = element.element_forward(dealt.rows, per_row, dealt.z_size, plan.dtype)
    elif method == "GradA":
        cycles = element.element_grad_a(dealt.rows, per_row, dealt.z_size, plan.dtype)
    elif method == "GradW":
        cycles = element.element_grad_w(dealt.rows, per_row, plan.z_size, plan.dtype)
    else:
        cycles = block.block_grad_w(
            dealt.rows,
            per_row,
            plan.z_size,
            plan.kernel_block,
            plan.dtype,
            plan.options.partials,
        )
    return _slowest(dealt, np.asarray(cycles, np.float64), len(entries.rows))


def _slowest(
    dealt: WorkerEntries, cycles: Float64[np.ndarray, " workers"], subgroups: int
) -> Float64[np.ndarray, " subgroups"]:
    most = np.zeros(subgroups)
    np.maximum.at(most, dealt.subgroup, cycles)
    return most


def _sum(where: Int64[np.ndarray, " n"], what: np.ndarray, tiles: int) -> np.ndarray:
    return np.bincount(where, what, tiles)
