"""A pattern drawn as SVG text, in few bytes and without any library."""

import numpy as np
from numpy.typing import NDArray

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._cells import Cells, cells_of
from sparsetile.matrix._pattern import Pattern

# Shades from nearly empty to full; eight are as many as the eye tells apart in so small a picture.
SHADES = 8


def spy_svg(A: Pattern | BSR, cells: int = 256) -> str:
    """Draw which blocks are stored, as self-contained SVG.

    Args:
        A: Pattern or matrix.
        cells: Cells along the longer side at most; with more blocks than that, a cell shows the
            density of several.

    Returns:
        One `<svg>` element as text.

    Raises:
        TypeError: If `A` is neither a Pattern nor a BSR.
        ValueError: If `cells` is below 1.

    Examples:
        >>> spy_svg(Pattern((4, 4), 2, [0, 1, 2], [0, 1])).startswith("<svg")
        True
    """
    grid = cells_of(A, cells)
    m, k = max(grid.shape[0], 1), max(grid.shape[1], 1)
    # Matrices far from square are drawn less so, or they would be a hair.
    width, height = (256, max(256 * m // k, 16)) if k >= m else (max(256 * k // m, 16), 256)
    paths = "".join(
        f'<path fill="#1f5a96" fill-opacity="{level / SHADES:g}" d="{path}"/>'
        for level, path in _paths(grid)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {k} {m}" preserveAspectRatio="none" shape-rendering="crispEdges" '
        f'style="background:#fff;border:1px solid #999" role="img">'
        f"<title>{grid.title}</title>{paths}</svg>"
    )


def _paths(grid: Cells) -> list[tuple[int, str]]:
    """Draw runs of cells of one shade, all runs of a shade in one path."""
    levels = np.ceil(grid.filled / grid.filled.max(initial=1e-9) * SHADES).astype(int)
    return [
        (level, _runs(levels == level, grid))
        for level in range(1, SHADES + 1)
        if (levels == level).any()
    ]


def _runs(marked: NDArray[np.bool_], grid: Cells) -> str:
    """Join neighbouring cells of a row to one rectangle."""
    edge = np.diff(np.pad(marked, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    first, stop = np.argwhere(edge == 1), np.argwhere(edge == -1)
    x, y = grid.x, grid.y
    return "".join(
        f"M{x[a]} {y[i]}h{x[b] - x[a]}v{y[i + 1] - y[i]}h{x[a] - x[b]}z"
        for (i, a), (_, b) in zip(first.tolist(), stop.tolist(), strict=True)
    )
