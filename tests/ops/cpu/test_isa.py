"""The instruction set: what the processor has, what the user forces, what is refused."""

import os
import subprocess
import sys

import pytest

from sparsetile.ops.cpu import _isa

ORDER = ("avx2", "avx512", "avx512bf16", "amx")
EVERY = {feature for needs in _isa._NEEDS.values() for feature in needs}


@pytest.fixture
def processor(monkeypatch):
    """Pretends that the processor can do these instruction sets."""

    def pretend(*able):
        monkeypatch.setattr(_isa, "supported", lambda: able)
        _isa.host.cache_clear()

    monkeypatch.delenv(_isa.VARIABLE, raising=False)
    yield pretend
    _isa.host.cache_clear()


@pytest.mark.parametrize("count", range(5))
def test_a_level_needs_its_features_and_those_before(count):
    features = {feature: True for name in ORDER[:count] for feature in _isa._NEEDS[name]}
    assert _isa.levels(features) == ORDER[:count]


@pytest.mark.parametrize("missing", sorted(EVERY))
def test_each_feature_is_needed(missing):
    owner = next(name for name in ORDER if missing in _isa._NEEDS[name])
    able = _isa.levels({feature: feature != missing for feature in EVERY})
    assert able == ORDER[: ORDER.index(owner)]


def test_tiles_without_leave_of_the_system_are_not_used(monkeypatch):
    import llvmlite.binding as llvm

    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(EVERY, True))
    for leave, expected in ((True, ORDER), (False, ORDER[:-1])):
        monkeypatch.setattr(_isa, "_may_use_tiles", lambda leave=leave: leave)
        _isa.supported.cache_clear()
        assert _isa.supported() == expected
    _isa.supported.cache_clear()


def test_each_level_can_do_more_than_the_one_before():
    kinds = [_isa.LEVELS[name] for name in ORDER]
    assert [isa.lanes for isa in kinds] == [8, 16, 16, 16]
    assert [isa.registers for isa in kinds] == [16, 32, 32, 32]
    assert [isa.has_bf16_dot for isa in kinds] == [False, False, True, True]
    assert [isa.has_amx for isa in kinds] == [False, False, False, True]


def test_the_best_is_chosen_with_the_processor_itself(processor):
    import llvmlite.binding as llvm

    processor("avx2", "avx512")
    assert _isa.host().name == "avx512"
    assert _isa.host().cpu == llvm.get_host_cpu_name()
    assert _isa.host().features


def test_a_smaller_one_is_compiled_for_a_processor_that_has_no_more(processor, monkeypatch):
    processor("avx2", "avx512")
    monkeypatch.setenv(_isa.VARIABLE, "avx2")
    assert _isa.host() == _isa.LEVELS["avx2"]


def test_naming_the_best_changes_nothing(processor, monkeypatch):
    processor("avx2", "avx512")
    best = _isa.host()
    _isa.host.cache_clear()
    monkeypatch.setenv(_isa.VARIABLE, "avx512")
    assert _isa.host() == best


@pytest.mark.parametrize(
    ("name", "why"), [("amx", "cannot run"), ("neon", "cannot run"), ("sse", "is not known")]
)
def test_a_wrong_name_lists_the_choices(processor, monkeypatch, name, why):
    processor("avx2", "avx512")
    monkeypatch.setenv(_isa.VARIABLE, name)
    with pytest.raises(ValueError, match=f"SPARSETILE_ISA.*'{name}' {why}.*avx2, avx512, or unset"):
        _isa.host()


def test_a_processor_without_kernels_is_an_import_error(processor):
    processor()
    with pytest.raises(ImportError, match="AVX2"):
        _isa.host()


PRODUCT = """
import torch, sparsetile as st
p = st.random_pattern(64, 64, blocksize=16, density=0.5, seed=0)
st.linear(torch.ones(3, 64), torch.ones(p.nnzb, 16, 16), p)
from sparsetile.ops.cpu._isa import host
print(host().name, st.last_kernel())
"""


def product(isa):
    env = {**os.environ, _isa.VARIABLE: isa}
    return subprocess.run([sys.executable, "-c", PRODUCT], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("isa", _isa.supported())
def test_a_product_runs_with_every_instruction_set_of_this_processor(isa):
    assert product(isa).stdout.startswith(f"{isa} cpu:linear")


def test_a_wrong_name_stops_the_first_product():
    done = product("nonsense")
    assert done.returncode == 1
    assert "ValueError: SPARSETILE_ISA: the instruction set 'nonsense' is not known" in done.stderr
