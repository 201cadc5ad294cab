"""Compiled kernels on disk: kept whole, ignored when damaged or foreign, shared by processes."""

import ctypes
import subprocess
import sys

import pytest

from sparsetile.ops.cpu import _jit
from sparsetile.ops.cpu._emit import Function, i64, module


def answer(number):
    """A module whose function stores a number."""
    f = Function("answer", [("out", "ptr")])
    f.store(i64(number), f.args[0], align=8)
    return module([f])


def call(address):
    out = ctypes.c_int64()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(ctypes.addressof(out))
    return out.value


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSETILE_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_compiled_code_is_kept_and_found_again(folder, monkeypatch):
    assert call(_jit.load(answer(7), ["answer"])["answer"]) == 7
    (file,) = folder.iterdir()
    assert file.suffix == ".o"
    monkeypatch.setattr(_jit, "_target_machine", no_compiler(_jit._target_machine))
    assert call(_jit.load(answer(7), ["answer"])["answer"]) == 7


def no_compiler(make):
    class Machine:
        def __init__(self, machine):
            self._machine = machine

        def emit_object(self, _):
            raise AssertionError("compiled again")

        def __getattr__(self, name):
            return getattr(self._machine, name)

    def machine(*args):
        real = make(*args)
        real.emit_object = Machine(real).emit_object
        return real

    return machine


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
    _jit.load(answer(8), ["answer"])
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert call(_jit.load(answer(8), ["answer"])["answer"]) == 8
    assert file.read_bytes() == whole


def test_code_of_another_kernel_under_this_name_is_not_run(folder):
    _jit.load(answer(1), ["answer"])
    (first,) = folder.iterdir()
    other = first.read_bytes()
    _jit.load(answer(2), ["answer"])
    (second,) = set(folder.iterdir()) - {first}
    second.write_bytes(other)
    assert call(_jit.load(answer(2), ["answer"])["answer"]) == 2


def test_no_folder_to_write_to_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPARSETILE_CACHE", str(tmp_path / "file" / "below"))
    assert call(_jit.load(answer(9), ["answer"])["answer"]) == 9


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


def test_the_folder_follows_the_platform(monkeypatch):
    monkeypatch.delenv("SPARSETILE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr(sys, "platform", "linux")
    assert str(_jit.cache_folder()) == "/somewhere/sparsetile"
