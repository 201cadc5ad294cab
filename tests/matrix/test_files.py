import os

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import sparsetile.matrix._files as files
from sparsetile.matrix import BSR, Pattern, load, load_pattern, pattern_of, save
from support import SHAPES, some_pattern, some_values

BLOCKS = (1, 2, 4, (2, 3))
BANNER = "%%MatrixMarket matrix"


def put(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def same(A, B):
    return A.pattern == B.pattern and torch.equal(A.values, B.values)


def stored_zeros(kind, dtype=torch.float32):
    """A matrix of one of the awkward shapes, every third of its values a stored zero."""
    pattern = some_pattern(kind)
    values = some_values(pattern, dtype)
    values.view(-1)[::3] = 0
    return BSR(values, pattern)


# There and back


@pytest.mark.parametrize("kind", SHAPES)
def test_matrix_market_gives_the_matrix_back(kind, tmp_path):
    A = stored_zeros(kind)
    save(A, tmp_path / "a.mtx")
    assert same(load(tmp_path / "a.mtx", A.blocksize).float(), A)
    assert load_pattern(tmp_path / "a.mtx", A.blocksize) == A.pattern


@pytest.mark.parametrize("suffix", [".mtx", ".smtx"])
@pytest.mark.parametrize("kind", SHAPES)
def test_a_pattern_comes_back(kind, suffix, tmp_path):
    pattern = some_pattern(kind)
    path = tmp_path / f"p{suffix}"
    save(pattern, path)
    assert load_pattern(path, pattern.blocksize) == pattern
    assert load_pattern(path) == pattern_of(pattern.to_mask(), 1)
    if suffix == ".mtx":
        assert torch.equal(load(path).to_dense(), pattern.to_mask().double())


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    blocksize=st.sampled_from(BLOCKS),
    seed=st.integers(0, 2**16),
    suffix=st.sampled_from([".mtx", ".smtx"]),
)
def test_random_elements_are_gathered_into_blocks(shape, blocksize, seed, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / f"p{suffix}"
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.2
    save(pattern_of(mask, 1), path)
    assert load_pattern(path, blocksize) == pattern_of(mask, blocksize)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8]
)
def test_values_of_every_type_come_back_bit_for_bit(dtype, tmp_path):
    A = stored_zeros("ragged_both", dtype)
    if dtype.is_floating_point:
        A.values[0, 0, 0], A.values[1, 0, 0] = 1 / 3, torch.finfo(dtype).tiny
    else:
        A.values[0, 0, 0] = torch.iinfo(dtype).max
    save(A.requires_grad_() if dtype == torch.float32 else A, tmp_path / "a.mtx")
    back = load(tmp_path / "a.mtx", A.blocksize)
    assert back.dtype == (torch.float64 if dtype.is_floating_point else torch.int64)
    assert same(back.to(dtype), A.detach())


def test_infinite_and_undefined_values_come_back(tmp_path):
    A = BSR.from_dense(torch.tensor([[float("inf"), -float("inf"), float("nan")]]), 1)
    save(A, tmp_path / "a.mtx")
    back = load(tmp_path / "a.mtx").to_dense().float()
    assert torch.equal(back.nan_to_num(nan=7.0), A.to_dense().nan_to_num(nan=7.0))


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo", "dia"])
@pytest.mark.parametrize("blocksize", BLOCKS)
def test_what_scipy_saves_is_read(kind, blocksize, tmp_path):
    dense = np.zeros((8, 12))
    dense[2, 3:6], dense[7, 11] = (1, 2, 3), 4
    sparse.save_npz(tmp_path / "a.npz", sparse.coo_array(dense).asformat(kind))
    assert np.array_equal(load(tmp_path / "a.npz", blocksize).to_dense().numpy(), dense)
    # scipy's blocks and diagonals store zeros as well.
    assert (
        ~pattern_of(torch.from_numpy(dense) != 0, blocksize).to_mask()
        | load_pattern(tmp_path / "a.npz", blocksize).to_mask()
    ).all()


# What other tools write


KINDS = {
    "real": ("coordinate real general", "2 3 2\n1 3 1.5\n2 1 -2e-1", [[0, 0, 1.5], [-0.2, 0, 0]]),
    "double": ("coordinate double general", "1 1 1\n1 1 7", [[7]]),
    "integer": ("coordinate integer general", "1 2 2\n1 2 -7\n1 1 +3\n", [[3, -7]]),
    "pattern": ("coordinate pattern general", "2 2 1\n1 2\n", [[0, 1], [0, 0]]),
    "symmetric": ("coordinate real symmetric", "2 2 2\n1 1 5\n2 1 3\n", [[5, 3], [3, 0]]),
    "pattern symmetric": ("coordinate pattern symmetric", "2 2 1\n2 1\n", [[0, 1], [1, 0]]),
    "skew": ("coordinate integer skew-symmetric", "2 2 1\n2 1 3\n", [[0, -3], [3, 0]]),
    "array": ("array real general", "2 2\n1\n2\n0\n4\n", [[1, 0], [2, 4]]),
    "array integer": ("array integer general", "1 2\n1\n2", [[1, 2]]),
    "array symmetric": ("array real symmetric", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
    "array skew": ("array real skew-symmetric", "2 2\n2\n", [[0, -2], [2, 0]]),
    "array without rows": ("array real general", "0 3\n", np.zeros((0, 3))),
    "array without columns": ("array real general", "3 0\n", np.zeros((3, 0))),
    "nothing stored": ("coordinate real general", "2 0 0\n", np.zeros((2, 0))),
    "loud": ("COORDINATE Real GENERAL", "1 1 1\n1 1 7\n", [[7]]),
    "upper triangle": ("coordinate real symmetric", "2 2 1\n1 2 3\n", [[0, 3], [3, 0]]),
    "comments": ("coordinate real general", "% 1.5\n%\n\n1 1 1\n\n1 1 7\n\n", [[7]]),
    "comments on integers": ("coordinate integer general", "% v1.5\n1 1 1\n1 1 7\n", [[7]]),
    "returns": ("coordinate real general\r", "1 1 1\r\n1 1 7\r\n", [[7]]),
    "duplicates": ("coordinate real general", "1 1 2\n1 1 7\n1 1 2\n", [[9]]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocksize", BLOCKS)
def test_every_kind_of_matrix_market_is_read(kind, blocksize, tmp_path):
    banner, body, dense = KINDS[kind]
    path = put(tmp_path, "a.mtx", f"{BANNER} {banner}\n{body}")
    want = torch.as_tensor(np.array(dense, dtype=np.float64))
    A = load(path, blocksize)
    assert torch.equal(A.to_dense().double(), want)
    assert load_pattern(path, blocksize) == pattern_of(want != 0, blocksize) == A.pattern
    assert A.dtype == (torch.int64 if "integer" in banner else torch.float64)


def test_explicit_zeros_count_as_stored(tmp_path):
    path = put(tmp_path, "a.mtx", f"{BANNER} coordinate real general\n2 2 2\n1 1 0\n2 2 0.0\n")
    assert load_pattern(path).nnzb == load(path).nnzb == 2


@pytest.mark.parametrize(
    "text",
    [
        "2, 3, 3\n0 1 3\n2 0 1\n",
        "2,3,3\n0 1 3\n2 0 1",
        "2 3 3 \r\n0 1 3 \r\n2 1 0\r\n\r\n",
        "2, 3, 3\n0, 1, 3\n2, 0, 1\n",
    ],
)
def test_smtx_may_be_spaced_in_any_way(text, tmp_path):
    pattern = load_pattern(put(tmp_path, "A.SMTX", text))
    assert pattern == Pattern((2, 3), 1, [0, 1, 3], [2, 0, 1])


@pytest.mark.parametrize("text", ["2, 3, 0\n0 0 0\n\n", "2, 3, 0\n0 0 0"])
def test_smtx_without_elements_has_no_third_line(text, tmp_path):
    assert load_pattern(put(tmp_path, "a.smtx", text)).nnzb == 0


# Writing


@pytest.mark.parametrize("suffix", [".mtx", ".smtx"])
def test_a_file_that_cannot_be_written_stays_as_it_was(suffix, tmp_path, monkeypatch):
    path = put(tmp_path, f"a{suffix}", "before")

    def fail(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        save(some_pattern("square"), path)
    assert path.read_text() == "before" and os.listdir(tmp_path) == [path.name]


def test_a_matrix_that_has_no_text_leaves_nothing_behind(tmp_path):
    A = BSR(torch.ones(1, 1, 1, dtype=torch.complex64), Pattern((1, 1), 1, [0, 1], [0]))
    with pytest.raises(TypeError, match="complex64"):
        save(A, tmp_path / "a.mtx")
    assert os.listdir(tmp_path) == []


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "b.smtx").symlink_to(tmp_path / "a.smtx")
    save(some_pattern("square"), tmp_path / "b.smtx")
    assert (tmp_path / "b.smtx").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["a.smtx", "b.smtx"]
