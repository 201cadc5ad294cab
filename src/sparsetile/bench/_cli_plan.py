"""The command `plan`: how a product is cut over a machine of tiles, and what it costs there."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparsetile.bench._errors import CommandError, require_extras
from sparsetile.bench._terminal import warn, writable

if TYPE_CHECKING:
    from sparsetile.bench._plan_ask import Planned, Question
    from sparsetile.machine import MachineSpec

_PICTURES = (".svg", ".png", ".pdf")


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(plan)


def plan(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A matrix: .mtx, .smtx or .npz.")
    ] = None,
    random: Annotated[
        tuple[str, str, str, str] | None,
        typer.Option(metavar="M K B D", help="A random pattern, such as 4096 4096 16 1/16."),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option(help="CSV of many products: blocksize, density, m, n and, optional, more."),
    ] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Columns of the dense operand.")] = 1024,
    blocksize: Annotated[
        str | None, typer.Option(help="Blocks that a file's elements go into; 1 if not given.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    mode: Annotated[
        str, typer.Option(help="static: the pattern is fixed; dynamic: it may change.")
    ] = "static",
    machine: Annotated[
        str, typer.Option(help="bow-ipu, mk2-ipu, or a TOML file of a machine.")
    ] = "bow-ipu",
    compare: Annotated[
        str | None, typer.Option(metavar="MACHINE", help="Show another machine beside it.")
    ] = None,
    memory: Annotated[float, typer.Option(help="Share of a tile's memory to use, up to 1.")] = 0.6,
    oversize: Annotated[
        float | None,
        typer.Option(help="How much roomier dynamic buckets are than an even share; 0.3."),
    ] = None,
    passes: Annotated[
        str, typer.Option(help="Of fwd, grad_a and grad_w, with commas; dynamic only.")
    ] = "fwd",
    run: Annotated[
        bool, typer.Option("--run", help="Execute the plan on the modelled machine, and check it.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn at random.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Picture (.svg, .png, .pdf), or the CSV for --cells."),
    ] = None,
) -> None:
    """Plan a sparse product on a machine of tiles: partition, cycles, memory, speed-up."""
    from sparsetile.bench._plan_ask import read_question
    from sparsetile.machine import load_machine

    if cells is not None:
        if file is not None or random is not None or compare is not None or run:
            raise CommandError(
                "--cells has its products in the CSV; leave out the file, --random, --compare and "
                "--run"
            )
        if blocksize is not None or passes != "fwd":
            raise CommandError(
                "--cells takes blocks from the CSV and predicts the forward product; leave out "
                "--blocksize and --passes"
            )
        _cells(cells, output, mode, dtype, machine, memory)
        return
    if compare is not None and (run or output is not None):
        raise CommandError(
            f"--compare {compare}: shows two plans as a table; leave out --run and --output, or "
            "plan for each machine by itself"
        )
    if output is not None:
        if output.suffix.lower() not in _PICTURES:
            raise CommandError(f"--output {output}: the name must end in .svg, .png or .pdf")
        require_extras("plan --output", "plot")
        writable(output)
    question = read_question(
        file,
        random,
        n=n,
        blocksize=blocksize,
        mode=mode,
        dtype=dtype,
        memory=memory,
        oversize=oversize,
        passes=passes,
        seed=seed,
    )
    spec = load_machine(machine)
    if compare is not None:
        _compare(question, spec, load_machine(compare))
        return
    _one(question, spec, run=run, seed=seed, output=output)


def _one(
    question: "Question", spec: "MachineSpec", *, run: bool, seed: int, output: Path | None
) -> None:
    from sparsetile.bench._plan_ask import make_plan
    from sparsetile.bench._plan_print import plan_lines

    planned = make_plan(question, spec)
    print("\n".join(plan_lines(planned, question)))
    if output is not None:
        planned.draw(output, question.pattern)
        print(output)
    if run:
        _run(planned, question, seed)


def _run(planned: "Planned", question: "Question", seed: int) -> None:
    from sparsetile.bench._plan_print import passes
    from sparsetile.bench._plan_run import comparison, run_plan
    from sparsetile.plan._table import PASSES

    costs = dict(passes(planned, question))
    wrong = []
    for done in run_plan(planned, question, seed):
        steps = "" if done.steps is None else f", {done.steps} steps of propagation"
        print(f"\nExecuted, {PASSES[done.name]}{steps}")
        print(comparison(costs[done.name], done.profile))
        print()
        print(done.profile.table())
        print(
            f"largest error {done.error:.1e} of the absolute values summed; "
            f"{done.allowed:.1e} is allowed"
        )
        wrong += [] if done.right else [done.name]
    if wrong:
        raise CommandError(
            f"the tiles computed another result than the plain product: {', '.join(wrong)}; "
            "this is a fault of sparsetile: please report the command"
        )


def _compare(question: "Question", first: "MachineSpec", second: "MachineSpec") -> None:
    from sparsetile.bench._plan_ask import make_plan
    from sparsetile.bench._plan_print import compare_lines
    from sparsetile.plan import PlanError

    sides: list[tuple[str, Planned | str]] = []
    for spec in (first, second):
        try:
            sides.append((spec.name, make_plan(question, spec)))
        except PlanError as error:
            sides.append((spec.name, str(error)))
    print("\n".join(compare_lines(sides, question)))
    warn(
        "" if any(not isinstance(side, str) for _, side in sides) else "neither machine has a plan"
    )


def _cells(
    source: Path, output: Path | None, mode: str, dtype: str, machine: str, memory: float
) -> None:
    from sparsetile.bench import _plan_cells as cells
    from sparsetile.bench._plan_ask import DTYPES, MODES, choice

    if output is None:
        raise CommandError(f"--cells {source}: name the CSV to write, as in --output out.csv")
    if output.suffix.lower() in _PICTURES:
        raise CommandError(f"--output {output}: --cells writes a CSV; end the name in .csv")
    choice("--mode", mode, MODES)
    choice("--dtype", dtype, DTYPES)
    if not 0 < memory <= 1:
        raise CommandError(f"--memory {memory:g}: must be above 0 and at most 1, such as 0.6")
    writable(output)
    table = cells.read_cells(source, cells.Defaults(mode, dtype, machine, memory))
    answers = cells.predict_cells(table)
    cells.write_cells(output, table, answers)
    for line in cells.judge_lines(table, answers):
        print(line)
    print(output)
