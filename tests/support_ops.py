"""What the tests of the products share: the dense oracle, operands, comparison by name."""

import torch
from hypothesis import strategies as st

from sparsetile.matrix import Pattern
from support import places, some_values

# Relative to the largest element of the dense float64 result. Sums are kept in float32, so half
# types err by the rounding of the result (and of what a gradient passes through) alone.
TOLERANCE = {
    torch.float64: 1e-13,
    torch.float32: 1e-5,
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
}


def dense_of(values, pattern):
    """The matrix, block by block, in the dtype of the values: slow, obvious, differentiable."""
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    full = values.new_zeros(-(-m // r) * r, -(-k // c) * c)
    full = full + values[:0].sum()  # a gradient even where nothing is stored
    for block, (i, j) in zip(values, places(pattern), strict=True):
        full[i * r : (i + 1) * r, j * c : (j + 1) * c] = block
    return full[:m, :k]


def blocks_of(dense, pattern):
    """The stored blocks of a dense matrix, one by one; zero outside the matrix."""
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    full = torch.nn.functional.pad(dense, (0, -k % c, 0, -m % r))
    blocks = [full[..., i * r : (i + 1) * r, j * c : (j + 1) * c] for i, j in places(pattern)]
    return torch.stack(blocks, -3) if blocks else dense.new_zeros(*dense.shape[:-2], 0, r, c)


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


@st.composite
def kernel_patterns(draw, max_side=13, blocksizes=((1, 1), (4, 4), (2, 3), (3, 2), (8, 8), (1, 4))):
    """Patterns of any size, ragged, empty or whole, at the blocks that kernels treat apart."""
    blocksize = draw(st.sampled_from(blocksizes))
    shape = (draw(st.integers(0, max_side)), draw(st.integers(0, max_side)))
    grid = -(-shape[0] // blocksize[0]) * -(-shape[1] // blocksize[1])
    density = draw(st.sampled_from((0.0, 0.3, 0.7, 1.0)))
    seed = draw(st.integers(0, 2**16))
    mask = torch.rand(grid, generator=torch.Generator().manual_seed(seed)) < density
    return pattern_from(shape, blocksize, mask)


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
