import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsetile.matrix import BSR, COO, CSC, CSR, Pattern
from support import SHAPES, dense64, some_pattern, some_values, without_type_checks

FORMATS = (CSR, CSC, COO)
BLOCKS = ((1, 1), (2, 2), (4, 4), (2, 3))
DTYPES = (torch.float16, torch.float32, torch.float64, torch.int64)
WHOLE = [kind for kind in SHAPES if not some_pattern(kind).ragged]
rooms = settings(max_examples=12, deadline=None)


cases = st.tuples(
    st.sampled_from(BLOCKS),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(DTYPES),
    st.integers(0, 2**16),
)


def matrix_of(case):
    """A matrix of whole blocks, zeros among its values, some rows of blocks empty."""
    (r, c), (mb, kb), density, dtype, seed = case
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(mb, kb, generator=generator) < density
    crow = [0, *mask.sum(1).cumsum(0).tolist()]
    values = torch.randint(-3, 4, (int(mask.sum()), r, c), generator=generator).to(dtype)
    return BSR(values, Pattern((mb * r, kb * c), (r, c), crow, mask.nonzero()[:, 1]))


def same(A, B):
    return A.pattern == B.pattern and A.dtype == B.dtype and torch.equal(A.values, B.values)


def arrays_of(stored):
    """The arrays of a format by name."""
    return {n: v for n, v in vars(stored).items() if isinstance(v, np.ndarray)}


def dense_of(stored):
    """The matrix in dense float64, straight from the arrays of a format, block by block."""
    (m, k), (r, c) = stored.shape, stored.blocksize
    blocks = stored.values.reshape(-1, r, c)
    if isinstance(stored, COO):
        places = list(zip(stored.row_indices, stored.col_indices, strict=True))
    elif isinstance(stored, CSR):
        counts = np.diff(stored.crow_indices) // (r * c)
        places = list(zip(np.arange(0, m, r).repeat(counts), stored.col_indices, strict=True))
    else:
        counts = np.diff(stored.ccol_indices) // (r * c)
        places = list(zip(stored.row_indices, np.arange(0, k, c).repeat(counts), strict=True))
    dense = np.zeros((m, k))
    for (i, j), block in zip(places, blocks, strict=True):
        dense[i : i + r, j : j + c] = block
    return dense


@pytest.mark.parametrize("format", FORMATS)
@rooms
@given(case=cases)
def test_there_and_back_is_the_same_matrix(format, case):
    A = matrix_of(case)
    stored = format.from_bsr(A)
    assert (stored.shape, stored.blocksize, stored.nnzb) == (A.shape, A.blocksize, A.nnzb)
    assert np.array_equal(dense_of(stored), dense64(A.values, A.pattern).numpy())
    assert same(stored.to_bsr(), A)


@pytest.mark.parametrize("format", FORMATS)
@rooms
@given(case=cases, seed=st.integers(0, 99))
def test_blocks_in_any_order_are_sorted(format, case, seed):
    A = matrix_of(case)
    stored = format.from_bsr(A)
    order = np.random.default_rng(seed).permutation(A.nnzb)
    if format is not COO:
        # Shuffled within rows, or within columns, only.
        offsets = stored.crow_indices if format is CSR else stored.ccol_indices
        each = np.diff(offsets) // (A.blocksize[0] * A.blocksize[1])
        order = order[np.argsort(np.arange(len(each)).repeat(each)[order], kind="stable")]
    parts = dict(arrays_of(stored))
    parts["values"] = stored.values.reshape(-1, np.prod(A.blocksize))[order].reshape(-1)
    for name in {"col_indices", "row_indices"} & set(parts):
        parts[name] = parts[name][order]
    shuffled = format(A.shape, A.blocksize, **parts)
    for name, array in arrays_of(stored).items():
        assert np.array_equal(arrays_of(shuffled)[name], array), name
    assert same(shuffled.to_bsr(), A)


@pytest.mark.parametrize("format", FORMATS)
@rooms
@given(case=cases)
def test_transpose_is_the_transpose(format, case):
    A = matrix_of(case)
    stored = format.from_bsr(A).T
    assert isinstance(stored, format) and stored.blocksize == A.blocksize[::-1]
    assert np.array_equal(dense_of(stored), dense64(A.values, A.pattern).numpy().T)


@pytest.mark.parametrize("format", FORMATS)
@rooms
@given(case=cases, shrink=st.sampled_from([1, (2, 1), (1, 3)]))
def test_smaller_blocks_hold_the_same_values(format, case, shrink):
    A = matrix_of(case)
    r, c = (shrink, shrink) if shrink == 1 else shrink
    if A.blocksize[0] % r or A.blocksize[1] % c:
        r, c = 1, 1
    stored = format.from_bsr(A)
    small = stored.reblock((r, c))
    assert small.blocksize == (r, c) and len(small.values) == len(stored.values)
    assert np.array_equal(dense_of(small), dense_of(stored))
    assert same(small.reblock(A.blocksize).to_bsr(), A)


@pytest.mark.parametrize("format", FORMATS)
def test_larger_blocks_are_filled_with_zeros(format):
    A = BSR.random(24, 24, blocksize=2, density=0.2, seed=0)
    large = format.from_bsr(A).reblock((4, 6))
    assert large.blocksize == (4, 6) and len(large.values) > A.values.numel()
    assert np.array_equal(dense_of(large), dense64(A.values, A.pattern).numpy())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("kind", WHOLE)
def test_every_whole_shape_round_trips(format, kind):
    pattern = some_pattern(kind)
    A = BSR(some_values(pattern), pattern)
    assert same(format.from_bsr(A).to_bsr(), A)


@pytest.mark.parametrize("format", FORMATS)
def test_ragged_blocks_are_refused_and_single_elements_are_not(format):
    A = BSR.from_dense(torch.arange(1.0, 16).reshape(3, 5), 2)
    with pytest.raises(ValueError, match=r"3×5; allowed: .*divide the shape"):
        format.from_bsr(A)
    assert np.array_equal(dense_of(format.from_bsr(A, blocksize=1)), A.to_dense().numpy())


@pytest.mark.parametrize("format", FORMATS)
def test_arrays_are_not_shared_and_gradients_no_obstacle(format):
    A = BSR.from_dense(torch.eye(4), 2).requires_grad_()
    stored = format.from_bsr(A)
    back, twice = stored.to_bsr(), format(stored.shape, stored.blocksize, **arrays_of(stored))
    for array in arrays_of(stored).values():
        array[:] = 9
    assert torch.equal(A.to_dense(), torch.eye(4)) and torch.equal(back.to_dense(), torch.eye(4))
    assert np.array_equal(dense_of(twice), np.eye(4))


def test_what_popsparse_holds_for_a_small_matrix():
    dense = torch.zeros(4, 6)
    dense[0:2, 3:6] = torch.arange(1.0, 7).reshape(2, 3)
    dense[2:4, 0:3] = torch.arange(11.0, 17).reshape(2, 3)
    dense[2:4, 3:6] = torch.arange(21.0, 27).reshape(2, 3)
    A = BSR.from_dense(dense, (2, 3))
    csr, csc, coo = (format.from_bsr(A) for format in FORMATS)
    one, two, three = ([*range(start, start + 6)] for start in (1, 11, 21))
    assert csr.crow_indices.tolist() == [0, 6, 18] and csr.col_indices.tolist() == [3, 0, 3]
    assert csr.values.tolist() == coo.values.tolist() == one + two + three
    assert csc.ccol_indices.tolist() == [0, 6, 18] and csc.row_indices.tolist() == [2, 0, 2]
    assert csc.values.tolist() == two + one + three
    assert coo.row_indices.tolist() == [0, 2, 2] and coo.col_indices.tolist() == [3, 0, 3]


def test_lists_tensors_and_views_are_taken():
    columns = np.array([9, 2, 9, 0, 9])[3:0:-2]
    columns.flags.writeable = False
    for index in ([0, 2], torch.tensor([0, 2], dtype=torch.int32), columns, range(0, 3, 2)):
        A = CSR((1, 4), 1, [0, 2], index, torch.ones(2, requires_grad=True))
        assert A.col_indices.tolist() == [0, 2] and A.values.dtype == np.float32


def test_repr_says_what_it_is():
    assert repr(COO((4, 6), (2, 3), [], [], [])) == "COO(4×6, blocksize=2×3, 0 blocks, float64)"


FOUR = [1.0, 2.0, 3.0, 4.0]


def csr(shape=(4, 4), blocksize=2, crow=(0, 4, 4), col=(2,), values=FOUR):
    return CSR(shape, blocksize, list(crow), list(col), values)


def csc(shape=(4, 4), blocksize=2, ccol=(0, 4, 4), row=(2,), values=FOUR):
    return CSC(shape, blocksize, list(ccol), list(row), values)


def coo(shape=(4, 4), blocksize=2, row=(2,), col=(0,), values=FOUR):
    return COO(shape, blocksize, list(row), list(col), values)


# What is called, the error, and words its message must hold.
BAD = {
    "rows not whole": (lambda: csr(shape=(5, 4)), ValueError, ["5 rows", "multiples of the block"]),
    "columns not whole": (lambda: coo(shape=(4, 5)), ValueError, ["5 columns in blocks of 2"]),
    "csc columns by their side": (
        lambda: csc((4, 4), (2, 3)),
        ValueError,
        ["4 columns in blocks of 3"],
    ),
    "shape a number": (lambda: csr(shape=4), TypeError, ["shape", "(rows, columns)"]),
    "blocksize zero": (lambda: coo(blocksize=0), ValueError, ["blocksize", "at least 1"]),
    "shape huge": (lambda: coo((2**40, 4), 1), ValueError, ["shape", "int32"]),
    "values cut": (lambda: csr(values=FOUR[:3]), ValueError, ["3 values", "multiple of 4"]),
    "values square": (lambda: csr(values=[FOUR]), ValueError, ["[1, 4]", "one dimension"]),
    "values a number": (lambda: csr(values=4.0), TypeError, ["values", "4.0", "one dimension"]),
    "values words": (lambda: csr(values=list("abcd")), TypeError, ["values", "'a'", "dtype"]),
    "values none": (lambda: csr(values=None), TypeError, ["values", "None", "numbers"]),
    "values jagged": (lambda: csr(values=[[1.0], [2.0, 3.0]]), TypeError, ["values", "numbers"]),
    "values long double": (
        lambda: csr(values=np.ones(4, np.longdouble)),
        TypeError,
        ["values", "dtype that numpy and torch know"],
    ),
    "values bfloat16": (
        lambda: csr(values=torch.ones(4, dtype=torch.bfloat16)),
        TypeError,
        ["values", "bfloat16", "dtype that numpy"],
    ),
    "values meta": (
        lambda: csr(values=torch.ones(4, device="meta")),
        TypeError,
        ["values", "meta"],
    ),
    "values sparse": (lambda: csr(values=torch.ones(4).to_sparse()), TypeError, ["sparse_coo"]),
    "offsets too few": (lambda: csr(crow=(0, 4)), ValueError, ["crow_indices", "2 offsets", "3"]),
    "offsets by elements": (lambda: csr(crow=(0, 0, 4, 4, 4)), ValueError, ["5 offsets", "3"]),
    "offsets of columns": (lambda: csc(ccol=(0, 4)), ValueError, ["ccol_indices", "block columns"]),
    "offsets from one": (lambda: csr(crow=(4, 4, 4)), ValueError, ["first offset of 4", "0"]),
    "offsets of blocks": (lambda: csr(crow=(0, 1, 1)), ValueError, ["last offset of 1", "4, the"]),
    "offsets fall": (lambda: csr(crow=(0, 8, 4)), ValueError, ["fall from 8 to 4", "row 1"]),
    "offsets fall in columns": (lambda: csc(ccol=(0, 8, 4)), ValueError, ["8 to 4", "column 1"]),
    "offsets within a block": (lambda: csr(crow=(0, 3, 4)), ValueError, ["offset 3", "of 4"]),
    "offsets floats": (lambda: csr(crow=(0.0, 4.0, 4.0)), TypeError, ["crow_indices", "integers"]),
    "indices floats": (lambda: coo(row=(0.5,)), TypeError, ["row_indices", "integers"]),
    "indices of blocks": (lambda: csr(col=(1,)), ValueError, ["column 1 ", "multiples of 2"]),
    "indices too large": (lambda: csr(col=(4,)), ValueError, ["column 4 for block 0", "0 to 2"]),
    "indices negative": (lambda: csc(row=(-2,)), ValueError, ["row -2 for block 0", "0 to 2"]),
    "indices too few": (lambda: csr(col=()), ValueError, ["0 indices beside 4 values", "1, one"]),
    "indices unequal": (
        lambda: coo(col=(0, 2)),
        ValueError,
        ["col_indices", "2 indices", "1, one"],
    ),
    "indices beyond int64": (lambda: coo(row=(2**70,)), TypeError, ["row_indices", "integers"]),
    "indices in nothing": (
        lambda: coo((0, 4), row=(0,)),
        ValueError,
        ["row 0", "none: there are no rows"],
    ),
    "csr duplicate": (
        lambda: csr(crow=(0, 12, 12), col=(2, 0, 2), values=FOUR * 3),
        ValueError,
        ["col_indices", "two blocks at row 0, column 2", "one block", "add them up"],
    ),
    "csc duplicate": (
        lambda: csc(ccol=(0, 0, 8), row=(2, 2), values=FOUR * 2),
        ValueError,
        ["row_indices", "two blocks at row 2, column 2"],
    ),
    "coo duplicate": (
        lambda: coo(row=(2, 0, 2), col=(0, 0, 0), values=FOUR * 3),
        ValueError,
        ["row_indices and col_indices", "two blocks at row 2, column 0"],
    ),
    "from bfloat16": (
        lambda: CSR.from_bsr(BSR.from_dense(torch.eye(2), 1).bfloat16()),
        TypeError,
        ["bfloat16", "A.float()"],
    ),
    "reblock astray": (lambda: csr().reblock(3), ValueError, ["blocks of 3×3", "divide the shape"]),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_arrays_are_explained(case):
    call, error, words = BAD[case]
    with without_type_checks(), pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "got" in text and "allowed: " in text
