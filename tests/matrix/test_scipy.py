import numpy as np
import pytest
import torch
from scipy import sparse

from sparsetile.matrix import BSR
from support import SHAPES, dense64, some_pattern, some_values


@pytest.fixture(params=SHAPES)
def matrix(request):
    pattern = some_pattern(request.param)
    return BSR(some_values(pattern), pattern)


def same(A, B):
    return A.pattern == B.pattern and torch.equal(A.values, B.values)


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dok", "lil"])
def test_element_formats_round_trip(matrix, format):
    s = matrix.to_scipy(format)
    assert s.format == format and s.shape == matrix.shape
    assert np.array_equal(s.toarray(), dense64(matrix.values, matrix.pattern).numpy())
    assert same(BSR.from_scipy(s, matrix.blocksize), matrix)


def test_diagonals_round_trip():
    A = BSR.from_dense(torch.randn(6, 6), 2, density=0.5)
    assert torch.equal(BSR.from_scipy(A.to_scipy("dia"), 2).to_dense(), A.to_dense())


@pytest.mark.parametrize("kind", ["square", "wide", "tall", "unstructured", "whole"])
def test_bsr_round_trip(kind):
    pattern = some_pattern(kind)
    A = BSR(some_values(pattern), pattern)
    s = A.to_scipy("bsr")
    assert s.format == "bsr" and s.blocksize == A.blocksize
    assert np.array_equal(s.toarray(), A.to_dense().numpy())
    assert same(BSR.from_scipy(s), A)


def test_spmatrix_is_taken_as_sparray_is():
    s = sparse.csr_matrix(np.eye(4))
    assert torch.equal(BSR.from_scipy(s, 2).to_dense(), torch.eye(4).double())


def test_duplicates_are_summed_and_unsorted_sorted():
    data = np.arange(12.0).reshape(3, 2, 2)
    s = sparse.bsr_array((data, np.array([1, 0, 1]), np.array([0, 3])), shape=(2, 4))
    A = BSR.from_scipy(s)
    assert A.pattern.col_indices.tolist() == [0, 1]
    assert np.array_equal(A.values.numpy(), np.stack([data[1], data[0] + data[2]]))


def test_a_matrix_without_blocks_converts():
    assert BSR.from_scipy(sparse.bsr_array((4, 4), blocksize=(2, 2))).nnzb == 0


@pytest.mark.parametrize(("drop", "count"), [(False, 2), (True, 1)])
def test_zero_blocks_are_kept_or_dropped_as_asked(drop, count):
    data = np.stack([np.zeros((2, 2)), np.ones((2, 2))])
    s = sparse.bsr_array((data, np.array([0, 1]), np.array([0, 2])), shape=(2, 4))
    A = BSR.from_scipy(s, drop_zero_blocks=drop)
    assert A.nnzb == count
    assert BSR.from_scipy(s).to_scipy("bsr", drop_zeros=drop).nnz == 4 * count


def test_a_gradient_is_no_obstacle():
    A = BSR.from_dense(torch.eye(3), 1).requires_grad_()
    assert np.array_equal(A.to_scipy("csr").toarray(), np.eye(3))


def test_no_memory_is_shared():
    s = sparse.csr_array(np.eye(4, dtype=np.float32))
    A = BSR.from_scipy(s)
    back = A.to_scipy("csr")
    s.data[:] = 7
    A.values[0] = 9
    assert np.array_equal(back.toarray(), np.eye(4))


@pytest.mark.parametrize("format", ["csr", "csc", "bsr"])
def test_offsets_that_point_outside_are_refused(format):
    s = sparse.csr_array(np.eye(2)).asformat(format)
    s.indptr[1] = 10**8
    with pytest.raises(ValueError, match=r"crow_indices: got offsets that fall .*; allowed: "):
        BSR.from_scipy(s)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array])
def test_room_beyond_the_last_element_is_no_obstacle(kind):
    s = kind((np.array([1.0, 2.0, 9.0]), np.array([0, 1, 0]), np.array([0, 1, 2])), shape=(2, 2))
    assert BSR.from_scipy(s).to_dense().tolist() == [[1.0, 0.0], [0.0, 2.0]]
