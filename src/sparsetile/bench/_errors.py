"""What goes wrong in a command, said in one line to the person who typed it."""

from importlib.util import find_spec

_MODULES = {
    "cli": ("typer", "rich"),
    "plot": ("matplotlib",),
    "hf": ("transformers", "tokenizers"),
}


class CommandError(Exception):
    """A command cannot do what was asked; the message says why and what to do."""


def require_extras(command: str, *extras: str) -> None:
    """Refuse to start a command whose optional packages are missing."""
    needed = {extra: [m for m in _MODULES[extra] if find_spec(m) is None] for extra in extras}
    missing = {extra: modules for extra, modules in needed.items() if modules}
    if missing:
        names = " and ".join(m for modules in missing.values() for m in modules)
        raise CommandError(
            f"`sparsetile {command}` needs {names}, not installed here; "
            f"run: pip install 'sparsetile[{','.join(missing)}]'"
        )
