"""What is decided before a product or softmax with a mask of blocks runs."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64

from sparsetile.machine import MachineSpec
from sparsetile.matrix import Pattern
from sparsetile.plan._cost import Cost

METHODS = ("strip", "block", "block-naive")
SUB_BLOCKS = ("none", "zero_upper", "zero_lower")
Indices = Int64[np.ndarray, " n"]


@dataclass(frozen=True, eq=False)
class Stored:
    """The stored blocks of all groups, one group after the other.

    Attributes:
        group: Group of each, `[nnzb]`.
        row: Block row within the group, `[nnzb]`.
        column: Block column within the group, `[nnzb]`.
    """

    group: Indices
    row: Indices
    column: Indices


def stored(patterns: tuple[Pattern, ...]) -> Stored:
    """Spell out the stored blocks of groups."""
    return Stored(
        np.repeat(np.arange(len(patterns)), [pattern.nnzb for pattern in patterns]),
        np.concatenate([pattern.row_indices.numpy() for pattern in patterns]).astype(np.int64),
        np.concatenate([pattern.col_indices.numpy() for pattern in patterns]).astype(np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class MaskedPlan:
    """How a product with a mask of blocks is dealt to tiles (popsparse, "block sparse").

    Made by `plan_dsd` or `plan_dds`. Equal plans do the same; they can be keys of a dictionary.

    Attributes:
        machine: The machine.
        kind: `"dsd"` for dense × sparse → dense, `"dds"` for dense × dense → sparse.
        patterns: The stored blocks of each group: of the right operand as it is stored (dsd), or
            of the result (dds).
        m: Rows of the left operand, of one group.
        k: Columns of the left operand.
        n: Columns of the result.
        block: Sides (bm, bk, bn) of blocks along m, k and n.
        dtype: `"float16"` or `"float32"`, of operands and result.
        partials: Dtype of partial sums.
        transposed: Whether the right operand is stored as n×k.
        sub_block: What is zeroed in the result's diagonal blocks (dds).
        method: How block products are dealt to tiles.
        passes: Bands of rows that are computed one after the other.
        memory_cycle_ratio: Weight of memory against cycles when cuts are compared, 0 to 1.
        cuts: For each pass, what the method was told. "strip": parts of the dimension that no
            mask thins out (rows for dsd, inner for dds), and parts of the stored blocks. "block":
            how much more cuts across rows and the inner dimension are charged than they cost.
        cost: What is expected, phase by phase.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> from sparsetile.plan.masked import plan_dds
        >>> plan = plan_dds(preset("bow-ipu"), causal_pattern(64, 64, blocksize=16), 32)
        >>> plan.kind, plan.groups, plan.cuts, len(plan.cost.terms)
        ('dds', 1, ((1, 10),), 4)
    """

    machine: MachineSpec
    kind: str
    patterns: tuple[Pattern, ...]
    m: int
    k: int
    n: int
    block: tuple[int, int, int]
    dtype: str
    partials: str
    transposed: bool
    sub_block: str
    method: str
    passes: int
    memory_cycle_ratio: float
    cuts: tuple[tuple[int, int], ...] = ()
    # Follows from all else, so it need not be compared.
    cost: Cost = field(default=Cost(()), compare=False)

    def __str__(self) -> str:
        masks = ", ".join(pattern.summary() for pattern in self.patterns)
        return (
            f"{self.kind} on {self.machine.name}, {self.dtype}, {self.method}: {masks}\n{self.cost}"
        )

    @property
    def groups(self) -> int:
        """Products that are computed together."""
        return len(self.patterns)

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along m, k and n, of one group."""
        (bm, bk, bn) = self.block
        return self.m // bm, self.k // bk, self.n // bn

    @cached_property
    def stored(self) -> Stored:
        """The stored blocks."""
        return stored(self.patterns)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of a block of the left operand, the right operand and the result."""
        (bm, bk, bn) = self.block
        return bm * bk, bk * bn, bm * bn

    @property
    def counts(self) -> tuple[int, int, int]:
        """Blocks of the left operand, the right operand and the result, over all groups."""
        (mb, kb, nb), nnzb, groups = self.grid, len(self.stored.row), self.groups
        if self.kind == "dsd":
            return groups * mb * kb, nnzb, groups * mb * nb
        return groups * mb * kb, groups * kb * nb, nnzb

    @property
    def bands(self) -> tuple[tuple[int, int], ...]:
        """First and one past the last block row of each pass."""
        ends = [self.grid[0] * i // self.passes for i in range(self.passes + 1)]
        return tuple(pairwise(ends))


def crossed(row: Indices, column: Indices, block: tuple[int, int]) -> Bool[np.ndarray, " n"]:
    """Which blocks have an element on the main diagonal."""
    (r, c) = block
    return (row * r < (column + 1) * c) & (column * c < (row + 1) * r)


def kept(
    first_row: Indices, first_column: Indices, size: tuple[int, int], sub_block: str
) -> Bool[np.ndarray, "n rows columns"]:
    """Which elements of diagonal blocks, or of rows of them, are not zeroed."""
    row = (first_row[:, None] + np.arange(size[0]))[:, :, None]
    column = (first_column[:, None] + np.arange(size[1]))[:, None, :]
    return column <= row if sub_block == "zero_upper" else column >= row
