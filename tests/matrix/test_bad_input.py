import numpy as np
import pytest
import torch

from sparsetile.matrix import (
    BSR,
    Pattern,
    banded_pattern,
    block_diagonal_pattern,
    causal_pattern,
    gather_blocks,
    pattern_from_dense,
    pattern_of,
    random_pattern,
    scatter_blocks,
    spy,
    spy_svg,
)
from support import without_type_checks

NAN, HUGE = float("nan"), 2**40
W = torch.ones(4, 4)
P = Pattern((4, 4), 2, [0, 1, 2], [0, 1])
A = BSR(torch.ones(2, 2, 2), P)
RAGGED = BSR.from_dense(torch.ones(3, 3), 2)


def make(shape=(4, 4), blocksize=2, crow=(0, 1, 2), col=(0, 1)):
    return Pattern(shape, blocksize, np.array(crow), np.array(col))


def random(m=8, k=8, blocksize=2, density=0.5, seed=0, **more):
    return random_pattern(m, k, blocksize=blocksize, density=density, seed=seed, **more)


def torch_bsr(crow, col, size=(4, 4)):
    values = torch.ones(len(col), 2, 2)
    return torch.sparse_bsr_tensor(crow, col, values, size, check_invariants=False)


def coo(row, col):
    return torch.sparse_coo_tensor([row, col], [1.0], (4, 4), check_invariants=False)


def scipy_vector():
    return pytest.importorskip("scipy.sparse").coo_array([1.0, 0.0])


def scipy_long_double():
    return pytest.importorskip("scipy.sparse").csr_array(np.eye(2, dtype=np.longdouble))


# What is called, the error, and words its message must hold: the argument, what was given, what
# is allowed or what to do.
BAD = {
    # Pattern: sizes and block shape
    "shape negative": (lambda: make((-4, 4)), ValueError, ["shape[0]", "-4", "at least 0"]),
    "shape float": (lambda: make((4.0, 4)), TypeError, ["shape[0]", "4.0 (float)", "integer"]),
    "shape one number": (lambda: make(16), TypeError, ["shape", "16", "(rows, columns)"]),
    "shape three numbers": (lambda: make((4, 4, 4)), TypeError, ["shape", "(m, k)"]),
    "shape beyond int32": (lambda: make((HUGE, 4), 1), ValueError, ["shape", "larger blocks"]),
    "blocksize zero": (lambda: make(blocksize=0), ValueError, ["blocksize", "got 0", "at least 1"]),
    "blocksize negative": (lambda: make(blocksize=(2, -2)), ValueError, ["blocksize", "-2"]),
    "blocksize float": (lambda: make(blocksize=2.0), TypeError, ["blocksize", "2.0 (float)"]),
    "blocksize bool": (lambda: make(blocksize=True), TypeError, ["blocksize", "True (bool)"]),
    "blocksize string": (lambda: make(blocksize="22"), TypeError, ["blocksize", "'22' (str)"]),
    "blocksize triple": (lambda: make(blocksize=(2, 2, 2)), TypeError, ["pair (r, c)"]),
    # Pattern: indices
    "crow too short": (lambda: make(crow=(0, 2)), ValueError, ["crow_indices", "2 offsets", "3"]),
    "crow starts late": (lambda: make(crow=(1, 1, 2)), ValueError, ["first offset of 1", "0"]),
    "crow ends early": (lambda: make(crow=(0, 1, 1)), ValueError, ["last offset of 1", "2"]),
    "crow falls": (
        lambda: make((6, 4), crow=(0, 3, 2, 3), col=(0, 1, 1)),
        ValueError,
        ["crow_indices", "fall from 3 to 2 in block row 1", "never fall"],
    ),
    "crow bool": (lambda: make(crow=(False, True, True)), TypeError, ["crow_indices", "bool"]),
    "crow float": (lambda: make(crow=(0.0, 1.0, 2.0)), TypeError, ["crow_indices", "float64"]),
    "crow matrix": (lambda: make(crow=((0, 1, 2),)), ValueError, ["[1, 3]", "one dimension"]),
    "crow strings": (lambda: make(crow=("a", "b", "c")), TypeError, ["crow_indices", "integers"]),
    "crow meta": (
        lambda: Pattern((4, 4), 2, torch.zeros(3, dtype=torch.int32, device="meta"), [0]),
        ValueError,
        ["crow_indices", "on meta", "holds data"],
    ),
    "col meta": (
        lambda: Pattern((4, 4), 2, [0, 1, 1], torch.zeros(1, dtype=torch.int32, device="meta")),
        ValueError,
        ["col_indices", "on meta", "holds data"],
    ),
    "col sparse": (
        lambda: Pattern((4, 4), 2, [0, 1, 2], torch.tensor([0, 1]).to_sparse()),
        ValueError,
        ["col_indices", "sparse_coo", "dense"],
    ),
    "col too large": (lambda: make(col=(0, 2)), ValueError, ["block column 2", "0 to 1"]),
    "col negative": (lambda: make(col=(0, -1)), ValueError, ["block column -1 in block row 1"]),
    "col beyond int32": (lambda: make(col=(0, 2**32)), ValueError, ["4294967296", "0 to 1"]),
    "col unsorted": (
        lambda: make(crow=(0, 0, 2), col=(1, 0)),
        ValueError,
        ["unsorted", "1 before 0 in block row 1", "from_torch"],
    ),
    "col duplicate": (
        lambda: make(crow=(0, 2, 2), col=(1, 1)),
        ValueError,
        ["duplicate", "block column 1 twice in block row 0", "sum duplicates"],
    ),
    "col without columns": (lambda: make((4, 0), col=(0, 0)), ValueError, ["0 block columns"]),
    "pattern to meta": (lambda: P.to("meta"), ValueError, ["device", "meta", "cpu"]),
    "pattern to nowhere": (lambda: P.to("moon"), ValueError, ["device", "'moon'", "cpu"]),
    # Generators
    "m negative": (lambda: random(m=-1), ValueError, ["m: got -1", "at least 0"]),
    "k tensor": (lambda: random(k=torch.tensor(8)), TypeError, ["k: got", "an integer"]),
    "density NaN": (lambda: random(density=NAN), ValueError, ["density", "nan", "(0, 1]"]),
    "density zero": (lambda: random(density=0), ValueError, ["density: got 0.0", "(0, 1]"]),
    "density above one": (lambda: random(density=1.5), ValueError, ["density: got 1.5", "(0, 1]"]),
    "density negative": (lambda: random(density=-0.1), ValueError, ["density: got -0.1"]),
    "density text": (lambda: random(density="0.1"), TypeError, ["density", "'0.1' (str)"]),
    "density none": (lambda: random(density=None), TypeError, ["density", "None"]),
    "density bool": (lambda: random(density=True), TypeError, ["density", "True (bool)"]),
    "seed negative": (lambda: random(seed=-1), ValueError, ["seed: got -1", "at least 0"]),
    "seed none": (lambda: random(seed=None), TypeError, ["seed", "None", "seed=0"]),
    "device meta": (lambda: random(device="meta"), ValueError, ["device", "meta"]),
    "band negative": (
        lambda: banded_pattern(4, 4, blocksize=2, lower=-1, upper=0),
        ValueError,
        ["lower: got -1", "at least 0"],
    ),
    "diagonal float": (
        lambda: causal_pattern(4, 4, blocksize=2, diagonal=0.5),
        TypeError,
        ["diagonal", "0.5 (float)", "torch.tril"],
    ),
    "groups too many": (
        lambda: block_diagonal_pattern(4, 8, blocksize=2, groups=3),
        ValueError,
        ["groups: got 3", "at most 2"],
    ),
    "groups zero": (
        lambda: block_diagonal_pattern(4, 8, blocksize=2, groups=0),
        ValueError,
        ["groups: got 0", "1 to 2"],
    ),
    # Sizes beyond what can be counted or kept
    "m beyond int64": (lambda: random(m=2**70), ValueError, ["m: got", "71 bits", "at most"]),
    "shape beyond digits": (lambda: make((10**5000, 4)), ValueError, ["shape[0]", "bits"]),
    "blocksize beyond int32": (lambda: make(blocksize=2**31), ValueError, ["blocksize", "at most"]),
    "seed beyond 64 bits": (lambda: random(seed=2**64), ValueError, ["seed", "at most"]),
    "density beyond float": (lambda: random(density=10**400), ValueError, ["density", "float64"]),
    "density of huge digits": (lambda: random(density=10**5000), ValueError, ["density", "(0, 1]"]),
    "grid beyond int32": (
        lambda: random(2**31, 2**31, blocksize=1, density=1e-18),
        ValueError,
        ["shape", "2147483648×2147483648 blocks", "larger blocks"],
    ),
    "random blocks beyond int32": (
        lambda: random(2**20, 2**20, blocksize=1),
        ValueError,
        ["density", "549755813888 blocks", "larger blocks"],
    ),
    "causal blocks beyond int32": (
        lambda: causal_pattern(2**20, 2**20, blocksize=1),
        ValueError,
        ["shape", "549756338176 blocks", "larger blocks"],
    ),
    "causal grid beyond int32": (
        lambda: causal_pattern(HUGE, 4, blocksize=1),
        ValueError,
        ["shape", "larger blocks"],
    ),
    "diagonal beyond int64": (
        lambda: causal_pattern(4, 4, blocksize=2, diagonal=2**70),
        ValueError,
        ["diagonal", "at most"],
    ),
    "band beyond int64": (
        lambda: banded_pattern(4, 4, blocksize=2, lower=2**70, upper=2**70),
        ValueError,
        ["lower", "71 bits", "at most"],
    ),
    "groups in a grid beyond int32": (
        lambda: block_diagonal_pattern(HUGE, HUGE, blocksize=1, groups=1),
        ValueError,
        ["shape", "larger blocks"],
    ),
    # Devices this machine has not
    "device unknown": (lambda: random(device="nope"), ValueError, ["device", "'nope'", "cpu"]),
    "device missing": (lambda: random(device="xpu:99"), ValueError, ["device", "'xpu:99'"]),
    "device beyond counting": (lambda: random(device=2**70), ValueError, ["device", "cpu"]),
    "random device missing": (
        lambda: BSR.random(4, 4, blocksize=2, density=1.0, seed=0, device="xpu:99"),
        ValueError,
        ["device", "'xpu:99'", "this machine"],
    ),
    "to device missing": (lambda: A.to("xpu:99"), ValueError, ["device", "'xpu:99'"]),
    "to device unknown": (lambda: A.to(device="nope"), ValueError, ["device", "'nope'", "cpu"]),
    # Masks and dense matrices
    "mask float": (lambda: pattern_of(W, 2), TypeError, ["mask", "float32", "mask.to(torch.bool)"]),
    "mask vector": (lambda: pattern_of(W[0] > 0, 2), ValueError, ["mask", "[4]", "two dim"]),
    "mask list": (lambda: pattern_of([[True]], 2), TypeError, ["mask", "(list)", "as_tensor"]),
    "mask sparse": (lambda: pattern_of((W > 0).to_sparse(), 2), ValueError, ["mask", "strided"]),
    "mask meta": (lambda: pattern_of((W > 0).to("meta"), 2), ValueError, ["mask", "holds data"]),
    "w NaN": (lambda: pattern_from_dense(W * NAN, 2, 0.5), ValueError, ["w: got NaN", "(0, 0)"]),
    "score unknown": (
        lambda: pattern_from_dense(W, 2, 0.5, "l3"),
        ValueError,
        ["score", "'l3'", "l1, l2, max"],
    ),
    "gather other shape": (lambda: gather_blocks(W[:3], P), ValueError, ["w", "[3, 4]", "[4, 4]"]),
    "gather meta": (lambda: gather_blocks(W.to("meta"), P), ValueError, ["w", "on meta"]),
    "scatter other count": (
        lambda: scatter_blocks(torch.ones(3, 2, 2), P),
        ValueError,
        ["values", "[3, 2, 2]", "[2, 2, 2]", "4×4, blocksize=2"],
    ),
    # BSR
    "values list": (lambda: BSR([[1.0]], P), TypeError, ["values", "(list)", "[2, 2, 2]"]),
    "values flat": (lambda: BSR(torch.ones(8), P), ValueError, ["values", "[8]", "[2, 2, 2]"]),
    "values meta": (
        lambda: BSR(torch.ones(2, 2, 2, device="meta"), P),
        ValueError,
        ["values", "on meta", "pattern on cpu", "pattern.to(device)"],
    ),
    "values sparse": (
        lambda: BSR(torch.ones(2, 2, 2).to_sparse(), P),
        ValueError,
        ["values", "sparse_coo", "from_torch"],
    ),
    "pattern mask": (lambda: BSR(torch.ones(2, 2, 2), W > 0), TypeError, ["pattern", "Pattern"]),
    "to meta": (lambda: A.to("meta"), ValueError, ["device", "meta"]),
    "no blocksize": (lambda: BSR.from_dense(W), ValueError, ["blocksize", "None", "blocksize=16"]),
    "blocksize beside pattern": (
        lambda: BSR.from_dense(W, 4, pattern=P),
        ValueError,
        ["blocksize: got 4", "blocksize=2", "leave out"],
    ),
    "density beside pattern": (
        lambda: BSR.from_dense(W, density=0.5, pattern=P),
        ValueError,
        ["density", "0.5", "leave out"],
    ),
    "pattern is a string": (lambda: BSR.from_dense(W, pattern="x"), TypeError, ["pattern", "'x'"]),
    "random integers": (
        lambda: BSR.random(4, 4, blocksize=2, density=1.0, seed=0, dtype=torch.int32),
        TypeError,
        ["dtype", "torch.int32", "floating"],
    ),
    "random dtype is a letter": (
        lambda: BSR.random(4, 4, blocksize=2, density=1.0, seed=0, dtype="f"),
        TypeError,
        ["dtype", "'f' (str)", "torch.float32"],
    ),
    # Operators
    "A @ list": (lambda: A @ [1, 2, 3, 4], TypeError, ["A @ x", "(list)", "as_tensor"]),
    "A @ A": (lambda: A @ A, TypeError, ["A @ x", "BSR", "to_dense"]),
    "A @ longer": (lambda: A @ torch.ones(5, 2), ValueError, ["A @ x", "[5, 2]", "4 elements"]),
    "x @ A longer": (lambda: torch.ones(2, 5) @ A, ValueError, ["x @ A", "[2, 5]", "4 elements"]),
    "A @ scalar": (lambda: A @ torch.tensor(1.0), ValueError, ["A @ x", "[]", "4 elements"]),
    "A @ sparse": (lambda: A @ W.to_sparse(), ValueError, ["sparse_coo", "dense"]),
    "A + x": (lambda: torch.add(A, W), TypeError, ["torch.add", "BSR", "A.to_dense()"]),
    # Conversions
    "from_torch array": (lambda: BSR.from_torch(np.ones((2, 2))), TypeError, ["t", "as_tensor"]),
    "from_torch vector": (lambda: BSR.from_torch(W[0], 2), ValueError, ["t", "[4]", "two dim"]),
    "from_torch strided": (lambda: BSR.from_torch(W), ValueError, ["blocksize", "None"]),
    "from_torch meta": (lambda: BSR.from_torch(W.to("meta"), 2), ValueError, ["t", "on meta"]),
    "from_torch batched": (
        lambda: BSR.from_torch(torch.ones(2, 4, 4).to_sparse_csr()),
        ValueError,
        ["t", "[2, 4, 4]", "one matrix at a time"],
    ),
    "from_torch hybrid": (
        lambda: BSR.from_torch(torch.ones(2, 4, 4).to_sparse(2)),
        ValueError,
        ["t", "[2, 4, 4]"],
    ),
    "bsr column outside": (
        lambda: BSR.from_torch(torch_bsr([0, 1, 2], [0, 9])),
        ValueError,
        ["block column: got 9", "0 to 1"],
    ),
    "bsr offsets wrong": (
        lambda: BSR.from_torch(torch_bsr([0, 9, 2], [0, 1])),
        ValueError,
        ["crow_indices", "fall from 9 to 2"],
    ),
    "coo row outside": (lambda: BSR.from_torch(coo([7], [0])), ValueError, ["row: got 7", "3"]),
    "coo column outside": (lambda: BSR.from_torch(coo([0], [-1])), ValueError, ["column: got -1"]),
    "to_torch unknown": (lambda: A.to_torch("ell"), ValueError, ["layout", "'ell'", "bsr, bsc"]),
    "to_torch ragged": (lambda: RAGGED.to_torch("bsr"), ValueError, ["3×3", "multiples", "csr"]),
    "from_scipy tensor": (lambda: BSR.from_scipy(W), TypeError, ["s", "float32", "from_torch"]),
    "from_scipy vector": (lambda: BSR.from_scipy(scipy_vector()), ValueError, ["s", "1 dim"]),
    "from_scipy long double": (
        lambda: BSR.from_scipy(scipy_long_double()),
        TypeError,
        ["s", "values of dtype", "astype"],
    ),
    "to_scipy half": (lambda: A.half().to_scipy(), TypeError, ["float16", "A.float()"]),
    "to_scipy unknown": (lambda: A.to_scipy("ell"), ValueError, ["format", "'ell'", "bsr, csr"]),
    "to_scipy ragged": (lambda: RAGGED.to_scipy(), ValueError, ["3×3", "multiples", "csr"]),
    # Pictures
    "spy of a tensor": (lambda: spy(W), TypeError, ["A", "float32", "Pattern or a BSR"]),
    "svg without cells": (lambda: spy_svg(P, cells=0), ValueError, ["cells: got 0", "at least 1"]),
}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has what must be missing")
def test_cuda_where_there_is_none_is_a_bad_device():
    with pytest.raises(ValueError, match=r"device: got 'cuda' \(str\); allowed: .*this machine"):
        A.cuda()


@pytest.mark.parametrize("case", BAD)
def test_bad_call_names_argument_given_and_allowed(case):
    call, error, words = BAD[case]
    with without_type_checks(), pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "got" in text and "allowed: " in text
