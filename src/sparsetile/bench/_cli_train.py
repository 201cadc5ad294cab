"""The command `train`: its flags are the options of `bench.pretrain`, each written there once."""

import enum
import inspect
from dataclasses import Field
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._terminal import STOPPED, show, warn
from sparsetile.bench.pretrain import OPTIONS, check, choose, describe, flag, pretrain

_EXAMPLES = """
Examples:

sparsetile train -o run  (a GPT-2 of the size of Mini, by DynSparse, on the default text)

sparsetile train --preset small --method rigl --blocksize 16 -o rigl --text a.txt b.txt

sparsetile train --method dense -o dense  (what it is to be compared with)

sparsetile train --resume -o run  (goes on where Ctrl-C or a power cut stopped it)

sparsetile train --config run/config.toml --seed 1 -o again  (the same with another seed)
"""
_SHORT = {"output": ["-o"]}


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command(epilog=_EXAMPLES)(train)


def train(
    context: Any,  # a typer.Context, but of the class that typer makes it of
    *,
    files: list[Path] | None,
    config: Path | None,
    resume: bool,
    overwrite: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Pre-train a language model on text files, dense or always sparse.

    Losses, held-out losses, every change of the pattern, checkpoints and pictures go into one
    folder. Ctrl-C writes a checkpoint; with --resume the run goes on as if it had never stopped.
    """
    require_extras("train", "hf")
    if files and not options["text"]:
        raise CommandError(f"{files[0]}: name text files after --text")
    typed = {name: _plain(value) for name, value in options.items() if _typed(context, name)}
    if files:
        typed["text"] = (*typed["text"], *files)
    settings = choose(typed, config=config, resume=resume)
    if dry_run:
        check(settings)
        facts, layers = describe(settings)
        print(layers)
        _print(facts)
        return
    from sparsetile.bench._stop import Stop

    with Stop() as stop:
        outcome = pretrain(
            settings, resumed=resume, overwrite=overwrite, stop=lambda: stop.requested
        )
    if not outcome.finished:
        warn(
            f"stopped after step {outcome.step:,} of {settings.steps:,}; go on with: "
            f"sparsetile train --resume -o {settings.output}"
        )
        raise typer.Exit(STOPPED)
    _print(outcome.lines)
    if settings.plots and not outcome.pictures:
        warn("no pictures, matplotlib is missing; run: pip install 'sparsetile[plot]'")
    print(f"Everything is in {settings.output}")


def _signature() -> inspect.Signature:
    """The parameters that typer reads: those of the command, then the options of a run."""
    run = "Run"
    own = [
        _parameter("context", typer.Context, inspect.Parameter.empty),
        _parameter(
            "files",
            Annotated[
                list[Path] | None,
                typer.Argument(metavar="[FILE]...", help="More files for --text."),
            ],
            None,
        ),
        _parameter(
            "config",
            Annotated[
                Path | None,
                typer.Option(
                    help="TOML file whose keys are the flags below, without their dashes in front; "
                    "flags that are typed win.",
                    rich_help_panel=run,
                ),
            ],
            None,
        ),
        _switch("resume", run, "Go on from the last checkpoint in the folder."),
        _switch("overwrite", run, "Replace the run that is in the folder."),
        _switch("dry_run", run, "Only say what would be trained, and what that takes."),
    ]
    return inspect.Signature([*own, *(_option(option) for option in OPTIONS.values())])


def _option(option: Field[Any]) -> inspect.Parameter:
    limits = option.metadata
    annotation: Any = option.type
    default: Any = option.default
    if limits["choices"]:
        names = enum.StrEnum(option.name, {name: name for name in limits["choices"]})  # type: ignore[misc]
        annotation, default = names, names(default)
    elif annotation == tuple[Path, ...]:
        annotation, default = list[Path] | None, None
    declared = [flag(option.name), *_SHORT.get(option.name, [])]
    if annotation is bool:
        declared = [f"{flag(option.name)}/--no-{flag(option.name)[2:]}"]
    return _parameter(
        option.name,
        Annotated[
            annotation,
            typer.Option(
                *declared,
                help=limits["help"],
                min=limits["least"],
                max=limits["most"],
                metavar=limits["metavar"],
                rich_help_panel=limits["panel"],
            ),
        ],
        default,
    )


def _switch(name: str, panel: str, help: str) -> inspect.Parameter:
    return _parameter(
        name, Annotated[bool, typer.Option(flag(name), help=help, rich_help_panel=panel)], False
    )


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


def _typed(context: Any, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _plain(value: Any) -> Any:
    """A value as `Settings` hold it."""
    if isinstance(value, enum.Enum):
        return value.value
    return tuple(value) if isinstance(value, list) else value


def _print(facts: dict[str, str]) -> None:
    from rich.table import Table

    shown = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        shown.add_row(name, value)
    show(shown)


_read = _signature()
train.__signature__ = _read  # type: ignore[attr-defined]
train.__annotations__ = {name: each.annotation for name, each in _read.parameters.items()}
