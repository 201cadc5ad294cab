"""The commands that show what `sparsetile bench` measured: `plot` and `breakeven`."""

from pathlib import Path
from typing import Annotated

import typer

from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._terminal import writable

Files = Annotated[list[Path], typer.Argument(metavar="CSV...", help="Written by sparsetile bench.")]


def add_to(app: typer.Typer) -> None:
    """Give the command line these commands."""
    app.command()(plot)
    app.command()(breakeven)


def plot(
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the pictures; made if missing.")
    ] = Path("pictures"),
) -> None:
    """Draw a benchmark: speed-up against density, heat map, roofline and peers."""
    require_extras("plot", "plot")
    from sparsetile.bench import _plot
    from sparsetile.bench._plot_rows import read_rows

    rows = read_rows(files)
    for path in _plot.plot(rows, _folder("--output", output)):
        print(path)


def breakeven(
    files: Files,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Markdown file; stdout when not given.")
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="Draw the speed-ups into this folder and show them on the page."),
    ] = None,
) -> None:
    """Write the page that says below which density sparse wins, and where it loses."""
    if pictures is not None:
        require_extras("breakeven", "plot")
    if pictures is not None and output is None:
        raise CommandError(
            f"--pictures {pictures}: the page on stdout cannot show pictures; name the page's file "
            "with --output, or leave --pictures out"
        )
    from sparsetile.bench._breakeven_page import page
    from sparsetile.bench._files import write_text
    from sparsetile.bench._plot_rows import read_rows

    writable(output)
    rows = read_rows(files)
    names = [path.name for path in files]
    if output is None:
        print(page(rows, names), end="")
        return
    shown = ""
    if pictures is not None:
        import os

        from sparsetile.bench._plot import plot_speedups

        plot_speedups(rows, _folder("--pictures", pictures))
        shown = Path(os.path.relpath(pictures, output.parent)).as_posix()
    write_text(output, page(rows, names, shown))
    print(output)


def _folder(flag: str, path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"{flag} {path}: cannot be made ({error.strerror}); it must be a folder; name another"
        ) from None
    return path
