"""What `sparsetile plan` was asked: the product, and the plan of it on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from sparsetile.bench._errors import CommandError

if TYPE_CHECKING:
    from sparsetile.machine import MachineSpec
    from sparsetile.matrix import Pattern
    from sparsetile.plan import Cost, DynamicPlan, StaticPlan

MODES = ("static", "dynamic")
DTYPES = ("float16", "float32")
PASSES = ("fwd", "grad_a", "grad_w")


@dataclass(frozen=True)
class Question:
    """A product to plan.

    Args:
        pattern: Stored blocks of the sparse operand.
        n: Columns of the dense one.
        mode: `"static"` or `"dynamic"`.
        dtype: Of operands and result.
        memory: Share of a tile's memory that may be used.
        oversize: How much roomier buckets of a dynamic plan are than an even share.
        passes: Which passes to show, and to run.
    """

    pattern: Pattern
    n: int
    mode: str
    dtype: str
    memory: float
    oversize: float
    passes: tuple[str, ...]


@dataclass(frozen=True)
class Planned:
    """A product's plan, and what goes with it.

    Args:
        plan: The plan.
        machine: The machine.
        cost: What the forward product is expected to cost.
        dense: Cycles of the dense product.
        limit: Bytes that a tile may use.
        flop: Operations on stored values.
    """

    plan: StaticPlan | DynamicPlan
    machine: MachineSpec
    cost: Cost
    dense: float
    limit: float
    flop: float

    @property
    def bytes(self) -> int:
        """Most temporary memory of a tile in any planned pass."""
        return max(cost.peak_bytes for cost in (self.cost, *self.passes.values()))

    @property
    def passes(self) -> dict[str, Cost]:
        """What each planned pass is expected to cost."""
        costs: tuple[tuple[str, Cost], ...] = getattr(self.plan, "costs", ())
        return {"fwd": self.cost, **dict(costs)}

    @property
    def fits(self) -> bool:
        """Whether the plan keeps to the memory that was allowed."""
        return self.bytes <= self.limit

    def draw(self, path: Path, pattern: Pattern) -> None:
        """Draw the plan, and how the pattern lies in it."""
        from sparsetile.plan._picture import draw_plan

        draw_plan(self.plan, path, pattern)


def make_plan(question: Question, machine: MachineSpec) -> Planned:
    """Plan a product.

    Args:
        question: The product.
        machine: The machine.

    Returns:
        Its plan.

    Raises:
        PlanError: If it has none.
    """
    from sparsetile.plan import DynamicOptions, dense_cycles, plan_dynamic, plan_static

    pattern, n, dtype = question.pattern, question.n, question.dtype
    (m, k), (r, c) = pattern.shape, pattern.blocksize
    plan: StaticPlan | DynamicPlan
    if question.mode == "static":
        plan = plan_static(pattern, n, dtype=dtype, machine=machine, memory=question.memory)
        cost, limit = plan.cost, question.memory * machine.memory_per_tile
    else:
        # The gradient of the input is always planned too, as PopSparse does.
        options = DynamicOptions(
            memory=question.memory,
            oversize=question.oversize,
            grad_w="grad_w" in question.passes,
        )
        plan = plan_dynamic(
            m,
            k,
            n,
            max_blocks=pattern.nnzb,
            blocksize=(r, c),
            dtype=dtype,
            machine=machine,
            options=options,
        )
        cost, limit = plan.cost("fwd"), plan.memory_limit
    dense = dense_cycles(m, k, n, dtype=dtype, machine=machine)
    return Planned(plan, machine, cost, dense, limit, 2.0 * pattern.nnzb * r * c * n)


def read_question(
    file: Path | None,
    random: Sequence[str] | None,
    *,
    n: int,
    blocksize: str | None,
    mode: str,
    dtype: str,
    memory: float,
    oversize: float | None,
    passes: str,
    seed: int,
) -> Question:
    """Make the question that was typed.

    Args:
        file: A file of a sparse matrix, if one was named.
        random: m, k, block and density, if a random pattern was asked for.
        n: Columns of the dense operand.
        blocksize: Block for the file.
        mode: What kind of plan.
        dtype: Of operands and result.
        memory: Share of a tile's memory.
        oversize: Of buckets, if given.
        passes: Comma list.
        seed: Decides the random pattern.

    Returns:
        The question.

    Raises:
        CommandError: If something is missing, doubled, or out of range.
    """
    from sparsetile.matrix import load_pattern, random_pattern

    if (file is None) == (not random):
        raise CommandError(
            "plan was given "
            + ("no matrix" if file is None else f"{file} and --random")
            + "; it takes one: name a file .mtx, .smtx or .npz, or write --random m k b d, "
            "such as --random 4096 4096 16 1/16"
        )
    asked = tuple(dict.fromkeys(name.strip() for name in passes.split(",")))
    choice("--mode", mode, MODES)
    choice("--dtype", dtype, DTYPES)
    for name in asked:
        choice("--passes", name, PASSES)
    if mode == "static" and asked != ("fwd",):
        raise CommandError(
            f"--passes {passes}: a static plan is of one product, fwd; use --mode dynamic, or plan "
            "the transposed matrix"
        )
    if not 0 < memory <= 1:
        raise CommandError(f"--memory {memory:g}: must be above 0 and at most 1, such as 0.6")
    if oversize is not None and mode == "static":
        raise CommandError(
            f"--oversize {oversize:g}: a static plan has no buckets; use --mode dynamic, or leave "
            "it out"
        )
    if oversize is not None and not 0 <= oversize <= 1000:
        raise CommandError(f"--oversize {oversize:g}: must be from 0 to 1000, such as 0.3")
    room = 0.3 if oversize is None else oversize
    if random:
        if blocksize is not None:
            raise CommandError(
                f"--blocksize {blocksize}: is for files; --random {' '.join(random)} has its block "
                f"already: leave one out"
            )
        m, k = (side("--random", text) for text in random[:2])
        pattern = random_pattern(
            m, k, blocksize=block(random[2]), density=density("--random", random[3]), seed=seed
        )
    else:
        assert file is not None
        try:
            pattern = load_pattern(file, block(blocksize or "1"))
        except (OSError, ImportError) as error:
            raise CommandError(" ".join(str(error).split())) from None
    return Question(pattern, n, mode, dtype, memory, room, asked)


def choice(flag: str, value: str, allowed: Sequence[str]) -> str:
    """Refuse a name that is not one of those there are."""
    if value not in allowed:
        raise CommandError(f"{flag} {value}: there is no {value!r}; give {listed(allowed)}")
    return value


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them: `a or b`, `a, b or c`."""
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def side(flag: str, text: str) -> int:
    """Read a side of a matrix."""
    if not text.isdecimal() or not 1 <= int(text) <= 1 << 24:
        raise CommandError(f"{flag}: {text!r} is no size; give a whole number from 1, such as 4096")
    return int(text)


def block(text: str) -> tuple[int, int]:
    """Read a block: `16`, or `16x1`."""
    rows, cross, columns = text.replace("×", "x").partition("x")
    sides = [rows, columns if cross else rows]
    if not all(s.isdecimal() and 1 <= int(s) <= 4096 for s in sides):
        raise CommandError(
            f"block {text!r}: cannot be; give a side from 1 to 4096, such as 16, or r×c, such as "
            "16x1"
        )
    return int(sides[0]), int(sides[1])


def density(what: str, text: str) -> float:
    """Read a density: `0.0625`, or `1/16`."""
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        value = 0.0
    if not 0 < value <= 1:
        raise CommandError(
            f"{what}: density {text!r} cannot be; give a number above 0 and up to 1, such as "
            "0.0625, or a fraction, such as 1/16"
        )
    return value
