"""The command `bench`: products on sizes of yours, beside every library that can do them."""

from pathlib import Path
from typing import Annotated

import typer

from sparsetile.bench._errors import CommandError
from sparsetile.bench._terminal import STOPPED, show, warn, writable


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(bench)


def bench(
    op: Annotated[
        str,
        typer.Argument(
            help="linear, linear+grad, dx, dvalues, spmm, sddmm or train-step; several with commas."
        ),
    ],
    m: Annotated[str, typer.Option("-m", help="Outputs, with commas.")] = "4096",
    k: Annotated[str, typer.Option("-k", help="Inputs, with commas; m when not given.")] = "",
    n: Annotated[str, typer.Option("-n", help="Rows of the batch, with commas.")] = "256",
    blocksize: Annotated[
        str, typer.Option(help="Blocks, such as 4 or 16x1, with commas.")
    ] = "1,4,16",
    density: Annotated[str, typer.Option(help="Such as 0.1 or 1/8, with commas.")] = "1/8",
    dtype: Annotated[
        str,
        typer.Option(
            help="float32, bfloat16, float16, or float32*bfloat16 for values in 16 bits; commas."
        ),
    ] = "float32",
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas.")] = "1",
    peers: Annotated[
        str, typer.Option(help="all, none (torch's dense alone), or names with commas.")
    ] = "all",
    seconds: Annotated[
        float, typer.Option(min=0.01, help="Seconds of timing for one cell, all peers together.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn at random.")] = 0,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what the file holds already.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="CSV file; one that is there is gone on with."),
    ] = None,
) -> None:
    """Time products beside torch, scipy, MKL, numba and JAX, and against the machine's bounds."""
    from sparsetile.bench._bench_file import File
    from sparsetile.bench._bench_run import Settings, Sweep, run, went_wrong
    from sparsetile.bench._bench_show import Cells, result_table, roof_text
    from sparsetile.bench._peers import OWN, choose_peers
    from sparsetile.bench._sweep import Lists, cases_of

    cases = cases_of(Lists(op, m, k, n, blocksize, density, dtype, threads))
    settings = Settings(choose_peers(peers), seconds, seed)
    writable(output)
    file, sweep, stopped = File(output, fresh=fresh), Sweep(), False
    try:
        with Cells(len(cases)) as cells:
            run(cases, settings, file, sweep, cells.show)
    except KeyboardInterrupt:
        stopped = True
    for key, roof in sweep.roofs.items():
        print(roof_text(key, roof))
    if sweep.rows:
        show(result_table(sweep.rows))
    if sweep.skipped:
        print(f"{sweep.skipped} of {len(cases)} cells were in {output} already")
    warn(sweep.busy_warning())
    if output is not None and len(file):
        print(output)
    if stopped:
        kept = output is not None and len(file)
        done = f"; what is done is in {output}, and the same command goes on" if kept else ""
        warn(f"stopped{done}")
        raise typer.Exit(STOPPED)
    bad = [row for row in sweep.rows if row["peer"] == OWN and went_wrong(row["verdict"])]
    if bad:
        raise CommandError(
            f"{len(bad)} of {len(cases)} cells went wrong here, not with a peer; the first: "
            f"{bad[0]['verdict']}"
        )
