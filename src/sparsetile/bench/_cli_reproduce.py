"""The command that puts published figures beside the model's: `reproduce`."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._terminal import STOPPED, warn


class Paper(enum.StrEnum):
    """Whose figures."""

    popsparse = "popsparse"


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(reproduce)


def reproduce(
    paper: Annotated[Paper, typer.Argument(help="Whose figures: popsparse.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for pictures and CSVs; made if missing.")
    ] = Path("popsparse"),
    page: Annotated[
        Path | None,
        typer.Option(help="A page of yours whose marked tables are renewed, as docs/popsparse.md."),
    ] = None,
) -> None:
    """Put a paper's figures beside the model's: pictures, CSVs and a page."""
    require_extras("reproduce", "plot")
    from sparsetile.bench import _reproduce
    from sparsetile.bench._files import write_text
    from sparsetile.bench._reproduce_page import filled
    from sparsetile.bench._stop import Stop

    text = None if page is None else _text(page)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--output {output}: cannot be made ({error.strerror}); it must be a folder; "
            "name another"
        ) from None
    try:
        with Stop() as stop:
            written = _reproduce.reproduce(output, stop=lambda: stop.requested)
    except KeyboardInterrupt:
        warn("stopped; nothing was written")
        raise typer.Exit(STOPPED) from None
    if page is not None and text is not None:
        write_text(page, filled(text, _reproduce.read(output)))
        written.append(page)
    for path in written:
        print(path)


def _text(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"--page {page}: cannot be read ({error}); it must be a text file with marked tables; "
            "name one, or leave --page out"
        ) from None
