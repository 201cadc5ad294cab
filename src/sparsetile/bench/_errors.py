"""What goes wrong in a command, said in one line to the person who typed it."""

from importlib.util import find_spec
from types import TracebackType

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


def is_own_check(error: Exception) -> bool:
    """True for an error that this library raised itself, on purpose: its message is for people."""
    raised: TracebackType | None = error.__traceback__
    while raised is not None and raised.tb_next is not None:
        raised = raised.tb_next
    where = "" if raised is None else str(raised.tb_frame.f_globals.get("__name__", ""))
    return where.partition(".")[0] == "sparsetile"


def one_line(error: Exception) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split())
