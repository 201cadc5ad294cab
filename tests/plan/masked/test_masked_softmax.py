"""Softmax over stored blocks, its gradient, and attention made of all three."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.machine import preset
from sparsetile.matrix import (
    BSR,
    Pattern,
    causal_pattern,
    gather_blocks,
    pattern_of,
    random_pattern,
)
from sparsetile.plan.masked import (
    masked_softmax,
    masked_softmax_grad,
    plan_dds,
    plan_dsd,
    plan_softmax,
    run_dds,
    run_dsd,
    softmax_program,
)


def machine(tiles, **changes):
    return dataclasses.replace(preset("bow-ipu"), name="some", tiles=tiles, **changes)


def kept_mask(pattern, sub_block):
    """Which stored elements count."""
    keep = torch.ones(pattern.shape, dtype=torch.bool)
    if sub_block != "none":
        keep = keep.tril() if sub_block == "zero_upper" else keep.triu()
    diagonal = gather_blocks(torch.eye(*pattern.shape, dtype=torch.bool), pattern)
    return gather_blocks(keep, pattern) | ~diagonal.any(2).any(1)[:, None, None]


def dense_softmax(values, pattern, sub_block="none"):
    """In float64, with zeros where nothing counts."""
    kept = BSR(kept_mask(pattern, sub_block).double(), pattern).to_dense() > 0
    scores = BSR(values.double(), pattern).to_dense().masked_fill(~kept, -torch.inf)
    dense = torch.softmax(scores, 1).masked_fill(~kept, 0.0)
    return gather_blocks(dense, pattern)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("sub_block", ["none", "zero_upper", "zero_lower"])
@pytest.mark.parametrize("scale", [1.0, 1e4], ids=["small", "large"])
def test_softmax_of_stored_blocks(dtype, sub_block, scale):
    pattern = random_pattern(96, 96, blocksize=16, density=0.4, seed=2)
    values = (torch.randn(pattern.nnzb, 16, 16) * scale).to(dtype)
    result, profile = masked_softmax(machine(8), values, pattern, sub_block=sub_block)
    wanted = dense_softmax(values, pattern, sub_block)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-3
    assert result.dtype == dtype
    assert torch.allclose(result.double(), wanted, rtol=tolerance, atol=1e-7 + tolerance / 10)
    assert profile.cycles > 0


@settings(max_examples=20, deadline=None)
@given(
    tiles=st.sampled_from([4, 6, 16, 64]),
    workers=st.integers(1, 7),
    rows=st.integers(1, 7),
    columns=st.integers(1, 5),
    blocksize=st.sampled_from([(4, 4), (8, 2), (3, 5)]),
    sub_block=st.sampled_from(["none", "zero_upper", "zero_lower"]),
    seed=st.integers(0, 99),
)
def test_softmax_of_random_masks_on_random_machines(
    tiles, workers, rows, columns, blocksize, sub_block, seed
):
    (r, c), chosen = blocksize, torch.Generator().manual_seed(seed)
    groups = []
    for _ in range(2):
        mask = torch.rand(rows, columns, generator=chosen) < 0.5
        mask = mask.repeat_interleave(r, 0).repeat_interleave(c, 1)
        groups.append(pattern_of(mask, blocksize=blocksize))
    values = [torch.randn(group.nnzb, r, c, generator=chosen) for group in groups]
    small = machine(tiles, workers=workers)
    result, _ = masked_softmax(small, torch.cat(values), groups, sub_block=sub_block)
    pairs = zip(values, groups, strict=True)
    wanted = torch.cat([dense_softmax(v, group, sub_block) for v, group in pairs])
    assert torch.allclose(result.double(), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("sub_block", ["none", "zero_upper", "zero_lower"])
@pytest.mark.parametrize("in_place", [False, True])
def test_gradient_is_that_of_autograd(sub_block, in_place):
    pattern = random_pattern(64, 64, blocksize=8, density=0.3, seed=3)
    values = torch.randn(pattern.nnzb, 8, 8, dtype=torch.float64, requires_grad=True)
    wanted = dense_softmax(values, pattern, sub_block)
    given_gradient = torch.randn_like(wanted)
    wanted.backward(given_gradient)
    y, _ = masked_softmax(machine(8), values.detach().float(), pattern, sub_block=sub_block)
    dy = given_gradient.float()
    result, profile = masked_softmax_grad(machine(8), y, dy, pattern, in_place=in_place)
    assert torch.allclose(result.double(), values.grad.nan_to_num(), rtol=1e-5, atol=1e-6)
    assert (result is dy) == in_place
    assert "Softmax gradient" in {phase.name for phase in profile.phases}


def test_in_place_writes_over_the_values_and_needs_less_memory():
    pattern = causal_pattern(256, 256, blocksize=16)
    values = torch.randn(pattern.nnzb, 16, 16)
    before = values.clone()
    other, apart = masked_softmax(machine(8), values, pattern)
    assert torch.equal(values, before)
    same, over = masked_softmax(machine(8), values, pattern, in_place=True)
    assert same is values
    assert torch.equal(same, other)
    assert over.tile_memory.max() < apart.tile_memory.max()
    program = softmax_program(plan_softmax(machine(8), pattern, dtype="float32", in_place=True))
    assert program.inputs == program.outputs


def test_rows_without_blocks_and_masks_without_any():
    pattern = Pattern((48, 32), 16, [0, 1, 1, 2], [0, 1])
    values = torch.randn(2, 16, 16)
    result, _ = masked_softmax(machine(4), values, pattern)
    assert torch.allclose(result.sum(2), torch.ones(2, 16))
    empty = Pattern((32, 32), 16, [0, 0, 0], [])
    result, _ = masked_softmax(machine(4), torch.zeros(0, 16, 16), empty)
    assert list(result.shape) == [0, 16, 16]


def test_rows_with_all_values_masked_become_zeros():
    # Of a block twice as wide as high, the diagonal block's rows reach over the diagonal.
    pattern = Pattern((16, 16), (16, 8), [0, 1], [1])
    result, _ = masked_softmax(machine(4), torch.ones(1, 16, 8), pattern, sub_block="zero_upper")
    assert (result[0, :8] == 0).all()
    assert torch.allclose(result[0, 8:].sum(1), torch.ones(8))


def test_rows_are_dealt_evenly():
    pattern = causal_pattern(512, 512, blocksize=16)
    plan = plan_softmax(machine(64), pattern, dtype="float16")
    values = torch.randn(pattern.nnzb, 16, 16).half()
    _, profile = masked_softmax(machine(64), values, pattern)
    counted = {phase.name: phase for phase in profile.phases}
    assert counted["Softmax"].balance > 0.9
    assert {term.name: term.cycles for term in plan.cost.terms}["Softmax"] == (
        counted["Softmax"].cycles
    )


def test_refuses_what_does_not_fit_a_softmax():
    pattern = causal_pattern(32, 32, blocksize=16)
    with pytest.raises(ValueError, match="float16 or float32"):
        masked_softmax(machine(4), torch.zeros(3, 16, 16).double(), pattern)
    with pytest.raises(ValueError, match="allowed: float32"):
        masked_softmax(machine(4), torch.zeros(2, 16, 16), pattern)
    with pytest.raises(ValueError, match="sub_block"):
        plan_softmax(machine(4), pattern, sub_block="upper")


@pytest.mark.parametrize("method", ["strip", "block", "block-naive"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_causal_attention_of_blocks_is_dense_attention(method, dtype):
    heads, length, width = 2, 96, 32
    name = str(dtype).removeprefix("torch.")
    q, k, v = (torch.randn(heads, length, width).div(2).to(dtype) for _ in range(3))
    tiles, pattern = machine(16), causal_pattern(length, length, blocksize=16)
    groups, more = [pattern] * heads, {"dtype": name, "method": method}
    scores, _ = run_dds(
        plan_dds(tiles, groups, width, transposed=True, sub_block="zero_upper", **more),
        q.flatten(0, 1),
        k.flatten(0, 1),
    )
    scores *= width**-0.5
    weights, _ = masked_softmax(tiles, scores, groups, sub_block="zero_upper", in_place=True)
    # The sparse operand is the right one, so the product is that of the transposed output.
    transposed = v.transpose(1, 2).flatten(0, 1).contiguous()
    plan = plan_dsd(tiles, groups, width, transposed=True, **more)
    out, _ = run_dsd(plan, transposed, weights)
    result = out.view(heads, width, length).transpose(1, 2)
    attend = torch.nn.functional.scaled_dot_product_attention
    wanted = attend(q.double(), k.double(), v.double(), is_causal=True)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-3
    assert torch.allclose(result.double(), wanted, rtol=tolerance, atol=tolerance)
