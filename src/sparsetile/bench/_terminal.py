"""What commands share: showing a table, a warning, and refusing a file that cannot be written."""

import sys
from pathlib import Path
from typing import Any

from sparsetile.bench._errors import CommandError

#: Exit code of a command that Ctrl-C ended.
STOPPED = 130


def show(what: Any) -> None:
    """Print something of rich on stdout."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        # A pipe has no width: let long lines be, so that a file keeps whole cells.
        console = Console(width=160)
    console.print(what)


def warn(sentence: str) -> None:
    """Print a sentence on stderr, if there is one."""
    if sentence:
        print(f"sparsetile: {sentence}", file=sys.stderr)


def writable(path: Path | None) -> None:
    """Refuse an output file before the work begins, not after it."""
    if path is None:
        return
    if path.is_dir():
        raise CommandError(
            f"--output {path}: is a folder; must be a file; name one in it, such as {path / 'out'}"
        )
    if not path.parent.is_dir():
        raise CommandError(
            f"--output {path}: must be a file in a folder that exists; make {path.parent} first"
        )
