"""How the elements of an array are dealt to tiles."""

import numpy as np
from jaxtyping import Int64


def even_counts(size: int, tiles: int, grain: int = 1) -> Int64[np.ndarray, " tiles"]:
    """Deal elements to tiles in order, as equally as whole grains allow.

    Args:
        size: Elements to deal.
        tiles: Tiles to deal them to.
        grain: Elements that stay together; the last grain may be shorter.

    Returns:
        Elements on each tile, `[tiles]`. Where grains do not go round, the first tiles hold one
        more.

    Raises:
        ValueError: If a number is not whole, `size` is negative, or `tiles` or `grain` is not
            positive.

    Examples:
        >>> even_counts(10, 4).tolist()
        [3, 3, 2, 2]
        >>> even_counts(10, 4, grain=4).tolist()
        [4, 4, 2, 0]
    """
    whole = all(isinstance(number, (int, np.integer)) for number in (size, tiles, grain))
    if not whole or size < 0 or tiles < 1 or grain < 1:
        raise ValueError(
            f"even_counts asked to deal {size} elements in grains of {grain} to {tiles} tiles; "
            f"size may be 0 or more, grain and tiles 1 or more: give such whole numbers"
        )
    each, more = divmod(-(-size // grain), tiles)
    last = np.arange(1, tiles + 1, dtype=np.int64) * each
    last += np.minimum(np.arange(1, tiles + 1), more)
    ends = np.minimum(last * grain, size)
    return np.diff(ends, prepend=np.int64(0))
