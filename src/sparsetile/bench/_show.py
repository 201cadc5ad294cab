"""What `sparsetile show` prints: the kernels that one product runs, their settings and code."""

import os
from collections.abc import Iterator

import torch

from sparsetile.bench._bench_case import Case
from sparsetile.bench._errors import CommandError
from sparsetile.matrix import random_pattern
from sparsetile.ops import backend, last_kernel, linear, sddmm, spmm

OPS = ("linear", "spmm", "sddmm")


def choose_isa(name: str) -> None:
    """Force an instruction set, before the first product of the process.

    Args:
        name: Its name; nothing is forced where it is empty.

    Raises:
        CommandError: If another is in use already.
        ValueError: If it cannot run here.
    """
    if not name:
        return
    os.environ["SPARSETILE_ISA"] = name  # read when the back end is first imported
    from sparsetile.ops.cpu import instruction_sets

    if instruction_sets()[0] != name:
        raise CommandError(f"--isa {name}: this process already uses {instruction_sets()[0]}")


def lines_of(case: Case, *, transpose: bool, seed: int, ir: bool, asm: bool) -> Iterator[str]:
    """Run one product on random data and describe what ran.

    Args:
        case: The product: linear, spmm or sddmm, and its sizes.
        transpose: Multiply by Wᵀ, as the gradient of the input does.
        seed: Of the pattern.
        ir: Give the LLVM IR of every kernel too.
        asm: Give their assembly too.

    Yields:
        Text, line by line or many lines at once.

    Raises:
        CommandError: If it cannot be transposed.
    """
    from sparsetile.ops.cpu import explain, instruction_sets

    if transpose and case.op == "sddmm":
        raise CommandError("--transpose goes with linear and spmm; sddmm has one direction")
    launches = explain(lambda: _compute(case, transpose, seed))
    yield f"kernel: {last_kernel()}"
    yield f"instruction set: {instruction_sets()[0]}"
    for number, launch in enumerate(launches, 1):
        threads = f"{launch.threads} thread{'s' if launch.threads > 1 else ''}"
        yield f"run {number}: {launch.kind} {launch.worker}, {threads}"
        yield f"  made for: {_pairs(launch.settings)}"
        yield f"  called with: {_pairs(launch.arguments)}"
    if not launches:
        yield "nothing ran: no block is stored"
    for kernel in dict.fromkeys(launch.kernel for launch in launches):
        launch = next(one for one in launches if one.kernel == kernel)
        numbers = [str(i) for i, one in enumerate(launches, 1) if one.kernel == kernel]
        if ir:
            yield f"\n; LLVM IR of {launch.kind} (run {', '.join(numbers)})\n{launch.ir()}"
        if asm:
            yield f"\n# assembly of {launch.kind} (run {', '.join(numbers)})\n{launch.assembly()}"


def _compute(case: Case, transpose: bool, seed: int) -> None:
    pattern = random_pattern(
        case.m, case.k, blocksize=(case.r, case.c), density=case.density, seed=seed
    )
    dense, stored = case.formats
    values = torch.randn(pattern.nnzb, case.r, case.c).to(stored)
    rows, columns = (case.m, case.k) if not transpose else (case.k, case.m)
    indices = (pattern.crow_indices, pattern.col_indices)
    with torch.no_grad(), backend("cpu"):
        if case.op == "sddmm":
            a, b = torch.randn(case.m, case.n).to(dense), torch.randn(case.n, case.k).to(dense)
            sddmm(a, b, pattern)
        elif transpose:
            # the public functions multiply by Wᵀ only on the way back
            x = torch.randn(case.n, columns).to(dense)
            y = torch.ops.sparsetile.linear(x, values, *indices, None, case.m, case.k, True)
            assert y.shape == (case.n, rows)
        elif case.op == "linear":
            linear(torch.randn(case.n, columns).to(dense), values, pattern)
        else:
            spmm(values, pattern, torch.randn(columns, case.n).to(dense))


def _pairs(facts: dict[str, object] | dict[str, int]) -> str:
    return ", ".join(f"{name} {_plain(value)}" for name, value in facts.items())


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return "×".join(map(str, value))
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
