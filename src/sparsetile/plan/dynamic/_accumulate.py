"""Products of non-zeros with dense operands, on many tiles at once.

Operands of float16 are widened to float32 and products are added in float32; sums are rounded once,
when they are stored.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int64

_Entries = Int64[np.ndarray, " entries"]

# Numbers of a product at a time: few enough to stay near the core.
_CHUNK = 1 << 20


def add_products(
    sums: Float[np.ndarray, "out z"],
    dense: Float[np.ndarray, "in z"],
    to: _Entries,
    of: _Entries,
    blocks: Float[np.ndarray, "entries r c"],
) -> None:
    """Add `block @ rows of dense` to rows of the sums, for each block.

    Args:
        sums: Changed in place.
        dense: The operand.
        to: Which `r` rows of the sums, in ascending order.
        of: Which `c` rows of the operand.
        blocks: The non-zeros.
    """
    entries, high, wide = blocks.shape
    if not entries:
        return
    z = dense.shape[1]
    first = np.flatnonzero(np.diff(to, prepend=-1))
    target = sums.reshape(-1, high, z)
    source = dense.reshape(-1, wide, z)
    for begin, end in _chunks(first, entries, max(1, _CHUNK // (max(high, wide) * z))):
        here = first[np.searchsorted(first, begin) : np.searchsorted(first, end)]
        taken = source[of[begin:end]].astype(np.float32, copy=False)
        part = blocks[begin:end].astype(np.float32, copy=False)
        products = taken * part if high == wide == 1 else part @ taken
        totals = np.add.reduceat(products, here - begin, axis=0)
        with np.errstate(over="ignore"):
            target[to[here]] = target[to[here]] + totals


def _chunks(
    first: Int64[np.ndarray, " rows"], entries: int, size: int
) -> Iterator[tuple[int, int]]:
    """Cuts of about `size` entries that leave whole rows together."""
    wanted = np.arange(size, entries, size)
    cuts = first[np.minimum(np.searchsorted(first, wanted), len(first) - 1)]
    cuts = np.unique(np.concatenate(([0], cuts[cuts >= wanted], [entries])))
    return pairwise(cuts.tolist())


def add_outer_products(
    sums: Float[np.ndarray, "all r c"],
    left: Float[np.ndarray, "m z"],
    right: Float[np.ndarray, "k z"],
    at: _Entries,
    row: _Entries,
    column: _Entries,
) -> None:
    """Add `rows of left @ rows of right, transposed` to blocks of the sums.

    Args:
        sums: Changed in place.
        left: Gradient of the result.
        right: Dense operand.
        at: Which blocks of the sums, each once.
        row: Which `r` rows of `left`, for each.
        column: Which `c` rows of `right`, for each.
    """
    _, high, wide = sums.shape
    z = left.shape[1]
    lefts, rights = left.reshape(-1, high, z), right.reshape(-1, wide, z)
    size = max(1, _CHUNK // (max(high, wide) * z))
    for begin in range(0, len(at), size):
        here = slice(begin, begin + size)
        a = lefts[row[here]].astype(np.float32, copy=False)
        b = rights[column[here]].astype(np.float32, copy=False)
        products = a @ b.transpose(0, 2, 1)
        with np.errstate(over="ignore"):
            sums[at[here]] = sums[at[here]] + products


def transposed(values: npt.NDArray[np.generic], block: tuple[int, int]) -> npt.NDArray[np.generic]:
    """The numbers of blocks that lie one after the other, each block transposed."""
    return values.reshape(-1, *block).transpose(0, 2, 1).reshape(-1)
