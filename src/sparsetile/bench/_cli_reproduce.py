"""The command that repeats published work: `reproduce`."""

import enum
import os
from pathlib import Path
from typing import Annotated

import typer

from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._terminal import STOPPED, warn

_STDLIB = "stdlib"  # the word that stands for the standard library's source


class Paper(enum.StrEnum):
    """Whose figures."""

    popsparse = "popsparse"
    dynsparse = "dynsparse"
    minilm = "minilm"


class TierName(enum.StrEnum):
    """How much of the experiment."""

    ci = "ci"
    nightly = "nightly"
    report = "report"
    long = "long"


class Only(enum.StrEnum):
    """Which part of the work."""

    runs = "runs"
    timing = "timing"
    page = "page"


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(reproduce)


def reproduce(
    paper: Annotated[
        Paper,
        typer.Argument(
            help="popsparse: published speeds beside the model's. "
            "dynsparse: train dense, static and dynamic, and compare. "
            "minilm: prune a sentence encoder in every way, recover it, and time it beside dense."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for pictures and CSVs; made if missing. By default the paper's name.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="A page of yours whose marked tables are renewed, as docs/popsparse.md."),
    ] = None,
    tier: Annotated[
        TierName | None,
        typer.Option(
            help="dynsparse: ci (a minute), nightly (four core-hours), report (a night), long "
            "(days). minilm: ci (a tiny model, a minute) or nightly (the real one, hours). "
            "Finished runs are kept and not repeated; nightly by default."
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="dynsparse: text files to train on, instead of Shakespeare; "
            "`stdlib` for the Python standard library's source."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="dynsparse: runs at a time, one thread each; all cores if unset."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="dynsparse: only runs of this method (dense, static, dynsparse, rigl)."),
    ] = None,
    only: Annotated[
        Only | None,
        typer.Option(
            help="dynsparse, minilm: train (or prune) only, time only (on a quiet machine), or "
            "draw only."
        ),
    ] = None,
) -> None:
    """Repeat published work: pictures, CSVs and a page that says what agrees and what does not."""
    own = {"--tier": tier, "--text": text, "--jobs": jobs, "--method": method, "--only": only}
    given = [name for name, value in own.items() if value is not None]
    if paper is Paper.popsparse and given:
        raise CommandError(
            f"{given[0]} was given for popsparse, which has no such choice; it is for dynsparse: "
            "leave it out, or name that paper"
        )
    if paper is Paper.minilm:
        _refuse_for_minilm({"--page": page, "--text": text, "--jobs": jobs, "--method": method})
        _minilm(_made(output or Path(paper.value)), tier or TierName.nightly, only)
        return
    prose = None if page is None else _text(page)
    folder = _made(Path(paper.value) if output is None else output)
    if paper is Paper.popsparse:
        _popsparse(folder, page, prose)
        return
    name = "nightly" if tier is None else tier.value
    _dynsparse(folder, page, prose, name, text, jobs or _cores(), method or [], only)


def _popsparse(folder: Path, page: Path | None, prose: str | None) -> None:
    require_extras("reproduce", "plot")
    from sparsetile.bench import _reproduce
    from sparsetile.bench._files import write_text
    from sparsetile.bench._reproduce_page import filled
    from sparsetile.bench._stop import Stop

    try:
        with Stop() as stop:
            written = _reproduce.reproduce(folder, stop=lambda: stop.requested)
    except KeyboardInterrupt:
        warn("stopped; nothing was written")
        raise typer.Exit(STOPPED) from None
    if page is not None and prose is not None:
        write_text(page, filled(prose, _reproduce.read(folder)))
        written.append(page)
    for path in written:
        print(path)


def _dynsparse(
    folder: Path,
    page: Path | None,
    prose: str | None,
    tier_name: str,
    text: list[str] | None,
    jobs: int,
    methods: list[str],
    only: Only | None,
) -> None:
    require_extras("reproduce", "plot", "hf")
    from sparsetile.bench import dynsparse
    from sparsetile.bench._files import write_text

    for name in methods:
        if name not in dynsparse.METHODS:
            raise CommandError(
                f"--method {name}: there is no such method; it must be one of "
                f"{', '.join(dynsparse.METHODS)}: name one, or leave --method out for all"
            )
    tier = dynsparse.TIERS[tier_name]
    try:
        if only is not Only.page:
            files = None if text is None else [Path(name) for name in text if name != _STDLIB]
            data = dynsparse.data_of(tier, files)
            if only is not Only.timing:
                dynsparse.train(folder, tier, data, jobs, methods)
            if only is not Only.runs:
                dynsparse.measure(folder, tier, data)
    except KeyboardInterrupt:
        warn(f"stopped; finished runs are kept in {folder}: the same command goes on from there")
        raise typer.Exit(STOPPED) from None
    if only is Only.runs:
        return
    written = dynsparse.draw(folder, tier)
    if page is not None and prose is not None:
        write_text(page, dynsparse.fill(prose, folder, tier))
        written.append(page)
    for path in written:
        print(path)


def _refuse_for_minilm(given: dict[str, object]) -> None:
    for name, value in given.items():
        if value is not None:
            raise CommandError(
                f"{name} was given for minilm, which has no such choice; it takes --output, --tier "
                "and --only: leave it out"
            )


def _minilm(folder: Path, tier_name: TierName, only: Only | None) -> None:
    require_extras("reproduce", "plot", "hf")
    from sparsetile.bench import minilm
    from sparsetile.bench._stop import Stop

    if tier_name.value not in minilm.TIERS:
        raise CommandError(
            f"--tier {tier_name.value}: minilm has no such tier; it must be one of "
            f"{', '.join(minilm.TIERS)}"
        )
    try:
        with Stop() as stop:
            if only is not Only.page:
                data = minilm.data_of(folder, minilm.TIERS[tier_name.value])
                if only is not Only.timing:
                    minilm.prune(folder, data, lambda: stop.requested)
                    minilm.learn(folder, data, lambda: stop.requested)
                if only is not Only.runs:
                    minilm.measure(folder, data, lambda: stop.requested)
    except KeyboardInterrupt:
        warn(f"stopped; finished cells are kept in {folder}: the same command goes on from there")
        raise typer.Exit(STOPPED) from None
    if only is not Only.runs:
        for path in minilm.draw(folder):
            print(path)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(
            f"--output {folder}: cannot be made ({error.strerror}); it must be a folder; "
            "name another"
        ) from None
    return folder


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _text(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"--page {page}: cannot be read ({error}); it must be a text file with marked tables; "
            "name one, or leave --page out"
        ) from None
