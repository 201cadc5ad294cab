"""The plain twin of every kernel: torch alone, any device, short enough to be believed.

One block row at a time. The stored blocks of a row lie side by side as one dense strip
`[r, blocks · c]`, which multiplies the rows of X that its block columns name.
"""

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from sparsetile.ops import _dispatch
from sparsetile.ops._activation import activate

#: Bytes that the rows of X gathered for one product may take (never less than one block's rows).
GATHER_BYTES = 64 * 2**20


def unsupported(
    op: str,
    dtype: torch.dtype,
    values_dtype: torch.dtype,
    blocksize: tuple[int, int],
    device: torch.device,
) -> str | None:
    """Say why a product cannot be computed: never, for floating dtypes."""
    return None


def linear(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    bias: Tensor | None,
    shape: tuple[int, int],
    transpose: bool,
    activation: str = "",
    out: Tensor | None = None,
) -> Tensor:
    """Compute x[n, k] · Wᵀ + bias -> y[n, m], or x[n, m] · W + bias -> y[n, k] if `transpose`."""
    y = _multiply(values, crow, col, x.t()[None], shape, transpose)[0].t()
    if bias is not None:
        y = y + bias
    y = activate(y, activation)
    _dispatch.ran("reference:linear")
    return y.to(x.dtype).contiguous() if out is None else out.copy_(y)


def spmm(
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    x: Tensor,
    shape: tuple[int, int],
    transpose: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Compute W · x[B, k, n] -> y[B, m, n], or Wᵀ · x[B, m, n] -> y[B, k, n] if `transpose`."""
    y = _multiply(values, crow, col, x, shape, transpose)
    _dispatch.ran("reference:spmm")
    return y.to(x.dtype) if out is None else out.copy_(y)


def sddmm(
    a: Tensor,
    b: Tensor,
    crow: Tensor,
    col: Tensor,
    blocksize: tuple[int, int],
    reduce: bool,
    out: Tensor | None = None,
) -> Tensor:
    """Compute the stored blocks of a[B, m, t] · b[B, t, k], each or summed over B."""
    shape = (a.shape[1], b.shape[2])
    if reduce:  # a sum over B is a longer sum over t
        t = a.shape[0] * a.shape[2]
        a = a.permute(1, 0, 2).reshape(1, shape[0], t)
        b = b.reshape(1, t, shape[1])
    r, c = blocksize
    width, wide = len(b), _wide(a.dtype)
    a, b = _padded(a, 1, r), _padded(b, 2, c).unflatten(2, (-1, c))  # [B, t, block column, c]
    t = b.shape[1]
    blocks = a.new_zeros(width, len(col), r, c)
    with torch.autocast(a.device.type, enabled=False):
        for row, piece in _pieces(crow, width * t * c * wide.itemsize):
            strip = b[:, :, col[piece]].to(wide).flatten(2)  # [B, t, blocks · c]
            product = a[:, row * r : row * r + r].to(wide) @ strip
            blocks[:, piece] = product.unflatten(2, (-1, c)).transpose(1, 2).to(blocks.dtype)
    blocks = _inside(blocks, crow, col, shape)
    blocks = blocks[0] if reduce else blocks
    _dispatch.ran("reference:sddmm")
    return blocks if out is None else out.copy_(blocks)


def _multiply(
    values: Tensor, crow: Tensor, col: Tensor, x: Tensor, shape: tuple[int, int], transpose: bool
) -> Tensor:
    """Compute W · x or Wᵀ · x, summed and returned in at least float32."""
    values = _inside(values, crow, col, shape)
    if transpose:
        values, crow, col, shape = _transposed(values, crow, col, shape)
    (_, r, c), (width, _, n), wide = values.shape, x.shape, _wide(x.dtype)
    x = _padded(x, 1, c).unflatten(1, (-1, c))  # [B, block column, c, n]
    y = x.new_zeros(width, (len(crow) - 1) * r, n, dtype=wide)
    with torch.autocast(x.device.type, enabled=False):
        for row, piece in _pieces(crow, width * c * n * wide.itemsize):
            strip = values[piece].transpose(0, 1).flatten(1).to(wide)  # [r, blocks · c]
            y[:, row * r : row * r + r] += strip @ x[:, col[piece]].flatten(1, 2).to(wide)
    return y[:, : shape[0]].contiguous()


def _transposed(
    values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, tuple[int, int]]:
    """Give Wᵀ: its values, indices and shape."""
    m, k = shape
    order = torch.argsort(col, stable=True)
    counts = torch.bincount(col, minlength=-(-k // values.shape[2]))
    crow_of_transpose = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return values[order].transpose(1, 2), crow_of_transpose, _rows(crow)[order], (k, m)


def _pieces(crow: Tensor, bytes_per_block: int) -> Iterator[tuple[int, slice]]:
    """Go through the stored blocks by block row, in pieces whose operands fit GATHER_BYTES."""
    step = max(1, GATHER_BYTES // max(1, bytes_per_block))
    bounds = crow.tolist()
    for row, (start, stop) in enumerate(pairwise(bounds)):
        for at in range(start, stop, step):
            yield row, slice(at, min(at + step, stop))


def _inside(values: Tensor, crow: Tensor, col: Tensor, shape: tuple[int, int]) -> Tensor:
    """Zero the elements of ragged blocks that lie outside the matrix: they may hold anything."""
    (m, k), (r, c) = shape, values.shape[-2:]
    if m % r == 0 and k % c == 0:
        return values
    in_rows = _rows(crow)[:, None] * r + torch.arange(r, device=col.device) < m
    in_columns = col[:, None] * c + torch.arange(c, device=col.device) < k
    return torch.where(in_rows[:, :, None] & in_columns[:, None, :], values, 0)


def _rows(crow: Tensor) -> Tensor:
    """Give the block row of each stored block."""
    rows = torch.arange(len(crow) - 1, device=crow.device)
    return rows.repeat_interleave(crow.diff().long())


def _padded(x: Tensor, dim: int, block: int) -> Tensor:
    """Append zeros along `dim` up to a multiple of `block`."""
    missing = -x.shape[dim] % block
    if missing == 0:
        return x
    sizes = list(x.shape)
    sizes[dim] = missing
    return torch.cat((x, x.new_zeros(sizes)), dim)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
