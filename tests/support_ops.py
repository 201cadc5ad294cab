"""What the tests of the products share: the dense oracle, operands, comparison by name."""

import torch

from sparsetile.matrix import Pattern
from support import some_values

# Relative to the largest element of the dense float64 result. Sums are kept in float32, so half
# types err by the rounding of the result (and of what a gradient passes through) alone.
TOLERANCE = {
    torch.float64: 1e-13,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


def dense_of(values, pattern):
    """Matrices in the dtype of the values: each block put in its place; differentiable."""
    (m, k), (r, c), (rows, columns) = pattern.shape, pattern.blocksize, pattern.grid
    lead = values.shape[:-3]
    places = values.new_zeros(rows, columns, *lead, r, c)
    blocks = places.index_put(corners(pattern), values.movedim(-3, 0))
    full = blocks.movedim((0, 1), (-4, -2)).reshape(*lead, rows * r, columns * c)
    return full[..., :m, :k]


def blocks_of(dense, pattern):
    """The stored blocks of dense matrices; zero outside the matrix."""
    (m, k), (r, c), (rows, columns) = pattern.shape, pattern.blocksize, pattern.grid
    full = torch.nn.functional.pad(dense, (0, -k % c, 0, -m % r))
    blocks = full.reshape(*dense.shape[:-2], rows, r, columns, c).transpose(-3, -2)
    i, j = corners(pattern)
    return blocks[..., i, j, :, :]


def corners(pattern):
    """Block row and block column of every block, as index tensors."""
    rows = torch.arange(pattern.grid[0]).repeat_interleave(pattern.crow_indices.diff())
    return rows, pattern.col_indices.long()


def values_for(pattern, dtype=torch.float32, padding=float("nan")):
    """Random stored blocks; what lies outside the matrix is poison."""
    return some_values(pattern, dtype, padding=padding)


def dense_twin(values, pattern):
    """The same values in float64 with the padding zeroed: what the oracle computes with."""
    return values.detach().double().nan_to_num(0.0) if pattern.ragged else values.detach().double()


def pattern_from(shape, blocksize, block_mask):
    """A pattern from a mask over blocks."""
    mask = torch.as_tensor(block_mask, dtype=torch.bool)
    mask = mask.reshape(-(-shape[0] // blocksize[0]), -(-shape[1] // blocksize[1]))
    crow = torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0))
    return Pattern(shape, blocksize, crow, mask.nonzero()[:, 1])


def strided(x, how):
    """The same numbers with other strides."""
    if how == "contiguous":
        return x
    if how == "transposed":
        return x.mT.contiguous().mT
    if how == "stepped":
        wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), float("nan"), dtype=x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    if how == "offset":
        wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), float("nan"), dtype=x.dtype)
        wide[..., 1:-2] = x
        return wide[..., 1:-2]
    if how == "flipped":
        return x.flip(-1).flip(-1)
    assert how == "expanded"
    return x[..., :1, :].expand(x.shape)


STRIDES = ("contiguous", "transposed", "stepped", "offset", "flipped", "expanded")


def assert_close(got, want, dtype, name):
    """Compare with dense float64, relative to the largest element."""
    assert got.dtype == dtype, name
    assert got.shape == want.shape, (name, got.shape, want.shape)
    if want.numel():
        error = (got.double() - want).abs().max().item()
        scale = max(want.abs().max().item(), 1.0)
        assert error <= TOLERANCE[dtype] * scale, (name, error, scale)


def most_bytes(function):
    """The most memory that one operator took, those inside the back ends included."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        function()
    return max(event.cpu_memory_usage for event in profile.events())
