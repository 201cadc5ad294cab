"""What tests of several rooms share: patterns of every awkward kind, and a reference to trust."""

import contextlib
from collections.abc import Iterator

import jaxtyping
import torch
from hypothesis import strategies as st

from sparsetile.matrix import Pattern, pattern_of, random_pattern

# m, k, blocksize, density: square, rectangular, ragged on either side or both, larger than the
# matrix, unstructured, whole, and without rows or columns.
SHAPES = {
    "square": (32, 32, (4, 4), 0.3),
    "wide": (16, 64, (4, 8), 0.25),
    "tall": (60, 12, (6, 2), 0.4),
    "ragged_rows": (19, 16, (4, 4), 0.5),
    "ragged_cols": (16, 21, (4, 4), 0.5),
    "ragged_both": (23, 37, (5, 3), 0.4),
    "one_block": (3, 5, (8, 8), 1.0),
    "unstructured": (17, 29, (1, 1), 0.2),
    "whole": (12, 12, (3, 3), 1.0),
    "no_rows": (0, 8, (2, 2), 0.5),
    "no_cols": (8, 0, (2, 2), 0.5),
}


def some_pattern(kind: str, seed: int = 0) -> Pattern:
    """A pattern of one of `SHAPES`; every third block row is empty where there are more."""
    m, k, blocksize, density = SHAPES[kind]
    pattern = random_pattern(m, k, blocksize=blocksize, density=density, seed=seed)
    mask = pattern.to_mask()
    if pattern.grid[0] > 2:
        mask[torch.arange(m) // blocksize[0] % 3 == 1] = False
    return pattern_of(mask, blocksize)


def some_values(
    pattern: Pattern, dtype: torch.dtype = torch.float32, seed: int = 0, padding: float = 0.0
) -> torch.Tensor:
    """Normal values for a pattern; what lies beyond a ragged edge is `padding`."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(pattern.nnzb, *pattern.blocksize, generator=generator).to(dtype)
    return torch.where(inside(pattern), values, torch.tensor(padding, dtype=dtype))


def inside(pattern: Pattern) -> torch.Tensor:
    """Which of the values `[nnzb, r, c]` lie inside the matrix, block by block."""
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    corners = torch.tensor(places(pattern), dtype=torch.int64).reshape(-1, 2)
    rows = corners[:, :1] * r + torch.arange(r) < m
    columns = corners[:, 1:] * c + torch.arange(c) < k
    return rows[:, :, None] & columns[:, None, :]


def dense64(values: torch.Tensor, pattern: Pattern) -> torch.Tensor:
    """The matrix in dense float64, written block by block: the reference of every product."""
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    dense = torch.zeros(m, k, dtype=torch.float64)
    for block, (i, j) in zip(values.detach().double(), places(pattern), strict=True):
        target = dense[i * r : (i + 1) * r, j * c : (j + 1) * c]
        target.copy_(block[: target.shape[0], : target.shape[1]])
    return dense


def places(pattern: Pattern) -> list[tuple[int, int]]:
    """Block row and block column of every block, read straight off the index tensors."""
    crow, col = pattern.crow_indices.tolist(), pattern.col_indices.tolist()
    return [(i, col[b]) for i in range(len(crow) - 1) for b in range(crow[i], crow[i + 1])]


def rel_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest error over the reference's root mean square; NaN anywhere is infinite."""
    assert got.shape == want.shape, f"{list(got.shape)} is not {list(want.shape)}"
    if not want.numel():
        return 0.0
    error = (got.detach().double() - want.detach().double()).abs().amax()
    scale = want.detach().double().square().mean().sqrt()
    return float(torch.nan_to_num(error / scale.clamp(min=1e-30), nan=float("inf")))


@contextlib.contextmanager
def without_type_checks() -> Iterator[None]:
    """Switch the checks of annotations off, as they are for users: our own messages must do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@st.composite
def patterns(draw: st.DrawFn, most: int = 12) -> Pattern:
    """Hypothesis: any pattern of up to `most` rows and columns, ragged and empty ones included."""
    m, k = draw(st.integers(0, most)), draw(st.integers(0, most))
    r, c = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    mb, kb = -(-m // r), -(-k // c)
    stored = draw(st.lists(st.booleans(), min_size=mb * kb, max_size=mb * kb))
    grid = torch.tensor(stored, dtype=torch.bool).reshape(mb, kb)
    return Pattern((m, k), (r, c), [0, *grid.sum(1).cumsum(0).tolist()], grid.nonzero()[:, 1])
