import copy
import io
import pickle

import pytest
import torch

from sparsetile.matrix import BSR, pattern_from_dense, random_pattern
from support import SHAPES, dense64, some_pattern, some_values


@pytest.fixture(params=SHAPES)
def matrix(request):
    pattern = some_pattern(request.param)
    return BSR(some_values(pattern), pattern)


def same(A, B):
    return A.pattern == B.pattern and A.dtype == B.dtype and torch.equal(A.values, B.values)


def test_dense_round_trip(matrix):
    back = BSR.from_dense(matrix.to_dense(), matrix.blocksize)
    assert same(back, matrix)


def test_from_dense_keeps_blocks_of_zeros_when_asked():
    A = BSR.from_dense(torch.zeros(5, 6), 2, drop_zero_blocks=False)
    assert (A.nnzb, A.density) == (9, 1.0)


def test_from_dense_stores_nan():
    w = torch.zeros(4, 4)
    w[3, 0] = float("nan")
    assert BSR.from_dense(w, 2).nnzb == 1


def test_from_dense_at_a_density_keeps_the_strongest():
    w = torch.randn(24, 20)
    assert BSR.from_dense(w, 4, density=0.3).pattern == pattern_from_dense(w, 4, 0.3, "l1")


def test_from_dense_at_a_pattern_lets_gradients_through():
    pattern = some_pattern("ragged_both")
    w = torch.randn(pattern.shape, requires_grad=True)
    BSR.from_dense(w, pattern=pattern).values.sum().backward()
    assert torch.equal(w.grad, pattern.to_mask().float())


def test_random_is_the_same_for_a_seed():
    first, second = (BSR.random(30, 20, blocksize=4, density=0.4, seed=3) for _ in range(2))
    assert same(first, second)
    assert first.pattern == random_pattern(30, 20, blocksize=4, density=0.4, seed=3)


def test_random_takes_the_dtype_asked_for():
    assert BSR.random(8, 8, blocksize=4, density=1.0, seed=0, dtype=torch.float64).dtype == (
        torch.float64
    )


def test_transpose_is_the_transposed_matrix(matrix):
    assert torch.equal(matrix.T.to_dense(), matrix.to_dense().T)
    assert same(matrix.T.T, matrix)


def test_transpose_lets_gradients_through(matrix):
    values = matrix.values.clone().requires_grad_()
    weight = torch.randn(matrix.shape[::-1])
    (BSR(values, matrix.pattern).T.to_dense() * weight).sum().backward()
    want = dense64(values.grad, matrix.pattern)
    assert torch.equal(want, weight.T.double() * matrix.pattern.to_mask())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("half", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float32),
        ("double", torch.float64),
    ],
)
def test_casts_change_the_values_alone(name, dtype):
    pattern = some_pattern("square")
    A = getattr(BSR(some_values(pattern), pattern), name)()
    assert A.dtype == dtype and A.pattern is pattern


def test_to_takes_what_tensors_take():
    A = BSR.random(8, 8, blocksize=4, density=1.0, seed=0)
    assert A.to("cpu", torch.float64).dtype == torch.float64
    assert A.to(torch.empty(0, dtype=torch.float16)).dtype == torch.float16


def test_clone_and_detach():
    A = BSR.random(8, 8, blocksize=4, density=1.0, seed=0).requires_grad_()
    assert A.requires_grad and not A.detach().requires_grad
    assert A.clone().values.data_ptr() != A.values.data_ptr() == A.detach().values.data_ptr()


def test_repr_says_everything_in_one_line():
    A = BSR.random(4096, 4096, blocksize=16, density=0.1, seed=0)
    assert repr(A) == "BSR(4096×4096, blocksize=16, density=0.10, 6554 blocks, float32, cpu)"
    assert repr(A.requires_grad_()).endswith("cpu, requires_grad=True)")
    assert "<svg" in A._repr_html_()


def test_pickle_and_deepcopy_round_trip(matrix):
    assert same(pickle.loads(pickle.dumps(matrix)), matrix)
    twin = copy.deepcopy(matrix)
    assert same(twin, matrix) and twin.pattern is matrix.pattern


def test_torch_save_round_trip_with_weights_only(matrix):
    file = io.BytesIO()
    torch.save({"a": matrix}, file)
    file.seek(0)
    assert same(torch.load(file, weights_only=True)["a"], matrix)
