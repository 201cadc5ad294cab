"""The command `step`: a whole training step of BERT's encoder, dense against sparse."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._sweep import blocksizes_of, densities_of
from sparsetile.bench._terminal import STOPPED, show, warn, writable

if TYPE_CHECKING:
    from sparsetile.bench._steptime import Timed
    from sparsetile.bench._steptime_profile import Share


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(step)


def step(
    preset: Annotated[str, typer.Option(help="tiny, mini, small, medium or base.")] = "base",
    density: Annotated[str, typer.Option(help="Densities, with commas.")] = "0.1",
    blocksize: Annotated[str, typer.Option(help="Block sizes, with commas.")] = "1,4,16",
    dtype: Annotated[str, typer.Option(help="float32, or bfloat16 by autocast.")] = "float32",
    sequence: Annotated[int, typer.Option(min=1, help="Tokens of a row.")] = 128,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a batch.")] = 16,
    dropout: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of values dropped.")
    ] = 0.0,
    attention: Annotated[
        str, typer.Option(help="sdpa or eager; in bfloat16 eager is faster on CPUs.")
    ] = "sdpa",
    clip: Annotated[float, typer.Option(min=0.0, help="Longest gradient; 0 does not clip.")] = 0.0,
    method: Annotated[
        str, typer.Option(help="Whose pattern updates to time: dynsparse, rigl, or static.")
    ] = "dynsparse",
    profile: Annotated[
        bool, typer.Option("--profile", help="Also say where the time of a step goes.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.1,
            help="Seconds to measure for; every model takes 7 steps even if they take longer.",
        ),
    ] = 60.0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a product; all CPUs when not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn at random.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="CSV file; -profile.csv beside it.")
    ] = None,
) -> None:
    """Time a whole training step (forward, backward, AdamW), dense against sparse."""
    from sparsetile.bench.pretrain._settings import PRESETS

    _one_of("--preset", preset, tuple(PRESETS))
    _one_of("--dtype", dtype, ("float32", "bfloat16"))
    _one_of("--attention", attention, ("sdpa", "eager"))
    _one_of("--method", method, ("dynsparse", "rigl", "static"))
    layers, width, heads = PRESETS[preset]
    blocksizes, densities = blocksizes_of(blocksize), densities_of(density)
    if wide := [sides for sides in blocksizes if max(sides) > width]:
        raise CommandError(f"--blocksize {max(wide[0])}: must be at most the width, {width}")
    writable(output)
    require_extras("step", "hf")
    import torch

    from sparsetile.bench import _steptime
    from sparsetile.bench._busy import Neighbours
    from sparsetile.bench._files import write_csv
    from sparsetile.bench._progress import say
    from sparsetile.bench._steptime_profile import shares_of
    from sparsetile.bench._stop import Stop
    from sparsetile.bench._waiting import Waiting

    if threads is not None:
        torch.set_num_threads(threads)
    model = _steptime.Model(
        layers, width, heads, sequence, batch, dropout, attention, dtype, clip, seed
    )
    neighbours = Neighbours()
    shares: dict[str, list[Share]] = {}
    with Stop() as stop, Waiting("Timing steps", seconds) as waiting:
        say(f"  {model.name}, {dtype}, {torch.get_num_threads()} threads: models are made")
        rows, cases = _steptime.time_steps(
            model,
            blocksizes,
            densities,
            method,
            seconds=seconds,
            stop=waiting.between(lambda: stop.requested),
        )
        for name, case in cases.items() if profile and rows else ():
            if stop.requested:
                break
            say(f"  profiling {name}")
            shares[name] = shares_of(case)
    if rows:
        show(_table(rows, list(cases)))
    for name, row in zip(cases, rows, strict=False):
        if name in shares:
            show(_share_table(name, row.ratio, shares[name]))
    warn(neighbours.warning())
    if output is not None and rows:
        write_csv(output, _steptime.COLUMNS, _steptime.rows_of(rows))
        print(output)
        if shares:
            beside = output.with_name(f"{output.stem}-profile.csv")
            write_csv(
                beside,
                ("case", "category", "part"),
                (
                    {"case": name, "category": share.category, "part": share.part}
                    for name, found in shares.items()
                    for share in found
                ),
            )
            print(beside)
    if stop.requested:
        raise typer.Exit(STOPPED)


def _one_of(flag: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise CommandError(f"{flag} {given}: must be one of {', '.join(allowed)}")


def _table(rows: "list[Timed]", names: list[str]) -> Any:
    from rich.table import Table

    from sparsetile.bench._files import human_bytes

    first = rows[0]
    table = Table(
        title=f"Training step of {first.model}, {first.batch}×{first.sequence} tokens, "
        f"{first.dtype}, attention {first.attention}, {first.threads} threads, {first.clock} time"
    )
    titles = (
        "weights", "ms", "20–80 %", "faster", "bytes of layers", "of dense",
        "an update", "of a run", "every 100",
    )  # fmt: skip
    for title in titles:
        table.add_column(title, justify="left" if title == "weights" else "right")
    for name, row in zip(names, rows, strict=True):
        cost, published, often = row.update_steps, row.share_published, row.share_of_100
        table.add_row(
            name,
            f"{row.median:.0f}",
            f"{row.p20:.0f}–{row.p80:.0f}",
            f"{row.ratio:.2f}×",
            human_bytes(row.bytes),
            f"{row.bytes / row.dense_bytes:.3f}",
            "" if cost is None else f"{cost:.2f} steps",
            "" if published is None else f"{published:.3%}",
            "" if often is None else f"{often:.2%}",
        )
    return table


def _share_table(name: str, ratio: float, shares: "list[Share]") -> Any:
    from rich.table import Table

    from sparsetile.bench._steptime_profile import bound

    most = max((share.part for share in shares if share.is_ours), default=0.0)
    table = Table(
        title=f"Step of {name}; {bound(ratio, shares):.1f}× of dense if products were free"
        + (f"; largest of our other code {most:.1%}" if most else "")
    )
    table.add_column("category")
    table.add_column("share", justify="right")
    for share in shares:
        if share.part >= 0.001:
            table.add_row(share.category, f"{share.part:.1%}")
    return table
