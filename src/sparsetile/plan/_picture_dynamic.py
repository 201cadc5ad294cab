"""A dynamic plan's parts of the matrix, and how a pattern fills their buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from sparsetile.matrix import Pattern
from sparsetile.plan.dynamic._plan import DynamicPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS = 20_000  # blocks drawn one by one at most


def paint_dynamic(plan: DynamicPlan, pattern: Pattern | None, matrix: Axes, load: Axes) -> str:
    """Paint the parts of the matrix, and how full their buckets are.

    Args:
        plan: The plan.
        pattern: What lies in the parts; an even spread of the planned density if None.
        matrix: Where the matrix goes.
        load: Where the load goes.

    Returns:
        A title.

    Raises:
        ValueError: If the pattern has another shape or other blocks than planned.
    """
    if pattern is not None and (pattern.shape, pattern.blocksize) != (
        (plan.m, plan.k),
        plan.blocksize,
    ):
        raise ValueError(
            f"draw got a pattern of {pattern.summary()}; the plan is for {plan.m}×{plan.k} in "
            f"blocks of {plan.blocksize[0]}×{plan.blocksize[1]}: give such a pattern, or none"
        )
    stored = _stored(plan, pattern)
    room = plan.z * (plan.bucket_values // (plan.kernel_block[0] * plan.kernel_block[1]))
    _matrix(plan, pattern, stored / max(room, 1), matrix)
    _load(stored.reshape(-1), room, pattern is not None, load)
    r, c = plan.blocksize
    return (
        f"Dynamic plan on {plan.machine.name}: {plan.m}×{plan.k} in blocks of {r}×{c}, times "
        f"{plan.k}×{plan.n}, {plan.dtype}\n"
        f"{plan.x} parts of rows × {plan.y} of columns × {plan.z} of the batch "
        f"on {plan.tiles:,} tiles"
    )


def _stored(plan: DynamicPlan, pattern: Pattern | None) -> Float64[np.ndarray, "x y"]:
    """Kernel blocks in each part of the matrix."""
    r, c = plan.kernel_block
    if pattern is None:
        rows = np.diff(np.minimum(np.arange(plan.x + 1) * plan.x_size, plan.m)) / r
        columns = np.diff(np.minimum(np.arange(plan.y + 1) * plan.y_size, plan.k)) / c
        area: Float64[np.ndarray, "x y"] = np.outer(rows, columns)
        area *= plan.max_blocks / max(area.sum(), 1)
        return area
    (R, C), counts = plan.blocksize, np.zeros((plan.x, plan.y))
    row = pattern.row_indices.cpu().numpy().astype(np.int64) * R
    column = pattern.col_indices.cpu().numpy().astype(np.int64) * C
    for down in range(0, R, r):
        for across in range(0, C, c):
            np.add.at(counts, ((row + down) // plan.x_size, (column + across) // plan.y_size), 1)
    return counts


def _matrix(
    plan: DynamicPlan, pattern: Pattern | None, fill: Float64[np.ndarray, "x y"], ax: Axes
) -> None:
    # The corners of the parts; the last of each axis may be short.
    xs = np.minimum(np.arange(plan.y + 1) * plan.y_size, plan.k)
    ys = np.minimum(np.arange(plan.x + 1) * plan.x_size, plan.m)
    from matplotlib.colors import LinearSegmentedColormap

    blues = LinearSegmentedColormap.from_list("fill", ["#f4f8fc", "#5b9fd6"])
    colors = blues.with_extremes(over="#e58a83")
    edge = "#8a9099" if fill.size <= 4096 else "face"
    mesh = ax.pcolormesh(xs, ys, fill, cmap=colors, vmin=0, vmax=1, edgecolors=edge, linewidth=0.5)
    mesh.set_rasterized(fill.size > 4096)
    if pattern is not None and 0 < pattern.nnzb <= _DOTS:
        r, c = pattern.blocksize
        rows = pattern.row_indices.cpu().numpy() * r + r / 2
        columns = pattern.col_indices.cpu().numpy() * c + c / 2
        size = float(np.clip(60_000 / pattern.grid[0] ** 2, 0.3, 20))
        ax.scatter(
            columns, rows, s=size, c="#24292f", marker="s", linewidths=0, rasterized=len(rows) > 500
        )
    ax.set_xlim(0, plan.k)
    ax.set_ylim(plan.m, 0)
    ax.set_aspect("equal" if 0.4 < plan.m / plan.k < 2.5 else "auto")
    ax.set_xlabel("columns")
    ax.set_ylabel("rows")
    title = "Parts of the matrix, by how full their buckets are"
    ax.set_title(title, loc="left", fontsize=9)
    bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.6, location="bottom", pad=0.02, extend="max")
    bar.set_label("blocks over the room for values in the part's buckets; above 1 some spill")


def _load(stored: Float64[np.ndarray, " parts"], room: int, given: bool, ax: Axes) -> None:
    held = np.sort(stored)[::-1]
    edges = np.arange(len(held) + 1)
    many = len(held) > 256
    full = np.minimum(held, room)
    ax.stairs(full, edges, fill=True, color="#2f7fc1", linewidth=0, rasterized=many)
    ax.stairs(held, edges, baseline=full, fill=True, color="#b3261e", linewidth=0, rasterized=many)
    ax.axhline(room, color="#b3261e", linewidth=1.1, linestyle="--")
    over = float((held - full).sum())
    share = 100 * over / max(float(held.sum()), 1)
    what = f"{share:.1f} % beyond it" if given else "if spread evenly"
    ax.set_title(
        f"Blocks of each part: mean {held.mean():,.3g}, most {held.max():,.4g},\n"
        f"room for {room:,} (dashed); {what}",
        loc="left",
        fontsize="medium",
    )
    ax.set_xlim(0, max(len(held), 1))
    ax.set_ylim(0, 1.1 * max(float(held.max()), room, 1))
    ax.set_xlabel("parts of the matrix, from most to least")
    ax.grid(axis="y", color="#d8d8d8", linewidth=0.6)
