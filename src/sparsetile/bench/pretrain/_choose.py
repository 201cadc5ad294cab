"""Whose word counts: what was typed, then the config file, then the defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sparsetile.bench._errors import CommandError
from sparsetile.bench.pretrain._config_file import read_config
from sparsetile.bench.pretrain._folder import CONFIG, last_checkpoint
from sparsetile.bench.pretrain._settings import FREE, OPTIONS, Settings, flag


def choose(typed: Mapping[str, Any], *, config: Path | None, resume: bool) -> Settings:
    """The settings of a run.

    Args:
        typed: Options on the command line, by name of their field.
        config: A TOML file for the others.
        resume: Take them from the folder of the run that is resumed.

    Returns:
        The settings.

    Raises:
        CommandError: If the file cannot be read or has mistakes, if there is nothing to resume, or
            if a resumed run is to have other settings than it began with.

    Examples:
        >>> choose({"preset": "tiny"}, config=None, resume=False).preset
        'tiny'
    """
    if not resume:
        return _with(Settings(), {**(read_config(config) if config else {}), **typed})
    if config is not None:
        raise CommandError(
            f"--config {config}: a resumed run keeps the settings in its folder; leave it out"
        )
    folder = typed.get("output", OPTIONS["output"].default)
    last_checkpoint(folder)
    begun = _with(Settings(), read_config(folder / CONFIG))
    for name, value in typed.items():
        if name not in FREE and value != getattr(begun, name):
            raise CommandError(
                f"{flag(name)} {value}: the run in {folder} began with {getattr(begun, name)}, and "
                "a resumed run keeps its settings; leave the flag out, or start a run in another "
                f"folder with it: sparsetile train --config {folder / CONFIG} {flag(name)} … -o …"
            )
    return _with(begun, {**typed, "output": folder})


def _with(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with other values for some options."""
    kept = {name: getattr(settings, name) for name in OPTIONS}
    return Settings(**{**kept, **values})
