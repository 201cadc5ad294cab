"""Compiled kernels on disk: kept whole, ignored when damaged or foreign, shared by processes."""

import ctypes
import subprocess
import sys
from dataclasses import dataclass

import pytest

from sparsetile.ops.cpu import _isa, _jit
from sparsetile.ops.cpu._emit import Function, i64, module


@dataclass(frozen=True)
class Answer:
    """A kernel whose function stores a number."""

    number: int

    def ir(self):
        f = Function("answer", [("out", "ptr")])
        f.store(i64(self.number), f.args[0], align=8)
        return module([f])


def answer(number):
    """What the kernel says in a process that has not loaded it yet."""
    _jit._loaded.clear()
    return call(_jit.load(Answer(number), ["answer"])["answer"])


def call(address):
    out = ctypes.c_int64()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(out))
    return out.value


@pytest.fixture(autouse=True)
def _nothing_loaded():
    loaded = dict(_jit._loaded)
    yield
    _jit._loaded.clear()
    _jit._loaded.update(loaded)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSETILE_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_compiled_code_is_kept_and_found_again(folder, monkeypatch):
    assert answer(7) == 7
    (file,) = folder.iterdir()
    assert file.suffix == ".o"
    # neither written as IR nor compiled again
    monkeypatch.setattr(Answer, "ir", lambda self: pytest.fail("written again"))
    assert answer(7) == 7


def test_a_kernel_is_read_once_in_a_process(folder, monkeypatch):
    assert answer(7) == 7
    monkeypatch.setattr(_jit, "_object", lambda kernel: pytest.fail("read again"))
    assert call(_jit.load(Answer(7), ["answer"])["answer"]) == 7


@dataclass(frozen=True)
class Other(Answer):
    """Another kernel with the same fields."""


def test_what_decides_the_code_decides_the_key(monkeypatch):
    key = _jit._key(Answer(1))
    assert _jit._key(Answer(1)) == key
    others = [_jit._key(Answer(2)), _jit._key(Other(1))]
    monkeypatch.setattr(_jit, "host", lambda: _isa.LEVELS["avx2"])
    others.append(_jit._key(Answer(1)))
    monkeypatch.undo()
    monkeypatch.setattr(_jit, "_sources", lambda: "changed")
    others.append(_jit._key(Answer(1)))
    monkeypatch.undo()
    assert len({key, *others}) == 5
    assert _jit._key(Answer(1)) == key


def test_a_loaded_function_knows_its_kernel(folder):
    answer(1)
    address = _jit.load(Answer(2), ["answer"])["answer"]
    assert _jit.owner(address) == (Answer(2), "answer")
    with pytest.raises(KeyError):
        _jit.owner(1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        lambda data: b"\x7fELF" + data,
        lambda data: data.replace(b"sparsetile-object-1", b"sparsetile-object-0"),
    ],
    ids=["empty", "cut", "flipped", "foreign", "older"],
)
def test_a_damaged_or_foreign_file_is_rebuilt(folder, damage):
    answer(8)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert answer(8) == 8
    assert file.read_bytes() == whole


def test_code_of_another_kernel_under_this_name_is_not_run(folder):
    answer(1)
    (first,) = folder.iterdir()
    other = first.read_bytes()
    answer(2)
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(other)
    assert answer(2) == 2


def test_no_folder_to_write_to_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARSETILE_CACHE", str(tmp_path / "file" / "below"))
    assert answer(9) == 9


def test_two_processes_fill_one_folder_at_once(folder):
    script = (
        "import torch, sparsetile as st\n"
        "p = st.random_pattern(64, 64, blocksize=16, density=0.5, seed=0)\n"
        "v = torch.ones(p.nnzb, 16, 16)\n"
        "with st.backend('cpu'):\n"
        "    y = st.linear(torch.ones(3, 64), v, p)\n"
        "assert torch.equal(y, torch.ones(3, 64) @ st.scatter_blocks(v, p).T)\n"
    )
    runs = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [run.wait(120) for run in runs] == [0, 0, 0]
    assert {file.suffix for file in folder.iterdir()} == {".o"}


def test_another_process_finds_every_kernel_again(folder):
    script = (
        "import torch, sparsetile as st\n"
        "for b in (1, 4, 16):\n"
        "    p = st.random_pattern(64, 64, blocksize=b, density=0.5, seed=0)\n"
        "    v = torch.ones(p.nnzb, b, b, requires_grad=True)\n"
        "    with st.backend('cpu'):\n"
        "        st.linear(torch.ones(40, 64, requires_grad=True), v, p).sum().backward()\n"
    )

    def files():
        subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
        return {(file.name, file.stat().st_mtime_ns) for file in folder.iterdir()}

    assert files() == files()


def test_the_folder_follows_the_platform(monkeypatch):
    monkeypatch.delenv("SPARSETILE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr(sys, "platform", "linux")
    assert str(_jit.cache_folder()) == "/somewhere/sparsetile"
