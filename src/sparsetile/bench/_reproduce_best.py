"""Best over n, as most published figures are."""

from collections.abc import Iterator
from functools import cache
from math import inf

from sparsetile.bench._reproduce_cells import BOW, Cell, Outcome, Outcomes
from sparsetile.machine import MachineSpec

#: Columns of the dense operand that are tried.
BATCHES = (4, 16, 64, 256, 1024, 4096, 16384, 65536)
# Share of the machine's memory that dense operands and result may take: published runs end there.
_DENSE = 0.3


def cells_of(
    mode: str, dtype: str, b: int, parts: int, m: int, machine: MachineSpec = BOW
) -> list[Cell]:
    """The cells among which the best is sought."""
    return [Cell(mode, dtype, b, parts, m, n, machine) for n in BATCHES]


def best(
    outcomes: Outcomes,
    mode: str,
    dtype: str,
    b: int,
    parts: int,
    m: int,
    machine: MachineSpec = BOW,
) -> tuple[Cell, Outcome] | None:
    """The fastest of what fits.

    Args:
        outcomes: What is known.
        mode: `"static"` or `"dynamic"`.
        dtype: `"float16"` or `"float32"`.
        b: Block size.
        parts: The density is one over this.
        m: Rows and columns.
        machine: Where it runs.

    Returns:
        The cell and what it costs; None if nothing fits, or nothing was asked for.
    """
    known = ((cell, outcomes.get(cell)) for cell in cells_of(mode, dtype, b, parts, m, machine))
    fits = [(cell, outcome) for cell, outcome in known if outcome is not None]
    return max(fits, key=lambda pair: pair[1].tflops, default=None)


@cache
def best_dense(m: int, dtype: str, machine: MachineSpec = BOW) -> float:
    """Dense TFLOP/s at the best n that fits.

    Args:
        m: Rows and columns of the weight.
        dtype: `"float16"` or `"float32"`.
        machine: Where it runs.

    Returns:
        10¹² operations a second.

    Examples:
        >>> round(best_dense(4096, "float16"))
        227
    """
    return max(_dense_rates(m, dtype, machine), default=-inf)


def _dense_rates(m: int, dtype: str, machine: MachineSpec) -> Iterator[float]:
    from sparsetile.plan import dense_cycles

    z = 2 if dtype == "float16" else 4
    for n in BATCHES:
        if (m * m + 2 * m * n) * z <= _DENSE * machine.memory:
            cycles = dense_cycles(m, m, n, dtype=dtype, machine=machine)
            yield 2 * m * m * n / machine.seconds(cycles) / 1e12
