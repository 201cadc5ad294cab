import gzip
import io
import json
import struct
import zipfile

import numpy as np
import pytest
import torch
from scipy import sparse

import sparsetile
from sparsetile.matrix import BSR, Pattern, load, load_pattern, save
from support import SHAPES, some_pattern, some_values
from support_files import whole_files

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8)


def same(A, B):
    return A.pattern == B.pattern and A.dtype == B.dtype and torch.equal(A.values, B.values)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_own_files_give_the_same_matrix_back(kind, suffix, tmp_path):
    pattern = some_pattern(kind)
    path = tmp_path / f"a{suffix}"
    for dtype in DTYPES:
        A = BSR(some_values(pattern, dtype), pattern)
        save(A, path)
        assert same(load(path), A) and load_pattern(path) == pattern
        assert torch.equal(load(path, (2, 3)).to_dense(), A.to_dense())
    save(pattern, path)
    assert load_pattern(path) == pattern
    assert torch.equal(load(path).to_dense(), pattern.to_mask().double())


@pytest.mark.parametrize("kind", SHAPES)
def test_npz_gives_the_matrix_back(kind, tmp_path):
    pattern, path = some_pattern(kind), tmp_path / "a.npz"
    A = BSR(some_values(pattern), pattern)
    save(A, path)
    assert same(load(path, pattern.blocksize), A)
    assert sparse.load_npz(path).format == ("csr" if pattern.ragged else "bsr")
    if not pattern.ragged:
        assert load(path).blocksize == pattern.blocksize
    save(A.bfloat16(), path)
    assert same(load(path, pattern.blocksize), A.bfloat16().float())
    save(pattern, path)
    assert load_pattern(path, pattern.blocksize) == pattern


def test_every_layout_of_torch_is_read(tmp_path):
    A, files = whole_files(tmp_path)
    for (suffix, kind), data in files.items():
        path = tmp_path / f"b{suffix}"
        path.write_bytes(data)
        blocks = (4, 4) if kind in ("bsr", "bsc", "pattern") else None
        blocks = (4, 4) if kind == "own" and suffix in (".pt", ".npz", ".safetensors") else blocks
        assert load(path).blocksize == (blocks or (1, 1)), (suffix, kind)
        assert load_pattern(path, 4) == A.pattern, (suffix, kind)
        if kind != "pattern" and ".smtx" not in suffix:
            assert torch.equal(load(path, 4).to_dense().float(), A.to_dense()), (suffix, kind)


def test_packed_text_is_the_same_text_and_the_same_file_twice(tmp_path):
    pattern = some_pattern("ragged_both")
    for suffix in (".mtx", ".smtx"):
        save(pattern, tmp_path / f"a{suffix}")
        packed = []
        for name in ("b", "c"):
            save(pattern, tmp_path / f"{name}{suffix}.gz")
            packed.append((tmp_path / f"{name}{suffix}.gz").read_bytes())
        assert packed[0] == packed[1]
        assert gzip.decompress(packed[0]) == (tmp_path / f"a{suffix}").read_bytes()
        assert load_pattern(tmp_path / f"B{suffix}.gz".lower(), (5, 3)) == pattern


def test_a_text_of_many_pieces_is_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr("sparsetile.matrix._text.PIECE", 64)
    pattern = some_pattern("tall")
    A = BSR(some_values(pattern), pattern)
    for suffix in (".mtx", ".mtx.gz"):
        save(A, tmp_path / f"a{suffix}")
        assert same(load(tmp_path / f"a{suffix}", A.blocksize).float(), A)
    save(pattern, tmp_path / "a.smtx")
    assert load_pattern(tmp_path / "a.smtx", A.blocksize) == pattern
    lines = (tmp_path / "a.mtx").read_text().splitlines()
    at = len(lines) - 5
    lines[at] = "900 1 2.5"
    (tmp_path / "a.mtx").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"a.mtx, line {at + 1}: got row 900"):
        load(tmp_path / "a.mtx")
    lines[at] = "1 one 2.5"
    (tmp_path / "a.mtx").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"a.mtx, line {at + 1}: got '1 one 2.5'"):
        load(tmp_path / "a.mtx")


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_dense_text_of_any_symmetry_is_read_column_by_column(symmetry, n, tmp_path, monkeypatch):
    monkeypatch.setattr("sparsetile.matrix._text.PIECE", 8)
    w = np.arange(1.0, n * n + 1).reshape(n, n)
    if symmetry != "general":
        w = np.tril(w, -(symmetry != "symmetric")) + 0
        w = w + (1 if symmetry == "symmetric" else -1) * np.tril(w, -1).T
    stored = [
        w[i, j]
        for j in range(n)
        for i in range(n)
        if symmetry == "general" or i > j or (i == j and symmetry == "symmetric")
    ]
    text = "".join(f"{value}\n" for value in stored)
    (tmp_path / "a.mtx").write_text(f"%%MatrixMarket matrix array real {symmetry}\n{n} {n}\n{text}")
    assert np.array_equal(load(tmp_path / "a.mtx").to_dense().numpy(), w)


def test_safetensors_has_our_keys_and_says_its_version(tmp_path):
    A = BSR.random(8, 8, blocksize=4, density=0.5, seed=0)
    save(A, tmp_path / "a.safetensors")
    data = (tmp_path / "a.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8 : 8 + size])
    assert set(head) == {"__metadata__", "values", "crow_indices", "col_indices"}
    assert head["__metadata__"]["sparsetile_version"] == "1"
    assert head["__metadata__"]["shape"] == "[8, 8]"

    def refused(change, words):
        changed = json.loads(json.dumps(head))
        change(changed)
        text = json.dumps(changed).encode()
        (tmp_path / "b.safetensors").write_bytes(
            struct.pack("<Q", len(text)) + text + data[8 + size :]
        )
        with pytest.raises(ValueError, match=words):
            load(tmp_path / "b.safetensors")

    meta = "__metadata__"
    refused(lambda h: h[meta].update(sparsetile_version="2"), "version 2; allowed.*install a newer")
    refused(lambda h: h[meta].update(sparsetile_version="x"), "'x'; allowed")
    refused(lambda h: h[meta].update(shape="[8]"), "as shape; allowed")
    refused(lambda h: h[meta].update(shape="[99999999, 8]"), "crow_indices.*allowed")
    refused(lambda h: h[meta].update(blocksize="[0, 4]"), "blocksize.*at least 1")
    refused(lambda h: h[meta].update(blocksize="[4, 2]"), "do not fit.*allowed")
    refused(lambda h: h.pop(meta), "no sparsetile_version.*read_checkpoint")
    refused(lambda h: h.update(w=h.pop("values")), "keys.*w.*read_checkpoint")
    refused(lambda h: h["values"].update(shape=[10**9, 4, 4]), "safetensors refuses")


def test_values_are_written_alone_and_without_gradient(tmp_path):
    wide = torch.randn(1000, 4, 4)
    A = BSR(wide[:2].requires_grad_(), Pattern((8, 8), 4, [0, 1, 2], [0, 1]))
    save(A, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 8000
    assert not load(tmp_path / "a.pt").requires_grad


def test_the_door_is_at_the_front():
    assert sparsetile.load is load and sparsetile.save is save


def test_an_archive_of_other_things_names_what_to_do(tmp_path):
    for content, words in {
        "state": ({"w": torch.ones(2)}, "got a dict.*read_checkpoint"),
        "list": ([torch.ones(2)], "got a list.*read_checkpoint"),
        "module": (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear.*read_checkpoint"),
        "vector": (torch.ones(2), "1 dimensions"),
        "repeated": (torch.ones(1, 1).expand(10**6, 10**6), "1000000000000 values over 1"),
        "words": (torch.ones(2, 2, dtype=torch.float8_e5m2), "refuses|object"),
    }.values():
        torch.save(content, tmp_path / "a.pt")
        with pytest.raises(ValueError, match=f"{words}.*") as caught:
            load(tmp_path / "a.pt")
        assert "; allowed: " in str(caught.value)
    old = io.BytesIO()
    torch.save(torch.ones(2, 2), old, _use_new_zipfile_serialization=False)
    (tmp_path / "a.pt").write_bytes(old.getvalue())
    with pytest.raises(ValueError, match=r"not a zip file.*save it again"):
        load(tmp_path / "a.pt")


def test_packed_or_doubled_records_are_refused(tmp_path):
    torch.save(torch.eye(2).to_sparse_coo(), tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as source:
        records = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in records.items():
            target.writestr(name, data)
    with pytest.raises(ValueError, match="packed records"):
        load(tmp_path / "b.pt")
