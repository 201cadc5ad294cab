"""Every product and gradient against dense float64: blocks, formats, directions, strides, sizes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support_agreement import BF16, CHOICES, F16, F32, F64, Case, check

# One block of each kernel, and of each way that kernels differ: even and odd sides, sides that
# divide a vector and sides that do not, fewer and more rows than registers, flat and upright ones.
BLOCKS = {
    F32: [(1, 1), (1, 4), (2, 2), (4, 4), (7, 3), (8, 8), (16, 1), (1, 16), (16, 16), (64, 64)],
    BF16: [(1, 1), (2, 2), (4, 4), (3, 5), (8, 8), (16, 1), (1, 32), (8, 12), (16, 16), (64, 32)],
    F16: [(1, 1), (4, 1), (4, 4), (16, 16), (32, 8)],
    F64: [(1, 1), (3, 5)],
}
FORMATS = [(b, dtype, dtype) for dtype, blocks in BLOCKS.items() for b in blocks]
FORMATS += [(b, F32, half) for half in (BF16, F16) for b in ((1, 1), (4, 4), (16, 16))]


def name(format):
    (r, c), *dtypes = format
    return "*".join(dict.fromkeys(str(d).removeprefix("torch.") for d in dtypes)) + f"-{r}x{c}"


def cases(blocksize, dtype, values_dtype, **fixed):
    given = CHOICES | {name: (value,) for name, value in fixed.items()}
    if values_dtype != dtype:
        given["op"] = ("linear", "spmm")
    drawn = {name: st.sampled_from(choices) for name, choices in given.items()}
    return st.builds(Case, st.just(blocksize), st.just(dtype), st.just(values_dtype), **drawn)


@pytest.mark.parametrize("format", FORMATS, ids=name)
def test_products_and_gradients_agree_with_dense(compute, format):
    blocksize, dtype, values_dtype = format

    @settings(max_examples=12, deadline=None)
    @given(case=cases(*format))
    def agrees(case):
        ops = ("sddmm", "spmm") if case.op == "sddmm" else (case.op, "sddmm")
        compute(lambda: check(case), ops, dtype, blocksize, values_dtype)

    agrees()
