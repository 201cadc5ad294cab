import pytest
import torch
from hypothesis import given, settings

from sparsetile.matrix import BSR
from sparsetile.matrix._convert import drop_zero_blocks
from support import SHAPES, dense64, patterns, some_pattern, some_values

BLOCKED, SCALAR = ("bsr", "bsc"), ("csr", "csc", "coo")
WHOLE = [kind for kind in SHAPES if not some_pattern(kind).ragged and all(SHAPES[kind][:2])]


def some_matrix(kind, padding=0.0):
    pattern = some_pattern(kind)
    return BSR(some_values(pattern, padding=padding), pattern)


def same(A, B):
    return A.pattern == B.pattern and torch.equal(A.values, B.values)


@pytest.mark.parametrize("layout", BLOCKED)
@pytest.mark.parametrize("kind", WHOLE)
def test_blocked_layouts_round_trip(kind, layout):
    A = some_matrix(kind)
    t = A.to_torch(layout)
    assert t.layout == getattr(torch, f"sparse_{layout}")
    assert torch.equal(t.to_dense(), A.to_dense())
    assert same(BSR.from_torch(t), A)


@pytest.mark.parametrize("layout", SCALAR)
@pytest.mark.parametrize("kind", SHAPES)
def test_element_layouts_round_trip(kind, layout):
    A = some_matrix(kind, padding=float("nan"))
    t = A.to_torch(layout)
    assert torch.equal(t.to_dense().double(), dense64(A.values, A.pattern))
    assert same(BSR.from_torch(t, A.blocksize), some_matrix(kind))


@settings(max_examples=30, deadline=None)
@given(patterns())
def test_elements_of_any_pattern_obey_torchs_invariants(pattern):
    t = BSR(some_values(pattern), pattern).to_torch("csr")
    with torch.sparse.check_sparse_tensor_invariants():
        torch.sparse_csr_tensor(t.crow_indices(), t.col_indices(), t.values(), t.shape)
    assert len(t.values()) == int(pattern.to_mask().sum())


def test_strided_is_dense_and_back():
    A = some_matrix("ragged_both")
    back = BSR.from_torch(A.to_torch("strided"), A.blocksize, drop_zero_blocks=True)
    assert same(back, A)


def test_a_torch_layout_is_as_good_as_its_name():
    assert some_matrix("wide").to_torch(torch.sparse_csr).layout == torch.sparse_csr


def test_torchs_own_conversion_agrees():
    dense = some_matrix("square").to_dense()
    assert same(BSR.from_torch(dense.to_sparse_bsr((4, 4))), BSR.from_dense(dense, 4))


def test_signed_zero_and_nan_survive():
    pattern = some_pattern("square")
    values = torch.full((pattern.nnzb, 4, 4), -0.0)
    values[0, 0, 0] = float("nan")
    for layout in ("bsc", "coo"):
        back = BSR.from_torch(BSR(values, pattern).to_torch(layout), 4).values
        assert back.signbit().flatten()[1:].all() and back[0, 0, 0].isnan()


def test_unsorted_blocks_are_sorted():
    values = torch.arange(8.0).reshape(2, 2, 2)
    t = torch.sparse_bsr_tensor([0, 2], [1, 0], values, (2, 4), check_invariants=False)
    A = BSR.from_torch(t)
    assert A.pattern.col_indices.tolist() == [0, 1]
    assert torch.equal(A.values, values.flip(0))


def test_duplicate_blocks_are_summed():
    values = torch.arange(12.0).reshape(3, 2, 2)
    t = torch.sparse_bsr_tensor([0, 3], [1, 0, 1], values, (2, 4), check_invariants=False)
    assert torch.equal(BSR.from_torch(t).values, torch.stack([values[1], values[0] + values[2]]))


def test_duplicate_elements_are_summed_whatever_the_blocks():
    t = torch.sparse_coo_tensor([[1, 0, 1], [2, 1, 2]], [1.0, 2.0, 3.0], (3, 3))
    for blocksize in (None, 2, (3, 2)):
        assert torch.equal(BSR.from_torch(t, blocksize).to_dense(), t.to_dense())


def test_blocks_can_be_cut_anew():
    A = some_matrix("square")
    B = BSR.from_torch(A.to_torch("bsr"), (3, 5))
    assert B.blocksize == (3, 5) and torch.equal(B.to_dense(), A.to_dense())


@pytest.mark.parametrize(("drop", "count"), [(False, 3), (True, 2)])
def test_explicit_zeros_are_kept_or_dropped_as_asked(drop, count):
    t = torch.sparse_coo_tensor([[0, 1, 3], [0, 3, 0]], [1.0, 0.0, 2.0], (4, 4))
    assert BSR.from_torch(t, 2, drop_zero_blocks=drop).nnzb == count


@pytest.mark.parametrize(("layout", "kept", "dropped"), [("bsr", 4, 2), ("csr", 16, 4)])
def test_zeros_of_the_result_are_kept_or_dropped_as_asked(layout, kept, dropped):
    A = BSR.from_dense(torch.eye(4), 2, drop_zero_blocks=False)
    counts = [A.to_torch(layout, drop_zeros=drop)._nnz() for drop in (False, True)]
    assert counts == [kept, dropped]


def test_zero_blocks_are_judged_by_what_lies_inside():
    A = BSR.from_dense(torch.zeros(3, 3), 2, drop_zero_blocks=False)
    A.values[-1, 1, 1] = 1.0  # beyond the edge
    assert drop_zero_blocks(A).nnzb == 0


@pytest.mark.parametrize("layout", ["bsr", "bsc", "csr", "csc", "coo", "strided"])
@pytest.mark.parametrize("blocksize", [1, 4])
def test_no_memory_is_shared(layout, blocksize):
    A = BSR.random(8, 8, blocksize=blocksize, density=0.5, seed=0)
    t = A.to_torch(layout)
    back = BSR.from_torch(t, blocksize)
    before = back.values.clone()
    A.values.zero_()
    assert torch.equal(BSR.from_torch(t, blocksize).values, before)


def test_integers_convert_too():
    t = torch.eye(4, dtype=torch.int64).to_sparse_csr()
    A = BSR.from_torch(t, 2)
    assert A.dtype == torch.int64 and torch.equal(A.to_torch("csr").to_dense(), t.to_dense())
