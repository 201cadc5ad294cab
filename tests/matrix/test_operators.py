import numpy as np
import pytest
import torch

from sparsetile.matrix import BSR, _operators, register_product, scatter_blocks
from support import SHAPES, dense64, rel_error, some_pattern, some_values, without_type_checks


@pytest.fixture(autouse=True)
def dense_products(monkeypatch):
    # The room under test is below the one with the kernels, so it gets plain products.
    monkeypatch.setattr(_operators, "_registered", [])
    register_product(
        lambda values, pattern, x: scatter_blocks(values, pattern) @ x,
        lambda x, values, pattern: x @ scatter_blocks(values, pattern).T,
    )


@pytest.fixture(params=SHAPES)
def matrix(request):
    pattern = some_pattern(request.param)
    return BSR(some_values(pattern), pattern)


@pytest.mark.parametrize("inner", [(), (5,), (2, 3)], ids=["vector", "matrix", "batch"])
def test_matrix_on_the_left(matrix, inner):
    k = matrix.shape[1]
    x = torch.randn((*inner[:-1], k, inner[-1]) if inner else (k,))
    want = dense64(matrix.values, matrix.pattern) @ x.double()
    assert rel_error(matrix @ x, want) < 1e-5
    assert rel_error(torch.matmul(matrix, x), want) < 1e-5


@pytest.mark.parametrize("outer", [(), (5,), (2, 3)], ids=["vector", "matrix", "batch"])
def test_matrix_on_the_right(matrix, outer):
    x = torch.randn(*outer, matrix.shape[0])
    want = x.double() @ dense64(matrix.values, matrix.pattern)
    assert rel_error(x @ matrix, want) < 1e-5
    assert rel_error(torch.matmul(x, matrix), want) < 1e-5
    assert rel_error(x.matmul(matrix), want) < 1e-5


def test_a_parameter_multiplies_too():
    A = BSR.random(8, 8, blocksize=4, density=0.5, seed=0)
    x = torch.nn.Parameter(torch.randn(3, 8))
    (x @ A).sum().backward()
    assert rel_error(x.grad, A.to_dense().sum(1).double().expand(3, 8)) < 1e-5


@pytest.mark.parametrize("side", ["A @ x", "x @ A"])
def test_values_get_their_gradient_on_both_sides(side):
    A = BSR.random(10, 10, blocksize=4, density=0.5, seed=0).requires_grad_()
    x = torch.randn(10, 10)
    (A @ x if side == "A @ x" else x @ A).sum().backward()
    ones = torch.ones(10, 10).double()
    want = ones @ x.double().T if side == "A @ x" else x.double().T @ ones
    got = dense64(A.values.grad, A.pattern)
    assert rel_error(got, want * A.pattern.to_mask()) < 1e-5


def test_other_torch_functions_say_what_there_is():
    A = BSR.random(4, 4, blocksize=2, density=1.0, seed=0)
    with pytest.raises(TypeError, match=r"torch\.add: got a BSR; allowed: A @ x.*A\.to_dense"):
        torch.add(torch.ones(4, 4), A)


def test_numpy_arrays_are_told_to_become_tensors():
    A = BSR.random(4, 4, blocksize=2, density=1.0, seed=0)
    with without_type_checks(), pytest.raises(TypeError, match=r"torch\.as_tensor"):
        np.ones((4, 4)) @ A


def test_without_products_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(_operators, "_registered", [])
    A = BSR.random(4, 4, blocksize=2, density=1.0, seed=0)
    with pytest.raises(RuntimeError, match=r"import sparsetile\.ops"):
        A @ torch.ones(4)
