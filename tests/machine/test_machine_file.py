"""Machines are read from TOML and written as it."""

import dataclasses

import pytest

from sparsetile.machine import load_machine, machine_from_toml, preset, presets
from support import without_type_checks
from support_machine import SMALL


@pytest.mark.parametrize(
    "machine",
    [
        *map(preset, presets()),
        SMALL,
        dataclasses.replace(SMALL, name='a "name" \\ ü', clock_hz=1.5),
    ],
    ids=lambda machine: machine.name,
)
def test_what_is_written_is_read(machine):
    assert machine_from_toml(machine.to_toml()) == machine


@pytest.mark.parametrize("name", presets())
def test_names_of_presets_are_known(name):
    assert load_machine(name) == preset(name)


@pytest.mark.parametrize("kind", [str, lambda path: path], ids=["text", "path"])
def test_file_is_read(tmp_path, kind):
    file = tmp_path / "small.toml"
    file.write_text(SMALL.to_toml(), "utf-8")
    assert load_machine(kind(file)) == SMALL


def test_base_gives_what_is_left_out():
    machine = machine_from_toml('base = "bow-ipu"\nname = "slow"\nclock_hz = 1_000_000_000')
    assert machine == dataclasses.replace(preset("bow-ipu"), name="slow", clock_hz=1e9)


def test_keys_with_defaults_may_be_left_out():
    lines = SMALL.to_toml().splitlines()
    needed = [line for line in lines if not line.startswith(("workers", "sync", "exchange_atom"))]
    assert machine_from_toml("\n".join(needed)) == SMALL


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tiles = = 3", r"no TOML: .*line 1"),
        ('base = "a100"\nname = "x"', "base of a machine is 'a100'; it may be bow-ipu, mk2-ipu"),
        (
            'base = "bow-ipu"\nname = "x"\ntile = 3\nwatts = 5',
            "was given tile, watts; there are name",
        ),
        ('base = "bow-ipu"\ntiles = 64', "given no name; .* or a name and the base"),
        ('name = "x"\ntiles = 64', "given no memory_per_tile, clock_hz"),
        (
            'base = "bow-ipu"\nname = "x"\ntiles = 64.0',
            "tiles of a machine is 64.0; .* without a point",
        ),
        ('base = "bow-ipu"\nname = "x"\ntiles = true', "tiles of a machine is True"),
        ('base = "bow-ipu"\nname = "x"\nclock_hz = "1 GHz"', "clock_hz .* it takes a number:"),
        ('base = "bow-ipu"\nname = 3', "name of a machine is 3; it takes a text"),
        ('base = "bow-ipu"\nname = "x"\ntiles = 63', "tiles_per_bus of machine 'x' is 2, with 63"),
    ],
    ids=["toml", "base", "unknown", "nameless", "missing", "point", "bool", "text", "name", "odd"],
)
def test_wrong_descriptions_are_refused(tmp_path, text, says):
    with pytest.raises(ValueError, match=says):
        machine_from_toml(text)
    (tmp_path / "wrong.toml").write_text(text, "utf-8")
    with pytest.raises(ValueError, match=rf"wrong\.toml: .*{says}"):
        load_machine(tmp_path / "wrong.toml")


def test_neither_preset_nor_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"'mk3' is neither known nor a file here; known are bow"):
        load_machine("mk3")
    with pytest.raises(ValueError, match="neither known nor a file"):
        load_machine(tmp_path)
    with pytest.raises(ValueError, match="neither known nor a file"):
        load_machine("a" * 5000)


@without_type_checks()
def test_a_machine_is_returned_and_what_is_none_is_refused():
    assert load_machine(SMALL) is SMALL
    with pytest.raises(TypeError, match="machine is 5; it may be a MachineSpec, a name or a path"):
        load_machine(5)
