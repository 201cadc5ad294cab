import pytest
import torch
from hypothesis import given, settings

from sparsetile.matrix import gather_blocks, random_pattern, scatter_blocks
from support import SHAPES, dense64, inside, patterns, some_pattern, some_values


@pytest.fixture(params=SHAPES)
def pattern(request):
    return some_pattern(request.param)


def test_scatter_writes_the_blocks_and_reads_no_padding(pattern):
    values = some_values(pattern, padding=float("nan"))
    assert torch.equal(scatter_blocks(values, pattern).double(), dense64(values, pattern))


def test_gather_takes_the_blocks_with_zeros_beyond_the_edge(pattern):
    values = some_values(pattern)
    assert torch.equal(gather_blocks(dense64(values, pattern).float(), pattern), values)


@pytest.mark.parametrize(
    "view",
    [
        lambda w: w.T.contiguous().T,
        lambda w: torch.stack([w, w], -1)[..., 0],
        lambda w: w[:1].expand_as(w),
    ],
    ids=["transposed", "strided", "expanded"],
)
def test_gather_reads_any_strides(pattern, view):
    w = view(torch.randn(pattern.shape))
    assert torch.equal(gather_blocks(w, pattern), gather_blocks(w.contiguous(), pattern))


@settings(max_examples=40, deadline=None)
@given(patterns())
def test_round_trip(pattern):
    values = some_values(pattern)
    assert torch.equal(gather_blocks(scatter_blocks(values, pattern), pattern), values)


def test_gradient_of_gather_is_the_scattered_gradient(pattern):
    w = torch.randn(pattern.shape, requires_grad=True)
    grad = some_values(pattern, seed=1, padding=5.0)
    gather_blocks(w, pattern).backward(grad)
    assert torch.equal(w.grad.double(), dense64(grad, pattern))


def test_gradient_of_scatter_is_zero_in_the_padding(pattern):
    values = some_values(pattern, padding=float("nan")).requires_grad_()
    scatter_blocks(values, pattern).sum().backward()
    assert torch.equal(values.grad, inside(pattern).float())


@pytest.mark.parametrize("kind", ["square", "ragged_both"])
def test_both_pass_gradcheck(kind):
    pattern = some_pattern(kind)
    values = some_values(pattern, torch.float64).requires_grad_()
    w = torch.randn(pattern.shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: scatter_blocks(v, pattern), values)
    assert torch.autograd.gradcheck(lambda w: gather_blocks(w, pattern), w)


@pytest.mark.parametrize("shape", [(1024, 1024), (1021, 1019)], ids=["whole", "ragged"])
def test_gather_allocates_for_the_stored_blocks_alone(shape):
    w = torch.randn(shape)
    pattern = random_pattern(*shape, blocksize=16, density=0.05, seed=0)
    pattern.row_indices  # noqa: B018  cached before the measurement
    activity = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activity, profile_memory=True) as run:
        gather_blocks(w, pattern)
    largest = max(event.cpu_memory_usage for event in run.events())
    assert largest <= 2.5 * 4 * pattern.nnzb * 16 * 16 < w.nbytes / 4
