"""Which kernel a product gets, and that bad index buffers never reach one."""

import pytest
import torch

import sparsetile as st
from sparsetile.ops._register import LINEAR, SDDMM, SPMM
from sparsetile.ops.cpu._decode_plan import DecodePlan
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._product import ProductPlan
from sparsetile.ops.cpu._sample import SamplePlan
from support import some_values
from support_ops import pattern_from

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
DTYPES = {"f32": (F32, F32), "bf16": (BF16, BF16), "f16": (F16, F16)}
DTYPES |= {"f32*bf16": (F32, BF16), "f32*f16": (F32, F16)}
M, K = 70, 90

# Products of 16 columns and more by a block as stored, by its transpose, and its weight gradient.
BLOCKS = {
    (1, 1): ("sliced", "sliced", "dot"),
    (2, 1): ("sliced", "sliced", "dot"),
    (2, 2): ("sliced", "sliced", "dot"),
    (1, 4): ("sliced", "sliced", "dot"),
    (4, 4): ("panel", "sliced", "outer"),
    (3, 7): ("sliced", "sliced", "outer"),
    (7, 3): ("panel", "sliced", "outer"),
    (4, 32): ("panel", "panel", "outer"),
    (2, 64): ("panel", "panel", "outer"),
    (4, 64): ("panel", "panel", "outer"),
    (16, 1): ("panel", "sliced", "outer"),
    (1, 16): ("sliced", "panel", "outer"),
    (8, 12): ("panel", "panel", "outer"),
    (8, 8): ("panel", "panel", "outer"),
    (16, 16): ("panel", "panel", "outer"),
    (64, 32): ("panel", "panel", "outer"),
}
FILL_TILES = {(8, 8), (16, 16), (64, 32)}  # with bfloat16, where the processor has them


def kinds(blocksize, format):
    tiles = host().has_amx and format == "bf16" and blocksize in FILL_TILES
    return ("amx", "amx", "amx") if tiles else BLOCKS[blocksize]


def operands(blocksize, format, n):
    dtype, stored = DTYPES[format]
    pattern = st.random_pattern(M, K, blocksize=blocksize, density=0.3, seed=0)
    values = some_values(pattern).to(stored)
    return pattern, values, torch.randn(n, K).to(dtype), torch.randn(n, M).to(dtype)


@pytest.fixture
def uncompiled(monkeypatch):
    """Plans that name their kernels and compute nothing."""
    for plan in (ProductPlan, DecodePlan):
        monkeypatch.setattr(plan, "multiply", lambda *args: None)
    monkeypatch.setattr(SamplePlan, "sample", sampled)


def sampled(plan, a, b, reduce):
    return a.tensor.new_zeros(*(() if reduce else (a.batch,)), plan.nnzb, *plan.block)


def ran(product):
    with st.backend("cpu"):
        product()
    return st.last_kernel()


@pytest.mark.parametrize("n", [16, 200])
@pytest.mark.parametrize("format", DTYPES)
@pytest.mark.parametrize("blocksize", BLOCKS, ids=str)
def test_each_block_and_format_has_its_kernel(uncompiled, blocksize, format, n):
    forward, transposed, gradient = kinds(blocksize, format)
    pattern, values, x, dy = operands(blocksize, format, n)
    indices = pattern.crow_indices, pattern.col_indices
    name = f"{format}_b{blocksize[0]}x{blocksize[1]}"
    assert ran(lambda: st.linear(x, values, pattern)) == f"cpu:linear_{name}/{forward}"
    got = ran(lambda: LINEAR(dy, values, *indices, None, M, K, True))
    assert got == f"cpu:linear_{name}_t/{transposed}"
    assert ran(lambda: st.spmm(values, pattern, x.T)) == f"cpu:spmm_{name}/{forward}"
    got = ran(lambda: SPMM(values, *indices, dy.T, M, K, True))
    assert got == f"cpu:spmm_{name}_t/{transposed}"
    if len({*DTYPES[format]}) == 1:
        got = ran(lambda: SDDMM(dy.T, x, *indices, *blocksize, False))
        assert got == f"cpu:sddmm_{name}/{gradient}"


@pytest.mark.parametrize("n", [1, 2, 8, 15])
@pytest.mark.parametrize("format", DTYPES)
@pytest.mark.parametrize("blocksize", [(1, 1), (4, 4), (16, 16)], ids=str)
def test_few_contiguous_columns_have_a_kernel(uncompiled, blocksize, format, n):
    pattern, values, x, dy = operands(blocksize, format, n)
    indices = pattern.crow_indices, pattern.col_indices
    usual = kinds(blocksize, format)[0]
    decoded = "amx" if usual == "amx" and n > 1 else "decode"
    assert ran(lambda: st.linear(x, values, pattern)).endswith(f"/{decoded}")
    assert ran(lambda: st.spmm(values, pattern, x.T)).endswith(f"/{usual}")
    got = ran(lambda: LINEAR(dy, values, *indices, None, M, K, True))
    assert got.endswith(f"/{kinds(blocksize, format)[1]}")


@pytest.mark.parametrize("blocksize", [(1, 1), (16, 16)], ids=str)
def test_no_kernel_runs_without_blocks(blocksize):
    r, c = blocksize
    pattern = pattern_from((M, K), blocksize, [False] * (-(-M // r) * -(-K // c)))
    values, x, dy = some_values(pattern), torch.randn(20, K), torch.randn(20, M)
    assert ran(lambda: st.linear(x, values, pattern)).endswith("/empty")
    assert ran(lambda: st.spmm(values, pattern, x.T)).endswith("/empty")
    assert ran(lambda: st.sddmm(dy.T, x, pattern)).endswith("/empty")


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
