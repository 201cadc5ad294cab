"""Buckets turned back into a sparse matrix."""

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from sparsetile.matrix import BSR, COO, CSC, CSR, Pattern
from sparsetile.matrix._check import message
from sparsetile.plan.dynamic import _layout as at
from sparsetile.plan.dynamic._cut import kernel_grid
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._overflow import overflow_info
from sparsetile.plan.dynamic._scan import corrupt, exclusive, scan


def decode(encoded: Encoded) -> BSR:
    """Collect the blocks of all buckets into a matrix, row by row.

    Args:
        encoded: The buckets.

    Returns:
        The matrix in the plan's blocks and dtype, on the CPU, with values of its own.

    Raises:
        ValueError: If the meta-information is corrupt.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> decode(encode(small_plan(), small_matrix())).pattern == small_matrix().pattern
        True
    """
    pattern, place = _collect(encoded)
    return BSR(_gather(encoded, encoded.values, place), pattern)


def decode_values(
    encoded: Encoded, values: Float[np.ndarray, "*values"] | Float[Tensor, "*values"]
) -> Shaped[Tensor, "nnzb r c"]:
    """Read values that lie as in the buckets, such as gradients, in the order of the matrix.

    Args:
        encoded: The buckets that say where each block's values lie.
        values: As many numbers as all buckets hold, in one row or one row for each bucket.

    Returns:
        The blocks `[nnzb, r, c]`, in the order of `decode(encoded).pattern`.

    Raises:
        ValueError: If there are more or fewer values, or if the meta-information is corrupt.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> encoded = encode(small_plan(), small_matrix())
        >>> decode_values(encoded, 3 * encoded.values).reshape(-1)
        tensor([3., 3., 3., 3., 3., 3., 3., 3.])
    """
    values = values.numpy(force=True) if isinstance(values, Tensor) else values
    if values.size != encoded.values.size:
        raise ValueError(
            message(
                "values",
                got=f"{values.size} values",
                allowed=f"{encoded.values.size}, as the buckets of this plan hold",
                fix="pass what a program of the same plan computed",
            )
        )
    return _gather(encoded, values.reshape(-1), _collect(encoded)[1])


def to_coo(encoded: Encoded) -> COO:
    """Collect the blocks of all buckets, sorted by row, then column; see `decode`.

    Args:
        encoded: The buckets.

    Returns:
        The matrix.

    Raises:
        ValueError: If the meta-information is corrupt.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> to_coo(encode(small_plan(), small_matrix())).row_indices.tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
    """
    return COO.from_bsr(decode(encoded))


def to_csr(encoded: Encoded) -> CSR:
    """Collect the blocks of all buckets row by row; see `decode`.

    Args:
        encoded: The buckets.

    Returns:
        The matrix.

    Raises:
        ValueError: If the meta-information is corrupt.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> to_csr(encode(small_plan(), small_matrix())).crow_indices.tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    return CSR.from_bsr(decode(encoded))


def to_csc(encoded: Encoded) -> CSC:
    """Collect the blocks of all buckets column by column; see `decode`.

    Args:
        encoded: The buckets.

    Returns:
        The matrix.

    Raises:
        ValueError: If the meta-information is corrupt.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> to_csc(encode(small_plan(), small_matrix())).ccol_indices.tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8]
    """
    return CSC.from_bsr(decode(encoded))


def _collect(encoded: Encoded) -> tuple[Pattern, Int64[np.ndarray, " kernels"]]:
    """The pattern, and for each kernel block of each of its blocks where its values lie."""
    plan = encoded.plan
    found = scan(encoded.meta_buckets, plan)
    said = encoded.meta[: at.overflow_words(plan)]
    if not np.array_equal(said, overflow_info(found.bucket, found.ix, found.iy, plan)):
        corrupt("distances of what has spilled that the buckets contradict")
    (r, c), (down, across) = plan.kernel_block, kernel_grid(plan)
    place = found.bucket.repeat(found.count) * at.capacity(plan) + found.value // (r * c)
    row, inner_row = np.divmod(found.w_row, down) if down > 1 else (found.w_row, 0)
    column, inner_column = np.divmod(found.w_column, across) if across > 1 else (found.w_column, 0)
    inner = inner_row * across + inner_column
    keys = [column, row] if down * across == 1 else [np.asarray(inner), column, row]
    order = np.arange(len(place))
    for key in keys:
        small = key.astype(np.uint16) if key.max(initial=0) <= at.LARGEST else key
        order = order[small[order].argsort(kind="stable")]
    row, column = row[order], column[order]
    if down * across > 1:
        _check_whole(row, column, np.asarray(inner)[order], down * across)
        row, column = row[:: down * across], column[:: down * across]
    if ((np.diff(row) == 0) & (np.diff(column) == 0)).any():
        corrupt("a block that is stored twice")
    counts = np.bincount(row, minlength=plan.m // plan.blocksize[0])
    crow = np.append(exclusive(counts), len(row))
    return Pattern((plan.m, plan.k), plan.blocksize, crow, column), place[order]


def _check_whole(
    row: Int64[np.ndarray, " kernels"],
    column: Int64[np.ndarray, " kernels"],
    inner: Int64[np.ndarray, " kernels"],
    area: int,
) -> None:
    """Refuse blocks of which the kernel's blocks are not all there, once."""
    whole = len(row) % area == 0 and bool((inner == np.arange(len(inner)) % area).all())
    for index in (row, column):
        whole = whole and bool((index.reshape(-1, area) == index[::area, None]).all())
    if not whole:
        corrupt("blocks of the plan that are stored in part")


def _gather(
    encoded: Encoded, values: Float[np.ndarray, " values"], place: Int64[np.ndarray, " kernels"]
) -> Shaped[Tensor, "nnzb r c"]:
    """The values of each block, put together from those of the kernel's blocks."""
    plan = encoded.plan
    (r, c), (down, across) = plan.kernel_block, kernel_grid(plan)
    kernels = torch.from_numpy(values.reshape(-1, r * c)[place])
    blocks = kernels.reshape(-1, down, across, r, c).transpose(2, 3)
    return blocks.reshape(-1, *plan.blocksize).contiguous()
