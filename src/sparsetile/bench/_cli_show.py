"""The command `show`: the kernel that a product would run, its plan and its code."""

from typing import Annotated

import typer

from sparsetile.bench._errors import CommandError


def add_to(app: typer.Typer) -> None:
    """Give the command line this command."""
    app.command()(show)


def show(
    op: Annotated[str, typer.Argument(help="linear, spmm or sddmm.")],
    m: Annotated[int, typer.Option("-m", min=1, help="Rows of the matrix.")] = 1024,
    k: Annotated[int, typer.Option("-k", min=1, help="Columns of it.")] = 1024,
    n: Annotated[int, typer.Option("-n", min=1, help="Rows of the batch.")] = 256,
    blocksize: Annotated[str, typer.Option(help="Block, such as 4 or 16x1.")] = "16",
    density: Annotated[str, typer.Option(help="Such as 0.1 or 1/8.")] = "1/8",
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16, float16, float32*bfloat16, float32*float16.")
    ] = "float32",
    transpose: Annotated[
        bool, typer.Option("--transpose", help="The product by Wᵀ: the gradient of the input.")
    ] = False,
    ir: Annotated[bool, typer.Option("--ir", help="Print the LLVM IR too.")] = False,
    asm: Annotated[bool, typer.Option("--asm", help="Print the assembly too.")] = False,
    isa: Annotated[
        str, typer.Option(help="Instruction set; the best of the processor when not given.")
    ] = "",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the product.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn at random.")] = 0,
) -> None:
    """Say which kernel a product runs, how it is cut, and print its code."""
    import torch

    from sparsetile.bench import _show
    from sparsetile.bench._sweep import Lists, cases_of

    if op not in _show.OPS:
        raise CommandError(f"{op!r} is no product to show; choose one of {', '.join(_show.OPS)}")
    lists = Lists(op, str(m), str(k), str(n), blocksize, density, dtype, str(threads))
    cases = cases_of(lists)
    if len(cases) != 1:
        raise CommandError("show describes one product; give one block, density and dtype")
    _show.choose_isa(isa)
    torch.set_num_threads(threads)
    for line in _show.lines_of(cases[0], transpose=transpose, seed=seed, ir=ir, asm=asm):
        print(line)
