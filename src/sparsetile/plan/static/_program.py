"""A static plan as a program for the tile machine."""

from dataclasses import dataclass
from functools import lru_cache

from sparsetile.machine import Compute, Program, Step, Variable
from sparsetile.plan.static._arrange import order_values, rearrange
from sparsetile.plan.static._fill import clear_partials, empty_rows, pad_rows
from sparsetile.plan.static._layout import Layout, layout
from sparsetile.plan.static._move import bring_values, gather, place, to_reduce
from sparsetile.plan.static._multiply import multiply
from sparsetile.plan.static._partition import partition
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._reduce import reduce


@dataclass(frozen=True, eq=False)
class StaticProgram:
    """The program of a static plan, and its operands.

    Attributes:
        program: Supersteps from operands to result.
        x: The dense operand: k×n, row by row, spread over all tiles.
        values: The sparse one's values in tile order, as `StaticPartitioner.place` gives them.
        y: The result: m×n, row by row, spread over all tiles.
    """

    program: Program
    x: Variable
    values: Variable
    y: Variable


@lru_cache(maxsize=2)
def static_program(plan: StaticPlan) -> StaticProgram:
    """Make the program of a static plan.

    Its supersteps are those of PopSparse (arXiv 2303.16999): each tile gathers the rows of the
    dense operand that its blocks touch, receives its non-zeros if several intervals of columns
    share them, and multiplies; partial sums of a row that several tiles hold are brought together
    and added; the result is placed. What Graphcore's popsparse library (poplibs) leaves out is
    done: rows without non-zeros become zero, and sizes need not be multiples of the block.

    Args:
        plan: How the product is cut.

    Returns:
        The program, and its inputs and output.

    Raises:
        ValueError: If the plan does not fit its pattern or its machine.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import Pattern
        >>> from sparsetile.plan._cost import Cost
        >>> plan = StaticPlan(
        ...     machine=preset("bow-ipu"), pattern=Pattern((2, 4), 1, [0, 2, 4], [0, 2, 1, 3]),
        ...     n=2, dtype="float32", preprocess=False, column_starts=(0, 2), split_tiles=(0, 4),
        ...     band_starts=(0, 2, 4), band_tiles=((0, 2, 4),), cost=Cost(()),
        ... )
        >>> for step in static_program(plan).program.steps:
        ...     print(step.name)
        Rearrangement
        Order of values
        Exchange of dense rows
        Multiply
        Exchange to reduce
        Reduction
        Placement
        Rearrangement
    """
    laid = layout(partition(plan))
    steps: list[Step] = []
    if len(laid.parts.order) and laid.y.size:
        steps += _product(laid)
    empty = empty_rows(laid)
    if empty is not None:
        steps.append(Compute("Empty rows", (empty,)))
    (m, k), name = plan.pattern.shape, "static sparse × dense"
    program = Program(
        name=f"{name} {m}×{k}×{plan.n}, {plan.dtype}",
        machine=plan.machine,
        steps=tuple(steps),
        inputs=(laid.x, laid.values),
        outputs=(laid.y,),
    )
    return StaticProgram(program, laid.x, laid.values, laid.y)


def _product(laid: Layout) -> list[Step]:
    ordered = order_values(laid)
    steps: list[Step] = [rearrange(laid, laid.x), *([ordered] if ordered else []), gather(laid)]
    if laid.tile_values is not laid.values:
        steps.append(bring_values(laid))
    before = (pad_rows(laid), clear_partials(laid))
    codelets = tuple(codelet for codelet in before if codelet is not None)
    steps.append(Compute("Multiply", (*codelets, multiply(laid))))
    if laid.sums.size:
        steps += [to_reduce(laid), Compute("Reduction", (reduce(laid),))]
    return [*steps, place(laid), rearrange(laid, laid.y)]
