"""Products with few columns, as the decode kernel computes them, against float64."""

import itertools
import re

import pytest
import torch

import sparsetile as st
from sparsetile.ops._activation import ACTIVATIONS, activate
from sparsetile.ops.cpu import _decode_plan, _jit, _threads
from sparsetile.ops.cpu._decode import DecodeKernel
from sparsetile.ops.cpu._decode_mask import mask_of
from sparsetile.ops.cpu._decode_plan import DecodePlan
from sparsetile.ops.cpu._index import index_of
from sparsetile.ops.cpu._isa import LEVELS, host, instruction_sets
from sparsetile.ops.cpu._number import numbers_of
from sparsetile.ops.cpu._operand import without_padding
from support import dense64, some_values

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
# dtype of x and y, dtype of the values, and a step of the former
FORMATS = {
    "f32": (F32, F32, 2.0**-23),
    "bf16": (BF16, BF16, 2.0**-8),
    "f16": (F16, F16, 2.0**-11),
    "f32*bf16": (F32, BF16, 2.0**-23),
    "f32*f16": (F32, F16, 2.0**-23),
}
BLOCKS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 4), (5, 3), (16, 16), (3, 16), (16, 1), (2, 24)]


def pattern_with_empty_rows(m, k, block, density=0.3):
    pattern = st.random_pattern(m, k, blocksize=block, density=density, seed=1)
    mask = pattern.to_mask()
    if pattern.grid[0] > 2:
        mask[torch.arange(m) // block[0] % 3 == 1] = False
    return st.pattern_of(mask, block)


# Instruction sets of the processor up to the one in use: kernels are compiled for no other.
_used, _able = instruction_sets()
RUN = set(_able[: _able.index(_used) + 1])


def planned(pattern, x, values, isa=None):
    (m, k), (_, c) = pattern.shape, pattern.blocksize
    crow, col = pattern.crow_indices, pattern.col_indices
    numbers = numbers_of(isa or host(), x, values, inner=c)
    return DecodePlan(index_of(crow, col, -(-k // c), transpose=False), (_, c), (m, k), numbers)


def check(pattern, columns, formats, activation="", isa=None):
    """Multiply and compare; x and y are stretches of wider tensors, whose rest must not change."""
    dtype, of_values, step = FORMATS[formats]
    (m, k), generator = pattern.shape, torch.Generator().manual_seed(columns)
    values = some_values(pattern, of_values, padding=float("nan"))
    values = without_padding(
        values, pattern.crow_indices, pattern.col_indices, pattern.shape, columns=True
    )
    x = torch.full((columns, k + 3), float("nan"), dtype=dtype)
    x[:, :k] = torch.randn(columns, k, generator=generator)
    bias = torch.randn(m, generator=generator).to(dtype) if columns % 2 else None
    y = torch.full((columns, m + 5), 7.0, dtype=dtype)
    plan = planned(pattern, dtype, of_values, isa)
    plan.multiply(values, x[:, :k], y[:, :m], bias, activation)
    whole = dense64(values, pattern)
    want = x[:, :k].double() @ whole.T + (0 if bias is None else bias.double())
    want = activate(want, activation)
    summed = x[:, :k].double().abs() @ whole.T.abs() + 1
    assert ((y[:, :m].double() - want).abs() <= step * want.abs() + 1e-6 * summed).all()
    assert (y[:, m:] == 7).all()
    return y[:, :m]


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_and_format(block, formats, columns):
    check(pattern_with_empty_rows(70, 90, block), columns, formats)


@pytest.mark.parametrize("columns", range(1, 16))
@pytest.mark.parametrize("block", [(1, 1), (4, 4), (16, 16)])
def test_every_number_of_columns(block, columns):
    check(pattern_with_empty_rows(64, 96, block), columns, "f32")


@pytest.mark.parametrize("columns", [1, 8])
@pytest.mark.parametrize("block", [(64, 64), (4, 128), (37, 8)])
@pytest.mark.parametrize("formats", ["f32", "f32*f16"])
def test_blocks_of_many_vectors(block, formats, columns):
    check(pattern_with_empty_rows(150, 260, block, 0.5), columns, formats)


@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize(("m", "k"), [(1, 1), (1, 200), (200, 1), (3, 4096)])
def test_narrow_matrices(m, k, columns):
    for block in ((1, 1), (4, 4)):
        check(st.random_pattern(m, k, blocksize=block, density=1.0, seed=0), columns, "f32")


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("block", [(200_000, 1), (1, 200_000), (150_001, 2)])
def test_blocks_of_any_size_leave_the_stack_alone(block, columns):
    m, k = (b + 1 for b in block)
    check(st.random_pattern(m, k, blocksize=block, density=1.0, seed=0), columns, "f32")


@pytest.mark.parametrize("columns", [1, 2, 4])
@pytest.mark.parametrize("k", [50_000, 70_000])
def test_more_columns_than_16_bits_count(k, columns):
    check(st.random_pattern(5, k, blocksize=1, density=0.01, seed=0), columns, "f32")


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("formats", ["f32", "bf16"])
def test_activations_follow_the_bias(formats, activation):
    for columns in (1, 5):
        check(pattern_with_empty_rows(70, 90, (4, 4)), columns, formats, activation)


@pytest.mark.parametrize("level", sorted({"avx2", "neon"} | RUN & {"avx512bf16"}))
@pytest.mark.parametrize("columns", [1, 2, 9])
def test_other_vectors_registers_and_pairs(monkeypatch, level, columns):
    isa = LEVELS[level]
    monkeypatch.setattr(_decode_plan, "host", lambda: isa)
    for block, formats in itertools.product([(1, 1), (4, 4), (16, 16)], FORMATS):
        check(pattern_with_empty_rows(70, 90, block), columns, formats, isa=isa)


@pytest.mark.parametrize("block", [(1, 1), (4, 4), (16, 16)])
def test_results_are_the_same_for_any_number_of_threads(monkeypatch, block):
    monkeypatch.setattr(_threads, "WORTH_A_THREAD", 1)
    pattern, before = pattern_with_empty_rows(130, 90, block), torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append([check(pattern, columns, "f32") for columns in (1, 2, 7)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("level", sorted(RUN & {"avx512", "amx"}))
@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("columns", [1, 2])
def test_many_single_numbers_are_found_by_a_bit_mask(monkeypatch, columns, formats, level):
    monkeypatch.setattr(_decode_plan, "host", lambda: LEVELS[level])
    for m, k, density in ((70, 130, 0.4), (40, 64, 1.0), (3, 1, 1.0)):
        check(pattern_with_empty_rows(m, k, (1, 1), density), columns, formats, isa=LEVELS[level])


def test_a_bit_mask_is_not_made_of_columns_that_do_not_rise():
    crow, col = torch.tensor([0, 2, 3]), torch.tensor([1, 1, 0])
    assert mask_of(index_of(crow, col, 2, transpose=False), 2) is None
    mask = mask_of(index_of(crow, torch.tensor([0, 33, 0]), 34, transpose=False), 34)
    assert mask.tolist() == [[1, 0, 0, 0, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0, 0, 0]]


# --- the code -----------------------------------------------------------------------------------


def kernel(isa, block, columns, x=F32, values=F32):
    numbers = numbers_of(isa, x, values, inner=block[1])
    walk = "gather" if block == (1, 1) and columns <= 2 and isa.lanes == 16 else "blocks"
    return DecodeKernel(isa.lanes, isa.registers, block, columns, numbers, "", 16, 4096, walk)


def hottest_block(text, spelling):
    """The basic block with the most products, as lines."""
    blocks = [
        [line.strip() for line in block.splitlines()]
        for block in re.split(r"^\.LBB\w+:", text, flags=re.MULTILINE)
    ]
    return max(blocks, key=lambda lines: sum(line.startswith(spelling) for line in lines))


# the products of a turn: vectors of sums × vectors along a row of a block × blocks
@pytest.mark.parametrize(
    ("level", "block", "columns", "expected"),
    [
        ("avx512", (1, 1), 1, 4),
        ("avx512", (1, 1), 2, 8),
        ("avx512", (1, 1), 8, 8),
        ("avx512", (4, 4), 1, 8),
        ("avx512", (4, 4), 8, 4 * 2),
        ("avx512", (16, 16), 1, 16),
        ("avx512", (16, 16), 8, 16 * 8),
        ("avx512", (64, 64), 1, 16 * 4),
        ("avx2", (4, 4), 1, 2 * 4),
        ("avx2", (16, 16), 8, 8 * 8),
    ],
)
def test_hot_loop_holds_the_expected_products_and_no_spill(level, block, columns, expected):
    isa = LEVELS[level]
    lines = hottest_block(_jit.assembly(kernel(isa, block, columns).ir(), isa), "vfmadd")
    assert sum(line.startswith("vfmadd") for line in lines) == expected
    assert not [line for line in lines if "(%rsp" in line and "mm" in line]
    assert not [line for line in lines if line.startswith("call")]


@pytest.mark.parametrize("columns", [1, 8])
def test_pairs_of_bfloat16_are_multiplied_as_they_are(columns):
    isa = LEVELS["avx512bf16"]
    text = _jit.assembly(kernel(isa, (16, 16), columns, BF16, BF16).ir(), isa)
    lines = hottest_block(text, "vdpbf16ps")
    assert sum(line.startswith("vdpbf16ps") for line in lines) == (8 if columns == 1 else 16 * 4)
    assert not [line for line in lines if "(%rsp" in line and "mm" in line]


@pytest.mark.parametrize("block", [(1, 1), (4, 4), (16, 16)])
def test_the_kernel_compiles_for_64_bit_arm(block):
    isa = LEVELS["neon"]
    text = _jit.assembly(kernel(isa, block, 4).ir(), isa, triple="aarch64-unknown-linux-gnu")
    assert re.search(r"\bfmla\b", text)
