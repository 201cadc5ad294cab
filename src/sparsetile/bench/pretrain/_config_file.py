"""Config files: TOML whose keys are the flags of `sparsetile train`."""

import difflib
import tomllib
from pathlib import Path
from typing import Any, get_args

from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import write_text
from sparsetile.bench.pretrain._settings import OPTIONS, Settings, complaint, flag, key

_WORDS = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "true or false",
    Path: "a string, a path",
    tuple: "a list of strings, paths",
}


def read_config(path: Path) -> dict[str, Any]:
    """Read the options that a config file sets.

    Args:
        path: A TOML file.

    Returns:
        Values by name of their field of `Settings`.

    Raises:
        CommandError: If it cannot be read, or names the file, the key, what it has and what is
            allowed there.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(
            f"--config {path}: cannot be read ({error.strerror}); it takes a TOML file such as "
            "the config.toml in the folder of a run"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"--config {path}: is not valid TOML: {error}; correct it") from None
    names = {key(name): name for name in OPTIONS}
    values = {}
    for given, value in content.items():
        if given not in names:
            near = difflib.get_close_matches(given, names, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise CommandError(
                f"{path}: unknown key {given!r}; {hint}Allowed are {', '.join(names)}"
            )
        name = names[given]
        if name == "blocksize" and type(value) is int:
            value = str(value)  # as it is typed
        read = _read(OPTIONS[name].type, value)
        if read is None:
            raise CommandError(
                f"{path}: {given} = {value!r}: must be {_WORDS[_kind(OPTIONS[name].type)]}, "
                f"is {_toml_kind(value)}; `sparsetile train --help` tells about {flag(name)}"
            )
        if wrong := complaint(name, read):
            raise CommandError(f"{path}: {given} = {value!r}: {wrong}")
        values[name] = read
    return values


def write_config(path: Path, settings: Settings) -> None:
    """Write all options of a run, in the order of `--help`, so that a file makes it again."""
    lines = [
        "# A run of `sparsetile train`; `sparsetile train --config <this file>` makes it again"
    ]
    panel = ""
    for name, option in OPTIONS.items():
        if option.metadata["panel"] != panel:
            panel = option.metadata["panel"]
            lines += ["", f"# {panel}"]
        value = getattr(settings, name)
        if value is None:
            lines.append(f"# {key(name)}: not set. {option.metadata['help']}")
        else:
            lines.append(f"{key(name)} = {_toml(value)}")
    write_text(path, "\n".join(lines) + "\n")


def _kind(annotation: Any) -> type:
    """The type of an option without `| None`."""
    if annotation == tuple[Path, ...]:
        return tuple
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)] or [annotation]
    return kinds[0]


def _read(annotation: Any, value: Any) -> Any:
    """A TOML value as an option holds it; None if it is of another kind."""
    kind = _kind(annotation)
    if kind is tuple:
        fits = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
        return tuple(map(Path, value)) if fits else None
    if isinstance(value, bool) or kind is bool:
        return value if isinstance(value, bool) and kind is bool else None
    if kind is Path:
        return Path(value) if isinstance(value, str) else None
    if kind is float:
        return float(value) if isinstance(value, int | float) else None
    return value if isinstance(value, kind) else None


def _toml_kind(value: Any) -> str:
    kinds = {bool: "true or false", str: "a string", int: "a whole number", float: "a number"}
    return kinds.get(type(value), "a list" if isinstance(value, list) else "something else")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Path):
        # From another folder a relative path would name another file.
        return _toml(str(value.resolve()))
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
