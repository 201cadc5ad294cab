"""A static plan's matrix and load: which band and tile has which blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64

from sparsetile.plan.static._order import block_order
from sparsetile.plan.static._partition import Partition, partition
from sparsetile.plan.static._plan import StaticPlan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Two hues that alternate from band to band; light and dark alternate from tile to tile.
_HUES = ((0.18, 0.50, 0.76), (0.88, 0.44, 0.11))
_MOST = 700  # cells of the picture along a side


def paint_static(plan: StaticPlan, matrix: Axes, load: Axes) -> str:
    """Paint the block matrix in planned order, and how many blocks each tile has.

    Args:
        plan: The plan.
        matrix: Where the matrix goes.
        load: Where the load goes.

    Returns:
        A title.
    """
    parts = partition(plan)
    deal = parts.deal(0)
    m, k = plan.pattern.shape
    b = plan.pattern.blocksize[0]
    _matrix(plan, parts, deal.tile, matrix)
    tiles = plan.band_tiles[0]
    first = tiles[0]
    held = np.bincount(deal.tile, minlength=tiles[-1] - first)
    _load(plan, held, load)
    return (
        f"Static plan on {plan.machine.name}: {m}×{k} in blocks of {b}×{b}, density "
        f"{plan.pattern.density:.3g}, times {k}×{plan.n}, {plan.dtype}\n"
        f"{_count(plan.splits, 'interval')} of the dense operand's columns × "
        f"{_count(plan.bands, 'band')} of block columns on {plan.split_tiles[-1]:,} tiles"
    )


def _matrix(plan: StaticPlan, parts: Partition, tile: Int64[np.ndarray, " nnzb"], ax: Axes) -> None:
    rows, columns = (_ranks(order) for order in block_order(plan.pattern, plan.preprocess))
    row, column = rows[parts.row], columns[parts.column]
    # What is drawn last is seen where blocks share a cell of the picture.
    image = np.ones((min(len(rows), _MOST), min(len(columns), _MOST), 3))
    at = row * image.shape[0] // len(rows), column * image.shape[1] // len(columns)
    image[at] = _colors(parts.band, tile)
    extent = (0, len(columns), len(rows), 0)
    ax.imshow(image, extent=extent, interpolation="nearest", aspect="auto")
    ax.set_aspect("equal" if 0.4 < len(rows) / len(columns) < 2.5 else "auto")
    for edge in plan.band_starts[1:-1]:
        ax.axvline(edge, color="#24292f", linewidth=0.7)
    ax.set_xlabel(f"block columns, {_order(plan)}; lines cut bands")
    ax.set_ylabel("block rows")
    ax.set_title(
        "Stored blocks: hues are bands, light and dark are tiles of a band", loc="left", fontsize=9
    )


def _colors(
    band: Int64[np.ndarray, " nnzb"], tile: Int64[np.ndarray, " nnzb"]
) -> Float64[np.ndarray, "nnzb 3"]:
    hue: Float64[np.ndarray, "nnzb 3"] = np.array(_HUES)[band % 2]
    hue += (1 - hue) * np.where(tile % 2, 0.5, 0.0)[:, None]
    return hue


def _load(plan: StaticPlan, held: Int64[np.ndarray, " tiles"], ax: Axes) -> None:
    ax.stairs(held, fill=True, color=_HUES[0], linewidth=0, rasterized=len(held) > 256)
    starts = [t - plan.band_tiles[0][0] for t in plan.band_tiles[0]]
    for number, (first, last) in enumerate(pairwise(starts)):
        color = _HUES[number % 2]
        part = held[first:last]
        if len(part):
            edges = np.arange(first, last + 1)
            many = len(held) > 256
            ax.stairs(part, edges, fill=True, color=color, linewidth=0, rasterized=many)
    mean = held.mean() if len(held) else 0.0
    ax.axhline(mean, color="black", linewidth=0.9, linestyle=":")
    which = "" if plan.splits == 1 else " of the first interval"
    most = int(held.max()) if len(held) else 0
    ax.set_title(
        f"Blocks on each tile{which}:\nmean {mean:.3g} (dotted), most {most:,}",
        loc="left",
        fontsize="medium",
    )
    ax.set_xlim(0, max(len(held), 1))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("tile")
    ax.locator_params(axis="y", integer=True)
    ax.grid(axis="y", color="#d8d8d8", linewidth=0.6)


def _order(plan: StaticPlan) -> str:
    return "in planned order" if plan.preprocess else "as given"


def _count(number: int, name: str) -> str:
    return f"{number} {name}" + ("" if number == 1 else "s")


def _ranks(order: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks
