"""A machine is described by figures that hold together."""

import dataclasses

import pytest

from sparsetile.machine import MachineSpec, preset, presets
from support import without_type_checks

BOW, MK2 = preset("bow-ipu"), preset("mk2-ipu")


@pytest.mark.parametrize(
    ("machine", "dtype", "published"),
    [(BOW, "float16", 350e12), (BOW, "float32", 87.5e12), (MK2, "float16", 250e12)],
    ids=["bow-float16", "bow-float32", "mk2-float16"],
)
def test_peak_is_the_published_one(machine, dtype, published):
    assert machine.peak(dtype) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(("machine", "published"), [(BOW, 11e12), (MK2, 8e12)])
def test_exchange_is_the_published_one(machine, published):
    assert machine.exchange_bandwidth == pytest.approx(published, rel=0.03)


def test_float32_sums_halve_the_float16_rate():
    assert BOW.peak("float16/float32") * 2 == BOW.peak("float16")


def test_memory_is_about_900_megabytes():
    assert BOW.memory_per_tile == 638_976
    assert BOW.memory == 940_572_672


def test_every_preset_carries_its_name():
    assert [preset(name).name for name in presets()] == list(presets())


def test_machine_is_hashable_by_content():
    assert {dataclasses.replace(BOW)} == {BOW}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tiles": 0}, "tiles of machine 'bow-ipu' is 0"),
        ({"tiles": -4}, "tiles of machine 'bow-ipu' is -4"),
        ({"workers": True}, "workers of machine 'bow-ipu' is True; it counts things"),
        ({"clock_hz": float("nan")}, "clock_hz of machine 'bow-ipu' is nan"),
        ({"clock_hz": float("inf")}, "clock_hz of machine 'bow-ipu' is inf"),
        ({"tiles": 1471}, "tiles_per_bus of machine 'bow-ipu' is 2, with 1471 tiles"),
        ({"name": " "}, "name of a machine is ' '; .* give a text"),
        ({"clock_hz": True}, "clock_hz of machine .bow-ipu. is True; it measures"),
    ],
)
def test_bad_figures_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        dataclasses.replace(BOW, **change)


@without_type_checks()
def test_figures_of_another_type_are_refused():
    with pytest.raises(ValueError, match="name of a machine is 5; it is what messages call it"):
        dataclasses.replace(BOW, name=5)
    with pytest.raises(ValueError, match="clock_hz of machine 'bow-ipu' is 'fast'; it measures"):
        dataclasses.replace(BOW, clock_hz="fast")


def test_unknown_preset_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"no machine is called 'mk3'; there are bow-ipu, mk2-ipu"):
        preset("mk3")


def test_unknown_dtype_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"dtype 'int8'; give one of float16, "):
        BOW.peak("int8")


def test_machine_takes_no_positional_figures():
    with pytest.raises(TypeError):
        MachineSpec("small", 4)
