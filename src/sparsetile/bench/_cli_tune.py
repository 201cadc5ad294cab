"""The command `tune`: tile shapes of the kernels, chosen by measuring on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsetile.bench._errors import CommandError
from sparsetile.bench._terminal import STOPPED, show, warn, writable

if TYPE_CHECKING:
    from sparsetile.bench._tune import Answer


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(tune)


def tune(
    op: Annotated[
        str, typer.Option(help="Of linear, dx and dvalues, with commas.")
    ] = "linear,dx,dvalues",
    m: Annotated[str, typer.Option("-m", help="Outputs, with commas.")] = "2048",
    k: Annotated[str, typer.Option("-k", help="Inputs, with commas; m when not given.")] = "",
    n: Annotated[
        str, typer.Option("-n", "--n", help="Rows of the batch, with commas.")
    ] = "64,1024",
    blocksize: Annotated[
        str, typer.Option(help="Blocks, such as 4 or 16x1, with commas.")
    ] = "1,4,16",
    density: Annotated[str, typer.Option(help="Such as 0.1 or 1/8, with commas.")] = "1/8",
    dtype: Annotated[
        str, typer.Option(help="As for bench: float32, float32*bfloat16, …, with commas.")
    ] = "float32",
    isa: Annotated[
        str, typer.Option(help="Instruction set; the best of the processor when not given.")
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Seconds of timing for one line of the table.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn at random.")] = 0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The table; other lines of one there are kept.")
    ] = Path("tiles.csv"),
) -> None:
    """Find the tile shapes that suit this machine, and write a table of them."""
    import torch

    from sparsetile.bench._show import choose_isa
    from sparsetile.bench._sweep import Lists, cases_of

    cases = cases_of(Lists(op, m, k, n, blocksize, density, dtype, "1"))
    writable(output)
    choose_isa(isa)
    from sparsetile.bench import _tune
    from sparsetile.bench._files import write_text
    from sparsetile.bench._progress import say
    from sparsetile.bench._stop import Stop
    from sparsetile.bench._waiting import Waiting
    from sparsetile.ops.cpu import _tiling

    if unknown := [case.op for case in cases if case.op not in _tune.OPS]:
        raise CommandError(f"--op has {unknown[0]!r}; it takes {', '.join(_tune.OPS)}")
    kept = _tiling.read(output, "--output") if output.exists() else ()
    torch.set_num_threads(1)
    questions = _tune.questions_of(cases)
    done: list[Answer] = []
    with Stop() as stop, Waiting("Timing tiles", seconds * len(questions)) as waiting:
        asked = waiting.between(lambda: stop.requested)

        def measure(case: Any, rules: Any, seconds: float) -> list[float] | None:
            return _tune.measure_tiles(case, rules, seconds, seed=seed, stop=asked)

        for answer in _tune.answers(questions, seconds, measure):
            done.append(answer)
            write_text(output, _tune.table_of(done, kept))  # after each: nothing measured is lost
            say(f"  {len(done)} of {len(questions)}: {_sentence(answer)}")
    if done:
        show(_table(done))
        print(output)
        print(f"To use it, set SPARSETILE_TILES={output.resolve()}")
    if stop.requested:
        warn(f"stopped after {len(done)} of {len(questions)} lines of the table")
        raise typer.Exit(STOPPED)


def _sentence(answer: "Answer") -> str:
    from sparsetile.bench._tune import tile_text

    what = " ".join(answer.before.key)
    if answer.rule == answer.before:
        return f"{what}: {tile_text(answer.before)} stays"
    return f"{what}: {tile_text(answer.best)}, {answer.gain:.2f}×"


def _table(answers: "list[Answer]") -> Any:
    from rich.table import Table

    from sparsetile.bench._tune import NOISE, tile_text

    table = Table(
        title="tiles; another one is taken where it is more than "
        f"{NOISE - 1:.0%} faster than the present one",
        title_justify="left",
    )
    for name in ("kernel", "isa", "dtype", "block", "n", "present tile", "best tile"):
        table.add_column(name, overflow="fold")
    table.add_column("faster", justify="right")
    table.add_column("taken")
    for one in answers:
        same = one.best == one.before
        taken = "best" if one.rule != one.before else "present"
        tiles = (tile_text(one.before), "the same" if same else tile_text(one.best))
        table.add_row(*one.before.key, *tiles, "" if same else f"{one.gain - 1:+.1%}", taken)
    return table
