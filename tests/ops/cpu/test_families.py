"""Which kernel a block gets, and that bad index buffers never reach one."""

import pytest
import torch

import sparsetile as st
from support import some_values


@pytest.mark.parametrize(
    ("blocksize", "forward", "transposed", "gradient"),
    [
        ((1, 1), "sliced", "sliced", "dot"),
        ((4, 4), "sliced", "sliced", "outer"),
        ((1, 4), "sliced", "sliced", "dot"),
        ((16, 1), "panel", "sliced", "outer"),
        ((1, 16), "sliced", "panel", "outer"),
        ((8, 8), "panel", "panel", "outer"),
        ((16, 16), "panel", "panel", "outer"),
        ((64, 64), "panel", "panel", "outer"),
        ((7, 3), "sliced", "sliced", "outer"),
    ],
)
def test_each_block_has_its_kernel(blocksize, forward, transposed, gradient):
    pattern = st.random_pattern(70, 90, blocksize=blocksize, density=0.3, seed=0)
    values = some_values(pattern).requires_grad_()
    x = torch.randn(5, 90)
    r, c = blocksize
    with st.backend("cpu"):
        st.linear(x, values, pattern)
        assert st.last_kernel() == f"cpu:linear_f32_b{r}x{c}/{forward}"
        y = st.linear(x.requires_grad_(), values.detach(), pattern)
        y.sum().backward()
        assert st.last_kernel() == f"cpu:linear_f32_b{r}x{c}_t/{transposed}"
        st.linear(x.detach(), values, pattern).sum().backward()
        assert st.last_kernel() == f"cpu:sddmm_f32_b{r}x{c}/{gradient}"


def test_float64_needs_another_back_end():
    pattern = st.random_pattern(32, 32, blocksize=(16, 16), density=0.5, seed=0)
    with st.backend("cpu"), pytest.raises(NotImplementedError, match="float64"):
        st.linear(torch.ones(2, 32).double(), some_values(pattern).double(), pattern)


@pytest.mark.parametrize(
    ("crow", "col", "name"),
    [
        ([0, 1, 2], [0, 7], "col_indices"),
        ([0, 1, 2], [0, -1], "col_indices"),
        ([0, 2, 1], [0, 1], "crow_indices"),
        ([0, 1, 9], [0, 1], "crow_indices"),
        ([1, 1, 2], [0, 1], "crow_indices"),
    ],
)
def test_index_buffers_that_point_astray_are_refused(crow, col, name):
    indices = [torch.tensor(i, dtype=torch.int32) for i in (crow, col)]
    with st.backend("cpu"), pytest.raises(ValueError, match=name):
        st.ops.linear_from_indices(torch.ones(3, 16), torch.ones(2, 8, 8), *indices, (16, 16))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("b", [1, 4, 16])
def test_the_default_dtype_does_not_matter(b, dtype):
    pattern = st.random_pattern(40, 50, blocksize=b, density=0.3, seed=0)
    values, x, dy = some_values(pattern), torch.randn(6, 50), torch.randn(6, 40)
    expected = [st.linear(x, values, pattern), st.sddmm(dy.T, x, pattern)]
    fresh = pattern.crow_indices.clone(), pattern.col_indices.clone()
    torch.set_default_dtype(dtype)
    try:
        with st.backend("cpu"):
            got = [
                st.ops.linear_from_indices(x, values, *fresh, pattern.shape),
                torch.ops.sparsetile.sddmm(dy.T, x, *fresh, b, b, False),
            ]
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
