"""The commands: flags in, exit code out. Work and heavy imports happen inside them."""

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from sparsetile.bench import (
    _cli_advise,
    _cli_bench,
    _cli_convert,
    _cli_inspect,
    _cli_plan,
    _cli_plot,
    _cli_prune,
    _cli_reproduce,
    _cli_show,
    _cli_step,
    _cli_train,
    _cli_tune,
)
from sparsetile.bench._errors import CommandError, is_own_check, one_line, require_extras
from sparsetile.bench._terminal import STOPPED, show, warn, writable

app = typer.Typer(
    name="sparsetile",
    help="Block-sparse products and always-sparse training for PyTorch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_cli_advise.add_to(app)
_cli_bench.add_to(app)
_cli_convert.add_to(app)
_cli_inspect.add_to(app)
_cli_plan.add_to(app)
_cli_plot.add_to(app)
_cli_prune.add_to(app)
_cli_reproduce.add_to(app)
_cli_show.add_to(app)
_cli_step.add_to(app)
_cli_train.add_to(app)
_cli_tune.add_to(app)

Seed = Annotated[int, typer.Option(min=0, help="Decides everything that is drawn at random.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads of a product; all CPUs when not given.")
]
Rows = Annotated[int, typer.Option("--rows", "-n", min=1, help="Rows of the batch.")]
Seconds = Annotated[float, typer.Option(min=0.1, help="Seconds to measure for.")]


class ObjectiveName(enum.StrEnum):
    """What the demo's models learn."""

    clm = "clm"
    mlm = "mlm"


def run() -> int:
    """Run the command line; the exit code."""
    try:
        app()
    except CommandError as error:
        print(f"sparsetile: {error}", file=sys.stderr)
        return 1
    except (ValueError, TypeError, RuntimeError) as error:
        if not is_own_check(error):
            raise
        print(f"sparsetile: {one_line(error)}", file=sys.stderr)
        return 1
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 1
    except KeyboardInterrupt:
        print("sparsetile: stopped", file=sys.stderr)
        return STOPPED
    return 0


def _print_version(wanted: bool) -> bool:
    if wanted:
        from sparsetile._version import __version__

        print(__version__)
        raise typer.Exit()
    return wanted


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def info() -> None:
    """Say what this machine is and which kernels run on it."""
    _show_facts(_facts())


@app.command()
def table(
    m: Annotated[int | None, typer.Option("-m", min=1, help="Outputs of a layer of yours.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Inputs of it.")] = None,
    rows: Rows = 1024,
    blocksize: Annotated[str, typer.Option(help="Block sizes, with commas.")] = "1,4,16",
    density: Annotated[str, typer.Option(help="Densities, with commas.")] = "0.25,0.1,0.05",
    op: Annotated[
        str, typer.Option(help="Of linear, linear+grad, dx and dvalues, with commas.")
    ] = "linear,linear+grad",
    seconds: Seconds = 30.0,
    threads: Threads = None,
    seed: Seed = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file for every cell.")
    ] = None,
) -> None:
    """Time layers dense against sparse: Linear 4096×4096 and BERT-Base's, or one of yours."""
    from sparsetile.bench import _layers
    from sparsetile.bench._busy import Neighbours
    from sparsetile.bench._files import write_csv
    from sparsetile.bench._measure import COLUMNS
    from sparsetile.bench._stop import Stop
    from sparsetile.bench._waiting import Waiting

    if (m is None) != (k is None):
        raise CommandError("-m and -k name the two sides of one layer; give both or none")
    layers = _layers.LAYERS if m is None or k is None else (_layers.Layer(f"{m}×{k}", m, k),)
    blocksizes, densities = _blocksizes(blocksize), _densities(density)
    ops = [name.strip() for name in op.split(",")]
    if unknown := [name for name in ops if name not in _layers.OPS]:
        raise CommandError(f"--op has {unknown[0]!r}; it takes {', '.join(_layers.OPS)}")
    writable(output)
    _set_threads(threads)
    neighbours = Neighbours()
    with Stop() as stop, Waiting("Timing layers", seconds) as waiting:
        measured = list(
            _layers.time_layers(
                layers,
                densities=densities,
                blocksizes=blocksizes,
                rows=rows,
                seconds=seconds,
                seed=seed,
                ops=ops,
                stop=waiting.between(lambda: stop.requested),
            )
        )
    busy = neighbours.warning()
    show(_layers.layer_table(measured, layers))
    warn(busy)
    if output is not None:
        write_csv(output, COLUMNS, (row.row() for row in measured))
        print(output)
    if stop.requested:
        raise typer.Exit(STOPPED)


@app.command()
def picture(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture: .svg, .png or .pdf.")
    ] = Path("picture.svg"),
    size: Annotated[int, typer.Option(min=16, help="Side of the square layer.")] = 4096,
    rows: Rows = 1024,
    blocksize: Annotated[str, typer.Option(help="Block sizes, with commas.")] = "1,4,16",
    density: Annotated[
        str, typer.Option(help="Densities, with commas.")
    ] = "0.5,0.25,0.125,0.0625,0.03125",
    seconds: Seconds = 30.0,
    threads: Threads = None,
    seed: Seed = 0,
) -> None:
    """Draw a pattern beside the speed of products with such patterns, measured now."""
    require_extras("picture", "plot")
    from sparsetile.bench import _picture
    from sparsetile.bench._busy import Neighbours
    from sparsetile.bench._stop import Stop
    from sparsetile.bench._waiting import Waiting

    if output.suffix not in (".svg", ".png", ".pdf"):
        raise CommandError(f"--output {output}: the name must end in .svg, .png or .pdf")
    blocksizes, densities = _blocksizes(blocksize), _densities(density)
    writable(output)
    _set_threads(threads)
    neighbours = Neighbours()
    with Stop() as stop, Waiting("Timing products", seconds) as waiting:
        measured = _picture.measure(
            size,
            rows,
            densities=densities,
            blocksizes=blocksizes,
            seconds=seconds,
            seed=seed,
            stop=waiting.between(lambda: stop.requested),
        )
    warn(neighbours.warning())
    for path in _picture.write_picture(output, measured, seed=seed):
        print(path)
    if stop.requested:
        raise typer.Exit(STOPPED)


@app.command()
def demo(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="More files for --text.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for report, CSVs and model.")
    ] = Path("demo-report"),
    minutes: Annotated[float, typer.Option(min=0.1, help="Time for all of it.")] = 5.0,
    objective: Annotated[
        ObjectiveName, typer.Option(help="clm: GPT-2, next token; mlm: BERT, masked tokens.")
    ] = ObjectiveName.clm,
    text: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE...",
            help="Text to train on; when not given, the Python standard library's own source.",
        ),
    ] = None,
    density: Annotated[float, typer.Option(help="Density of the sparse layers.")] = 0.1,
    blocksize: Annotated[int, typer.Option(min=1, help="Their block size.")] = 4,
    seed: Seed = 0,
    threads: Threads = None,
    layers: Annotated[int, typer.Option(min=1, help="Transformer blocks.")] = 4,
    width: Annotated[int, typer.Option(min=8, help="Features of a token.")] = 512,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads.")] = 8,
    sequence: Annotated[int, typer.Option(min=8, help="Tokens of a row.")] = 64,
    vocabulary: Annotated[int, typer.Option(help="Different tokens.")] = 2048,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 8,
    rate: Annotated[
        float, typer.Option(min=0.0, help="Highest learning rate of the dense run's block layers.")
    ] = 4e-4,
    rest_rate: Annotated[
        float, typer.Option(min=0.0, help="That of embedding and norms, in every run.")
    ] = 2.5e-3,
    steps_per_update: Annotated[
        int, typer.Option(min=1, help="Steps between changes of the DynSparse pattern.")
    ] = 100,
    seconds_per_run: Annotated[
        float | None, typer.Option(min=0.1, help="Training seconds a run, whatever --minutes.")
    ] = None,
    table_seconds: Annotated[
        float, typer.Option(min=0.0, help="Seconds for timing layers; 0 leaves them out.")
    ] = 30.0,
) -> None:
    """Time layers, train a dense and two sparse models for the same seconds, write a report."""
    import time

    deadline = time.monotonic() + 60 * minutes
    require_extras("demo", "plot", "hf")
    from sparsetile.bench._stop import Stop

    with Stop() as stop:
        from sparsetile.bench import _demo
        from sparsetile.bench._model import ModelSize
        from sparsetile.bench._report import write_report
        from sparsetile.bench._results import Results
        from sparsetile.bench._verdict import verdicts

        settings = _demo.Settings(
            minutes=minutes,
            seconds_per_run=seconds_per_run,
            table_seconds=min(table_seconds, 6 * minutes),
            objective=objective.value,
            text=(*(text or ()), *(files or ())),
            density=density,
            blocksize=blocksize,
            batch=batch,
            rate=rate,
            rest_rate=rest_rate,
            steps_per_update=steps_per_update,
            seed=seed,
            size=ModelSize(layers, width, heads, sequence, vocabulary),
        )
        _demo.check(settings)
        if files and not text:
            raise CommandError(f"{files[0]}: name text files after --text")
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(f"--output {output}: cannot be made ({error.strerror})") from None
        _set_threads(threads)
        results = Results(settings.described(), _facts())
        _show_facts(results.facts)
        _demo.time_table(settings, results, lambda: stop.requested, show)
        warn(results.busy)
        trained = _demo.train(settings, results, deadline, lambda: stop.requested)
        if trained is not None:
            _demo.finish(settings, results, trained, output)
        results.stopped = stop.requested
        report = write_report(output, results)
    for line in verdicts(results):
        print(f"• {line}")
    if results.completions:
        print(
            f"The saved model ({results.finisher}) finishes five lines of held-out text; "
            "what it wrote stands after ⟶:"
        )
    for done in results.completions:
        print(f"  {done.given}⟶{done.made}")
    print(f"Report: {report}")
    if results.reloaded is False:
        raise CommandError(f"the model in {output} does not read back as it was written")
    if stop.requested:
        raise typer.Exit(STOPPED)


def _facts() -> dict[str, str]:
    from sparsetile.bench._info import facts

    return facts()


def _show_facts(facts: dict[str, str]) -> None:
    from rich.table import Table

    if not sys.stdout.isatty():  # one fact a line, for grep
        for name, value in facts.items():
            print(f"{name}: {value}")
        return
    shown = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        shown.add_row(name, value)
    show(shown)


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _blocksizes(text: str) -> list[int]:
    return [int(b) for b in _numbers("--blocksize", text, 1, 4096) if _whole("--blocksize", b)]


def _densities(text: str) -> list[float]:
    return _numbers("--density", text, 1e-6, 1.0)


def _numbers(flag: str, text: str, least: float, most: float) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise CommandError(f"{flag} {text}: must be numbers with commas between them") from None
    if wrong := [n for n in numbers if not least <= n <= most]:
        raise CommandError(f"{flag} {wrong[0]:g}: must be from {least:g} to {most:g}")
    return numbers


def _whole(flag: str, number: float) -> bool:
    if number != int(number):
        raise CommandError(f"{flag} {number:g}: must be a whole number")
    return True
