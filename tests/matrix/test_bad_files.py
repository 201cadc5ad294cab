import io

import numpy as np
import pytest
import torch
from scipy import sparse

from sparsetile.matrix import BSR, Pattern, load, load_pattern, save
from support import some_pattern, without_type_checks

BANNER = "%%MatrixMarket matrix"


def put(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode())
    return path


def mtx(banner, body=""):
    return "a.mtx", f"{BANNER} {banner}\n{body}"


REAL = "coordinate real general"

# A file, and words of the message when it is read.
BAD = {
    "empty mtx": (("a.mtx", ""), ["line 1", "'nothing'", "%%matrixmarket"]),
    "not a mtx": (("a.mtx", "hello world\n"), ["line 1", "'hello'", "%%matrixmarket"]),
    "html": (("a.mtx", "<!DOCTYPE html>\n<html>"), ["line 1", "'<!doctype'"]),
    "vector": (
        ("a.mtx", f"{BANNER[:-6]}vector {REAL}\n"),
        ["line 1", "'vector'"],
    ),
    "complex": (mtx("coordinate complex general"), ["line 1", "'complex'", "real or double or"]),
    "hermitian": (mtx("coordinate real hermitian"), ["line 1", "'hermitian'", "skew-symmetric"]),
    "array pattern": (mtx("array pattern general"), ["line 1", "'pattern'", "real or double"]),
    "no sizes": (mtx(REAL, "% only\n"), ["line 3", "got ''", "rows, columns and number"]),
    "two sizes": (mtx(REAL, "2 2\n1 1 1\n"), ["line 2", "'2 2'", "rows, columns and number"]),
    "three sizes": (
        mtx("array real general", "2 2 2\n"),
        ["line 2", "'2 2 2'", "rows and"],
    ),
    "negative size": (mtx(REAL, "% c\n-2 2 0\n"), ["line 3", "'-2 2 0'", "from 0 up"]),
    "huge size": (mtx(REAL, "9" * 30 + " 2 0\n"), ["line 2", "999", "rows, columns"]),
    "many rows": (mtx(REAL, f"{2**40} 2 0\n"), [f"{2**40}×2", "67108864", "larger blocksize"]),
    "many columns": (mtx(REAL, f"2 {2**30} 0\n"), [f"2×{2**30}", "block columns"]),
    "many entries": (
        mtx(REAL, f"9 9 {10**15}\n1 1 1\n"),
        ["line 2", f"{10**15} entries"],
    ),
    "large array": (
        mtx("array real general", "99999 99999\n1\n"),
        ["line 2", "entries announced"],
    ),
    "cut": (
        mtx(REAL, "2 2 2\n1 1 1.00000\n"),
        ["1 entries", "2, as line 2 says"],
    ),
    "cut array": (
        mtx("array real general", "2 2\n1.0\n2.0\n3.0\n"),
        ["3 entries", "4, as line 2 says"],
    ),
    "too long": (mtx(REAL, "2 2 1\n1 1 1\n2 2 1\n"), ["more than 1", "1, as line 2 says"]),
    "row zero": (mtx(REAL, "2 2 1\n0 1 1\n"), ["row 0 in entry 1", "1 to 2"]),
    "row outside": (mtx(REAL, "2 2 1\n3 1 1\n"), ["row 3 in entry 1", "1 to 2"]),
    "column outside": (mtx(REAL, "2 2 1\n1 3 1\n"), ["column 3 in entry 1", "1 to 2"]),
    "words": (mtx(REAL, "2 2 1\n1 1 one\n"), ["line 3", "'1 1 one'", "row and column and a real"]),
    "no value": (mtx(REAL, "2 2 1\n1 1\n"), ["line 3", "'1 1'", "a real number"]),
    "not square": (mtx("coordinate real symmetric", "2 3 0\n"), ["line 2", "2×3", "symmetric"]),
    "decimals": (
        mtx("coordinate integer general", "1 1 1\n1 1 1.5\n"),
        ["line 3", "'1 1 1.5'", "a whole"],
    ),
    "large integer": (
        mtx("coordinate integer general", f"1 1 1\n1 1 {2**70}\n"),
        ["line 3", "1 1 1180", "a whole number"],
    ),
    "cut wildly": (mtx("coordinate pattern symmetric", "3 3 2\n1 1\n3 2e"), ["line 4", "'3 2e'"]),
    "cut in a comment": (mtx("array real skew-symmetric", "3 3\n1\n2\n3%"), ["line 5", "'3%'"]),
    "two in a line": (
        mtx("array real general", "2 1\n1 2\n"),
        ["line 3", "'1 2'", "a real"],
    ),
    "both triangles": (
        mtx("coordinate real symmetric", "2 2 2\n1 2 5\n2 1 5\n"),
        ["above and below", "symmetric", "one triangle"],
    ),
    "skew diagonal": (
        mtx("coordinate real skew-symmetric", "2 2 1\n1 1 5\n"),
        ["on the diagonal", "skew-symmetric"],
    ),
    "empty smtx": (("a.smtx", ""), ["line 1", "0 numbers", "rows, columns, non-zeros"]),
    "smtx of words": (("a.smtx", "rows, 3, 1\n0 1\n0"), ["line 1", "'rows'", "the sizes"]),
    "smtx of decimals": (("a.smtx", "1, 3, 1\n0 1.0\n0"), ["line 2", "'1.0'", "row offsets"]),
    "smtx negative": (("a.smtx", "1, 3, 1\n0 1\n-1"), ["line 3", "'-1'", "column indices"]),
    "smtx binary": (("a.smtx", "\0\u00ff"), ["line 1", r"\x00", "whole numbers"]),
    "smtx form feed": (("a.smtx", "1, 3, 1\n0 1\x0c\n0"), ["line 2", r"\x0c", "row offsets"]),
    "smtx two sizes": (("a.smtx", "1, 3\n0 1\n0"), ["line 1", "2 numbers", "three"]),
    "smtx cut": (("a.smtx", "2, 3, 2\n0 1"), ["line 2", "2 numbers", "3, as line 1 has 2 rows"]),
    "smtx cut later": (("a.smtx", "2, 3, 2\n0 1 2\n1"), ["line 3", "1 numbers", "2, as line 1"]),
    "smtx too long": (("a.smtx", "1, 3, 1\n0 1\n1\n1\n"), ["line 4", "three lines: sizes"]),
    "smtx offsets fall": (("a.smtx", "2, 3, 1\n0 2 1\n1"), ["fall from 2 to 1 in block row 1"]),
    "smtx last offset": (("a.smtx", "1, 3, 1\n0 2\n1"), ["last offset of 2", "1, the number"]),
    "smtx column outside": (("a.smtx", "1, 3, 1\n0 1\n3"), ["column 3", "0 to 2"]),
    "smtx duplicate": (("a.smtx", "1, 3, 2\n0 2\n1 1"), ["two blocks at row 0, column 1"]),
    "smtx huge": (("a.smtx", f"{10**30}, 3, 0\n0\n"), ["line 2", "1 numbers", "rows"]),
    "smtx wide": (("a.smtx", f"0, {10**30}, 0\n0\n"), ["shape[1]", "at most"]),
    "npz of text": (("a.npz", "hello"), ["scipy refuses", "save_npz"]),
    "npz empty": (("a.npz", ""), ["scipy refuses", "save_npz"]),
}


@pytest.mark.parametrize("case", BAD)
def test_a_damaged_file_is_explained(case, tmp_path):
    (name, text), words = BAD[case]
    path = put(tmp_path, name, text)
    with pytest.raises(ValueError, match=r"a.+: got .*; allowed: ") as caught:
        load_pattern(path)
    assert all(word in str(caught.value) for word in [str(path), *words]), str(caught.value)


def csr_of(indptr=(0, 1, 2), indices=(0, 1), data=(1.0, 1.0), shape=(2, 2)):
    return {"format": "csr", "shape": shape, "indptr": indptr, "indices": indices, "data": data}


BAD_NPZ = {
    "no format": ({"data": [1.0]}, "not contain a sparse"),
    "offsets far": (csr_of(indptr=(0, 10**9, 2)), "scipy refuses"),
    "index far": (csr_of(indices=(0, 10**9)), "scipy refuses"),
    "index negative": (csr_of(indices=(0, -5)), "scipy refuses"),
    "unknown": (csr_of() | {"format": "ell"}, "scipy refuses"),
    "complex": (csr_of(data=(1j, 1.0)), "complex128 values"),
    "long double": (csr_of(data=np.ones(2, np.longdouble)), "scipy refuses"),
}


@pytest.mark.parametrize("case", BAD_NPZ)
def test_a_damaged_archive_is_explained(case, tmp_path):
    arrays, words = BAD_NPZ[case]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=rf"{words}.*; allowed: .*save_npz"):
        load(tmp_path / "a.npz")


def test_an_archive_cut_anywhere_is_explained(tmp_path):
    whole = io.BytesIO()
    sparse.save_npz(whole, sparse.csr_array(np.eye(4)))
    data = whole.getvalue()
    for length in range(0, len(data), 97):
        (tmp_path / "a.npz").write_bytes(data[:length])
        with pytest.raises(ValueError, match="scipy refuses"):
            load_pattern(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".mtx", ".smtx"])
def test_a_text_cut_anywhere_is_read_as_something_or_explained(suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    save(some_pattern("unstructured"), path)
    data, refused = path.read_bytes(), 0
    # The last number may be cut in two: no reader can know.
    for length in range(0, len(data) - 4, 7):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match="; allowed: "):
            load_pattern(path)
        refused += 1
    assert refused > 20


HERE = Pattern((2, 2), 1, [0, 1, 2], [0, 1])
CALLS = {
    "missing": (lambda d: load(d / "b.mtx"), FileNotFoundError, ["b.mtx", "no such file"]),
    "folder": (lambda d: load_pattern(d / "d.mtx"), FileNotFoundError, ["d.mtx", "a folder"]),
    "number": (lambda d: load_pattern(3), TypeError, ["path", "3 (int)", "a string or a Path"]),
    "bytes": (lambda d: load_pattern(b"a.mtx"), TypeError, ["path", "b'a.mtx'", "string"]),
    "suffix": (
        lambda d: load_pattern(d / "a.mat"),
        ValueError,
        ["'.mat'", ".mtx, .mtx.gz", ".safetensors"],
    ),
    "packed": (lambda d: load(d / "a.npz.gz"), ValueError, ["'.npz.gz'", "unpack it first"]),
    "no suffix": (lambda d: load(d / "a"), ValueError, ["''", ".mtx, .mtx.gz"]),
    "blocksize": (lambda d: load(d / "a.mtx", 0), ValueError, ["blocksize", "at least 1"]),
    "write tensor": (
        lambda d: save(torch.eye(2), d / "a.mtx"),
        TypeError,
        ["A", "float32 tensor", "a BSR or a Pattern"],
    ),
    "write suffix": (lambda d: save(HERE, d / "a.pkl"), ValueError, ["'.pkl'", ".mtx, "]),
    "write values to smtx": (
        lambda d: save(BSR.from_dense(torch.eye(2), 1), d / "a.smtx"),
        ValueError,
        ["a BSR", "holds no values", "A.pattern"],
    ),
    "write nowhere": (
        lambda d: save(HERE, d / "no" / "a.mtx"),
        FileNotFoundError,
        ["no folder", "make it first"],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_bad_call_names_what_is_allowed(case, tmp_path):
    (tmp_path / "d.mtx").mkdir()
    call, error, words = CALLS[case]
    with without_type_checks(), pytest.raises(error) as caught:
        call(tmp_path)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "got " in text and "; allowed: " in text
