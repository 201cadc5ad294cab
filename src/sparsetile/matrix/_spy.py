"""A pattern drawn with matplotlib, which is imported on the first call."""

from typing import Any

from sparsetile.matrix._bsr import BSR
from sparsetile.matrix._cells import cells_of
from sparsetile.matrix._check import message
from sparsetile.matrix._pattern import Pattern


def spy(A: Pattern | BSR, ax: Any = None) -> Any:
    """Draw which blocks are stored.

    With more than 512 blocks a side, a point shows how many of the blocks under it are stored.

    Args:
        A: Pattern or matrix.
        ax: matplotlib Axes to draw into; a new figure's if None.

    Returns:
        The Axes.

    Raises:
        TypeError: If `A` is neither a Pattern nor a BSR.
        ImportError: If matplotlib is missing.

    Examples:
        >>> import matplotlib
        >>> matplotlib.use("agg")
        >>> spy(Pattern((4, 4), 2, [0, 1, 2], [0, 1])).get_ylabel()
        'row'
    """
    grid = cells_of(A, 512)
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError as missing:
            raise ImportError(
                message(
                    "spy",
                    got="no matplotlib",
                    allowed="matplotlib 3.9 or newer",
                    fix='install it: pip install "sparsetile[plot]", or use spy_svg',
                )
            ) from missing
        ax = pyplot.subplots()[1]
    if grid.filled.size:
        # Rasterized: half a million vector cells would choke a PDF or SVG viewer.
        ax.pcolormesh(
            grid.x,
            grid.y,
            grid.filled,
            cmap="Blues",
            vmin=0,
            vmax=grid.filled.max() or 1,
            rasterized=True,
        )
    m, k = grid.shape
    ax.set(xlim=(0, max(k, 1)), ylim=(max(m, 1), 0), aspect="equal")
    ax.set_title(grid.title, fontsize="medium")
    ax.set(xlabel="column", ylabel="row")
    return ax
