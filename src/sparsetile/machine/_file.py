"""Machines described in TOML files."""

import tomllib
from dataclasses import MISSING, asdict, fields
from pathlib import Path

from sparsetile.machine._spec import MachineSpec, preset, presets

_TYPES = {field.name: field.type for field in fields(MachineSpec)}
_NEEDED = [field.name for field in fields(MachineSpec) if field.default is MISSING]


def load_machine(name: str | Path | MachineSpec) -> MachineSpec:
    """A machine that comes with the library, or one that a file describes.

    Args:
        name: One of `presets()`, or the path of a file as `machine_from_toml` reads it; a machine
            is returned as it is.

    Returns:
        The machine.

    Raises:
        TypeError: If it is no name, path or machine.
        ValueError: If there is neither such a preset nor such a file, or the file is wrong.

    Examples:
        >>> load_machine("bow-ipu").tiles
        1472
    """
    if isinstance(name, MachineSpec):
        return name
    if not isinstance(name, str | Path):
        raise TypeError(
            f"machine is {name!r:.80}; it may be a MachineSpec, a name or a path: "
            f"give one of {', '.join(presets())}, or the path of a TOML file"
        )
    if name in presets():
        return preset(str(name))
    path = Path(name)
    if not _is_file(path):
        raise ValueError(
            f"machine {str(name)!r} is neither known nor a file here; known are "
            f"{', '.join(presets())}: choose one, or give the path of a TOML file"
        )
    try:
        return machine_from_toml(path.read_text("utf-8"))
    except ValueError as wrong:
        raise ValueError(f"{path}: {wrong}") from wrong


def machine_from_toml(text: str) -> MachineSpec:
    """A machine from its description.

    Keys are the arguments of `MachineSpec`. The key `base` names a machine of the library that
    gives what is left out, so that a file may say only what differs. `MachineSpec.to_toml` writes
    such a description.

    Args:
        text: TOML.

    Returns:
        The machine.

    Raises:
        ValueError: If the text is no TOML, or a key is unknown, missing, or of the wrong type.

    Examples:
        >>> machine_from_toml('''
        ...     base = "bow-ipu"
        ...     name = "bow-ipu with twice the memory"
        ...     memory_per_tile = 1_277_952
        ... ''').memory
        1881145344
    """
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise ValueError(
            f"the description of a machine is no TOML: {wrong}; it has lines such as "
            f"tiles = 64: correct it there"
        ) from wrong
    base = given.pop("base", None)
    if base is not None and base not in presets():
        raise ValueError(
            f"base of a machine is {base!r}; it may be {', '.join(presets())}: "
            f"name one of them, or leave base out and give every figure"
        )
    _check_keys(given, whole=base is None)
    rest = {} if base is None else asdict(preset(base))
    return MachineSpec(**(rest | given))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def _check_keys(given: dict[str, object], whole: bool) -> None:
    unknown = [key for key in given if key not in _TYPES]
    if unknown:
        raise ValueError(
            f"a machine was given {', '.join(unknown)}; there are {', '.join(_TYPES)}, and base: "
            f"use these names"
        )
    missing = [key for key in (_NEEDED if whole else ["name"]) if key not in given]
    if missing:
        raise ValueError(
            f"a machine was given no {', '.join(missing)}; {', '.join(_NEEDED)} are needed: "
            f"give them, or a name and the base that has the rest"
        )
    for key, value in given.items():
        kinds = (int, float) if _TYPES[key] is float else (_TYPES[key],)
        if type(value) not in kinds:
            raise ValueError(
                f"{key} of a machine is {value!r}; it takes "
                f"{'a text' if _TYPES[key] is str else 'a number'}"
                f"{' without a point' if _TYPES[key] is int else ''}: write it so"
            )
