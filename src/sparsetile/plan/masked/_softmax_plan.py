"""How the rows of a softmax over stored blocks are dealt to tiles."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int64

from sparsetile.machine import MachineSpec, load_machine
from sparsetile.matrix import Pattern
from sparsetile.matrix._check import as_choice
from sparsetile.plan._cost import Cost, Term
from sparsetile.plan._units import BYTES, VECTOR, up
from sparsetile.plan.masked._assign import deal
from sparsetile.plan.masked._check import as_patterns, check_dtypes
from sparsetile.plan.masked._load import exchange_cycles, mask_cycles
from sparsetile.plan.masked._plan import SUB_BLOCKS, Indices, crossed, stored

Counts = Int64[np.ndarray, " tiles"]

_START, _ROW = 30, 20
# Cycles of a vector: largest, exponential, sum, scale; and for the gradient sum, then scale.
_FORWARD, _GRADIENT = 9, 5


@dataclass(frozen=True, kw_only=True)
class SoftmaxPlan:
    """How a softmax over the stored blocks of rows, or its gradient, is dealt to tiles.

    Made by `plan_softmax`. Equal plans do the same; they can be keys of a dictionary.

    Attributes:
        machine: The machine.
        patterns: The stored blocks of each group.
        dtype: `"float16"` or `"float32"`; exponentials and sums are computed in float32.
        sub_block: What counts as not stored within diagonal blocks: `"none"`, `"zero_upper"` or
            `"zero_lower"`.
        in_place: Whether the result takes the place of the input (or of the gradient given).
        gradient: Whether this is the gradient.
        height: Rows that stay together on a tile, a divisor of a block's rows.
        cost: What is expected, phase by phase.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> plan = plan_softmax(preset("bow-ipu"), causal_pattern(64, 64, blocksize=16))
        >>> plan.name, plan.blocks, [term.name for term in plan.cost.terms]
        ('Softmax', 10, ['Gather rows', 'Softmax', 'Return rows'])
    """

    machine: MachineSpec
    patterns: tuple[Pattern, ...]
    dtype: str
    sub_block: str
    in_place: bool
    gradient: bool
    height: int = 1
    # Follows from all else, so it need not be compared.
    cost: Cost = field(default=Cost(()), compare=False)

    def __str__(self) -> str:
        masks = ", ".join(pattern.summary() for pattern in self.patterns)
        return f"{self.name} on {self.machine.name}, {self.dtype}: {masks}\n{self.cost}"

    @property
    def name(self) -> str:
        """What is computed."""
        return "Softmax gradient" if self.gradient else "Softmax"

    @property
    def blocksize(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.patterns[0].blocksize

    @property
    def blocks(self) -> int:
        """Stored blocks of all groups."""
        return sum(pattern.nnzb for pattern in self.patterns)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows of stored blocks, tile by tile, those of the same rows of the matrix together.

    Attributes:
        tile: Where each is, `[pieces]`.
        unit: Which rows of the matrix it belongs to, counted in the order of pieces, `[pieces]`.
        block: The stored block, `[pieces]`.
        first: Its first row within that block, `[pieces]`.
        row: That row in its matrix, `[pieces]`.
        column: Its first column in its matrix, `[pieces]`.
        diagonal: Whether its block is on the diagonal, `[pieces]`.
    """

    tile: Indices
    unit: Indices
    block: Indices
    first: Indices
    row: Indices
    column: Indices
    diagonal: Bool[np.ndarray, " pieces"]


def plan_softmax(
    machine: MachineSpec | str,
    patterns: Pattern | Sequence[Pattern],
    *,
    dtype: str = "float16",
    sub_block: str = "none",
    in_place: bool = False,
    gradient: bool = False,
) -> SoftmaxPlan:
    """Plan the softmax of every row over what is stored of it, or the gradient.

    All that is stored of a row goes to one tile, rows with most to the tile with least. What is
    not stored counts as minus infinity; a row of which nothing is stored has no values.

    Args:
        machine: A machine, the name of a preset, or a TOML file that describes one.
        patterns: Stored blocks; one pattern, or one for each group.
        dtype: `"float16"` or `"float32"`.
        sub_block: What counts as not stored within blocks on the diagonal: `"none"`,
            `"zero_upper"` for what lies right of the diagonal, `"zero_lower"` for what lies left.
        in_place: Whether the result takes the place of the input (or of the gradient given).
        gradient: Whether the gradient is wanted.

    Returns:
        The plan; the same one when asked again.

    Raises:
        TypeError: If patterns are none.
        ValueError: If arguments do not fit each other.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> plan = plan_softmax(preset("bow-ipu"), causal_pattern(64, 64, blocksize=16))
        >>> plan.height, plan.cost.cycles > 0
        (1, True)
    """
    groups = as_patterns(patterns)
    check_dtypes(dtype, "float32")
    as_choice("sub_block", sub_block, SUB_BLOCKS)
    return _completed(
        SoftmaxPlan(
            machine=load_machine(machine),
            patterns=groups,
            dtype=dtype,
            sub_block=sub_block,
            in_place=bool(in_place),
            gradient=bool(gradient),
        )
    )


@lru_cache(maxsize=64)
def _completed(plan: SoftmaxPlan) -> SoftmaxPlan:
    """The plan with the most rows together among those of least cost."""
    r = plan.blocksize[0]
    heights = [height for height in range(r, 0, -1) if r % height == 0]
    plans = [replace(plan, height=height) for height in heights]
    return min((replace(p, cost=_cost(p)) for p in plans), key=lambda p: p.cost.cycles)


def _cost(plan: SoftmaxPlan) -> Cost:
    pieces, machine = pieces_of(plan), plan.machine
    count = np.bincount(pieces.tile, minlength=machine.tiles)
    size = count * piece_size(plan) * BYTES[plan.dtype]
    come, most = (2 if plan.gradient else 1) * size, int(size.max())
    terms = (
        Term("Gather rows", float(exchange_cycles(come, machine).max()), int(come.max())),
        Term(plan.name, float(softmax_cycles(plan, pieces).max()), int(come.max())),
        Term("Return rows", float(exchange_cycles(size, machine).max()), most),
    )
    return Cost(terms)


def piece_size(plan: SoftmaxPlan) -> int:
    """Elements of the rows of a block that go to a tile together."""
    return plan.height * plan.blocksize[1]


@lru_cache(maxsize=8)
def pieces_of(plan: SoftmaxPlan) -> Pieces:
    """Which rows of which blocks go where."""
    blocks, (r, c), height = stored(plan.patterns), plan.blocksize, plan.height
    rows = plan.patterns[0].grid[0]
    parts = r // height
    nth = np.arange(parts)
    unit = ((blocks.group * rows + blocks.row)[:, None] * parts + nth).reshape(-1)
    weight = np.bincount(unit, minlength=len(plan.patterns) * rows * parts)
    tile = deal(weight, plan.machine.tiles)[unit]
    block = np.repeat(np.arange(plan.blocks), parts)
    order = np.lexsort((block, unit, tile))
    tile, unit, block = tile[order], unit[order], block[order]
    first = unit % parts * height
    row, column = blocks.row[block], blocks.column[block]
    return Pieces(
        tile,
        np.cumsum(np.diff(unit, prepend=-1) != 0) - 1,
        block,
        first,
        row * r + first,
        column * c,
        crossed(row, column, (r, c)),
    )


def softmax_cycles(plan: SoftmaxPlan, pieces: Pieces) -> Counts:
    """Cycles of a tile's rows, an estimate of ours.

    A worker takes 20 cycles for each of its rows and 30 to begin. For each vector of 8 bytes it
    takes 9 cycles: 1 to find the largest, 4 for the exponential of the difference, 1 to add, 3 to
    load, scale and store. The gradient takes 5: 2 to multiply and add, 3 to subtract, scale and
    store. Triangles in diagonal blocks are masked first.

    Args:
        plan: The softmax.
        pieces: What lies where.

    Returns:
        Cycles.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> plan = plan_softmax(preset("bow-ipu"), causal_pattern(16, 16, blocksize=16))
        >>> int(softmax_cycles(plan, pieces_of(plan))[0])
        354
    """
    machine, tiles = plan.machine, plan.machine.tiles
    count = np.bincount(pieces.tile, minlength=tiles)
    new = np.diff(pieces.unit, prepend=-1) != 0
    rows = np.bincount(pieces.tile[new], minlength=tiles) * plan.height
    vectors = up(count * piece_size(plan), VECTOR[plan.dtype] * machine.workers)
    each = _GRADIENT if plan.gradient else _FORWARD
    worker = _START + _ROW * up(rows, machine.workers) + each * vectors
    cycles = np.where(count > 0, machine.workers * worker, 0)
    if plan.sub_block != "none" and not plan.gradient:
        masked = np.bincount(pieces.tile[pieces.diagonal], minlength=tiles)
        cycles = cycles + mask_cycles(masked, piece_size(plan), plan.dtype, machine)
    return cycles
