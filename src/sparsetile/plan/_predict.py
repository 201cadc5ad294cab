"""Predicts what a sparse product with a random pattern costs, beside the dense one."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from sparsetile.machine import MachineSpec, load_machine
from sparsetile.plan._check import (
    PlanError,
    check_density,
    check_dtype,
    check_share,
    check_size,
    check_sizes,
)
from sparsetile.plan._cost import Cost
from sparsetile.plan._units import VECTOR
from sparsetile.plan.dense._cost import dense_cycles
from sparsetile.plan.dynamic._plan import DynamicOptions
from sparsetile.plan.dynamic._planner import plan_dynamic
from sparsetile.plan.static._order import planned_size, thin_last
from sparsetile.plan.static._planner import BLOCKS, cost_of
from sparsetile.plan.static._search import Problem, search

MODES = ("static", "dynamic")


@dataclass(frozen=True)
class Prediction:
    """What a product is expected to cost.

    Attributes:
        cost: Phases of the sparse product.
        dense: Cycles of the dense product of the same size.
        flop: Operations on stored values; a multiplication and an addition are two.
        machine: The machine.

    Examples:
        >>> p = predict(4096, 4096, 1024, blocksize=16, density=1 / 16, mode="dynamic")
        >>> round(p.speedup_over_dense, 1), round(p.flop_per_second / 1e12)
        (1.9, 24)
    """

    cost: Cost
    dense: float
    flop: float
    machine: MachineSpec

    @property
    def speedup_over_dense(self) -> float:
        """Dense cycles over sparse cycles."""
        return self.dense / self.cost.cycles

    @property
    def flop_per_second(self) -> float:
        """Operations on stored values in a second."""
        return self.flop / self.machine.seconds(self.cost.cycles)


def predict(
    m: int,
    k: int,
    n: int,
    *,
    blocksize: int,
    density: float,
    mode: str = "static",
    dtype: str = "float16",
    machine: MachineSpec | str = "bow-ipu",
    memory: float = 0.6,
) -> Prediction:
    """Predict a product of a sparse matrix with a random pattern, without making the pattern.

    Args:
        m: Rows of the sparse operand.
        k: Columns of the sparse operand.
        n: Columns of the dense operand.
        blocksize: Side of a block; `"static"` takes 1, 4, 8 and 16.
        density: Stored blocks over all blocks.
        mode: `"static"` or `"dynamic"`, which predicts the forward product.
        dtype: `"float16"` or `"float32"`.
        machine: A machine, the name of a preset, or a TOML file that describes one.
        memory: Share of a tile's memory that may be used.

    Returns:
        The prediction.

    Raises:
        ValueError: If an argument is out of range.
        PlanError: If the product does not fit into the memory.

    Examples:
        >>> p = predict(4096, 4096, 1024, blocksize=16, density=1 / 16)
        >>> round(p.speedup_over_dense, 1), round(p.flop_per_second / 1e12)
        (3.9, 50)
    """
    m, k, n = check_sizes("predict", m, k, n)
    blocksize = check_size("predict", "blocksize", blocksize)
    check_dtype("predict", dtype)
    check_density("predict", density)
    check_share("predict", "memory", memory)
    spec = load_machine(machine)
    if mode == "static":
        cost = _static(m, k, n, blocksize, density, dtype, spec, memory)
    elif mode == "dynamic":
        options = DynamicOptions(memory=memory)
        plan = plan_dynamic(
            m,
            k,
            n,
            density=density,
            blocksize=blocksize,
            dtype=dtype,
            machine=spec,
            options=options,
        )
        cost = plan.cost("fwd")
        if any(c.peak_bytes > plan.memory_limit for _, c in plan.costs):
            why = "it needs more: take fewer columns at a time, or a machine with more tiles"
            raise PlanError(_refusal(mode, m, k, n, blocksize, density, spec, memory, why))
    else:
        raise ValueError(f"predict got mode {mode!r}; give {' or '.join(map(repr, MODES))}")
    grid = -(-m // blocksize) * -(-k // blocksize)
    stored = math.ceil(density * grid) * blocksize**2
    return Prediction(
        cost, dense_cycles(m, k, n, dtype=dtype, machine=spec), 2.0 * stored * n, spec
    )


def _static(
    m: int,
    k: int,
    n: int,
    b: int,
    density: float,
    dtype: str,
    machine: MachineSpec,
    memory: float,
) -> Cost:
    if b not in BLOCKS:
        raise ValueError(
            f"predict got blocksize={b}; static kernels multiply blocks of "
            f"{', '.join(map(str, BLOCKS))}"
        )
    grid = -(-m // b), -(-k // b)
    rows, columns = (even_counts(lines, math.ceil(density * grid[0] * grid[1])) for lines in grid)
    grain = VECTOR[dtype]
    problem = Problem(
        counts=columns[thin_last(columns)],
        rows=planned_size(rows, True),
        columns=planned_size(columns, True),
        m=-(-m // b) * b,
        k=-(-k // b) * b,
        n=-(-n // grain) * grain,
        b=b,
        dtype=dtype,
        machine=machine,
    )
    cut = search(problem, memory * machine.memory_per_tile)
    if isinstance(cut, str):
        raise PlanError(_refusal("static", m, k, n, b, density, machine, memory, cut))
    return cost_of(cut)


def even_counts(lines: int, stored: int) -> Int64[np.ndarray, " lines"]:
    """How many blocks each row (or column) stores when they are spread as evenly as can be.

    What a random pattern stores in the mean: single patterns scatter about it, and so would the
    predictions.

    Args:
        lines: Block rows, or block columns.
        stored: Stored blocks.

    Returns:
        Counts, which differ by one at most.

    Examples:
        >>> even_counts(4, 6).tolist()
        [1, 2, 1, 2]
    """
    return np.diff(np.arange(lines + 1) * stored // lines).astype(np.int64)


def _refusal(
    mode: str,
    m: int,
    k: int,
    n: int,
    b: int,
    density: float,
    machine: MachineSpec,
    memory: float,
    why: str,
) -> str:
    return (
        f"no {mode} plan for {m}×{k} times {k}×{n} in blocks of {b} at density {density:g} on "
        f"{machine.name}, where a tile has {machine.memory_per_tile} bytes and "
        f"memory={memory:g} of them may be used; {why}"
    )
