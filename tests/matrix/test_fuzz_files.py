"""Files damaged at random, and files that claim much: an error that explains, and no memory."""

import gzip
import io
import pickle
import random
import resource
import struct
import tracemalloc
import zipfile
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from sparsetile.matrix import load, load_pattern
from support_files import whole_files

NUMBERS = (b"-1", b"0", b"99999999", b"9" * 18, b"9" * 40, b"nan", b"1e9", b"1.5", b"\xff", b"")
ROUNDS = 20


@contextmanager
def bounded(most=2**25):
    """No more memory than this, by Python's count and by the system's."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4 * most // 1024


def damaged(data, generator):
    """One of the ways in which files go wrong."""
    way, at = generator.randrange(6), generator.randrange(len(data))
    if way == 0:
        return data[:at]
    if way == 1:
        flipped = bytearray(data)
        for _ in range(generator.choice([1, 1, 3, 20])):
            flipped[generator.randrange(len(data))] = generator.randrange(256)
        return bytes(flipped)
    if way == 2:
        return data[:at] + data[at + generator.randrange(1, 30) :]
    if way == 3:
        return data[:at] + data[at : at + generator.randrange(1, 200)] + data[at:]
    if way == 4:
        return data[:at] + generator.choice(NUMBERS) + data[at:]
    wide = bytearray(data)
    wide[at : at + 8] = struct.pack("<q", generator.choice([-1, 2**31, 2**40, 2**62]))
    return bytes(wide)


def in_words(data, generator):
    """A number of a text replaced by another."""
    words = data.split(b" ")
    words[generator.randrange(len(words))] = generator.choice(NUMBERS)
    return b" ".join(words)


@pytest.mark.parametrize("kind", range(14))
def test_a_damaged_file_is_read_or_explained(kind, tmp_path):
    _, files = whole_files(tmp_path)
    assert len(files) == 14
    (suffix, _), data = sorted(files.items())[kind]
    path, generator, refused = tmp_path / f"a{suffix}", random.Random(kind), 0
    with bounded():
        for turn in range(ROUNDS):
            text = suffix in (".mtx", ".smtx")
            bad = (in_words if text and turn % 2 else damaged)(data, generator)
            if suffix.endswith(".gz") and turn % 2:
                bad = gzip.compress(damaged(gzip.decompress(data), generator))
            path.write_bytes(bad)
            for read in (load, load_pattern):
                try:
                    read(path, generator.choice([None, 1, 4, (3, 2)]))
                except ValueError as error:
                    # Nothing else is raised; every error names the file and has its four parts.
                    refused += 1
                    assert str(path) in str(error) and "; allowed: " in str(error), error
    assert refused > ROUNDS // 4
    # What failed has left nothing behind that the next file would trip over.
    path.write_bytes(data)
    load(path)


def npy(array, shape):
    """An array whose head claims another shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file,
        {
            "descr": array.dtype.str,
            "fortran_order": False,
            "shape": shape,
        },
    )
    return file.getvalue() + array.tobytes()


def archive(path, compression=zipfile.ZIP_DEFLATED, **arrays):
    with zipfile.ZipFile(path, "w", compression) as target:
        for name, data in arrays.items():
            target.writestr(f"{name}.npy", data)


def array(values):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(values))
    return file.getvalue()


def test_an_archive_that_claims_much_takes_no_memory(tmp_path):
    path = tmp_path / "a.npz"
    good = {
        "format": array(b"coo"),
        "shape": array([3, 3]),
        "data": array([1.0]),
        "row": array([0]),
        "col": array([1]),
    }
    archive(path, **good)
    assert load(path).nnzb == 1
    claims = {
        "data": npy(np.ones(1), (10**10,)),
        "row": npy(np.zeros(1, np.int64), (10**11,)),
        "shape": array([2**31 - 10, 3]),
        "format": npy(np.zeros(0, "S0"), (10**9,)),
    }
    with bounded():
        for name, data in claims.items():
            archive(path, **(good | {name: data}))
            with pytest.raises(ValueError, match="; allowed: "):
                load(path)


def test_a_text_that_claims_much_takes_no_memory(tmp_path):
    head = "%%MatrixMarket matrix"
    texts = {
        "a.mtx": (
            f"{head} coordinate real general\n2000000000 2 1\n1 1 1\n",
            f"{head} coordinate real general\n2 2 999999999999999\n1 1 1\n",
            f"{head} array real general\n0 999999999999\n",
            f"{head} array real general\n999999999 999999999\n1\n",
            f"{head} array real general\n99999 0\n" + "1\n" * 9,
        ),
        "a.smtx": ("2000000000, 3, 1\n0 1\n0\n", "1, 3, 2000000000\n0 1\n0\n"),
    }
    with bounded():
        for name, each in texts.items():
            for text in each:
                for packed in (False, True):
                    path = tmp_path / (name + ".gz" * packed)
                    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
                    with pytest.raises(ValueError, match="; allowed: "):
                        load(path)


@pytest.mark.parametrize("fill", [b"\0", b"\n", b"1", b" ", b"1 1 1\n", b"% c\n"])
def test_a_gzip_bomb_is_stopped_by_what_it_holds(fill, tmp_path):
    # Twice what memory may grow by; lines that are dropped one by one take their time.
    comments = fill.startswith(b"%")
    length = 2**14 if comments else 2**25
    sizes = b"" if comments else b"9 9 3\n"
    head = b"%%MatrixMarket matrix coordinate real general\n" + sizes
    path = tmp_path / "a.mtx.gz"
    path.write_bytes(gzip.compress(head + fill * (length // len(fill)), 1))
    with bounded(2**24), pytest.raises(ValueError, match="; allowed: "):
        load(path)
    path = tmp_path / "a.smtx.gz"
    path.write_bytes(gzip.compress(b"2, 3, 1\n" + fill * (length // len(fill)), 1))
    with bounded(), pytest.raises(ValueError, match="; allowed: "):
        load(path)


class Opens:
    """A pickle that would run something."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return open, (self.target, "w")


def with_pickle(path, data):
    """A torch file with another pickle in it."""
    torch.save(torch.eye(2), path)
    with zipfile.ZipFile(path) as source:
        records = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w") as target:
        for name, content in records.items():
            target.writestr(name, data if name.endswith("data.pkl") else content)


def test_a_pickle_is_not_run_and_takes_no_memory(tmp_path):
    path = tmp_path / "a.pt"
    long = b"\x8a\x06" + struct.pack("<q", 2 * 10**12)[:6]
    pickles = {
        "opens": pickle.dumps(Opens(str(tmp_path / "mark")), protocol=2),
        "bytearray": b"\x80\x02cbuiltins\nbytearray\n" + long + b"\x85R.",
        "tensor": b"\x80\x02ctorch\nTensor\n" + long + b"\x85R.",
        "memo": b"\x80\x02K\x01r\xff\xff\xff\xff.",
        "claim": b"\x80\x05\x96" + struct.pack("<q", 2**50) + b".",
        "empty stack": b"\x80\x02\x85.",
        "nothing": b"",
    }
    with bounded():
        for data in pickles.values():
            with_pickle(path, data)
            with pytest.raises(ValueError, match="; allowed: "):
                load(path)
    assert not (tmp_path / "mark").exists()
