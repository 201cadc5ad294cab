"""What the dynamic planner compares: many partitions of one product at once."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparsetile.machine import MachineSpec
from sparsetile.plan._units import BYTES, VECTOR
from sparsetile.plan.dynamic._plan import DynamicOptions

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """A product, and candidate partitions of it.

    Attributes:
        machine: The machine.
        dtype: `"float16"` or `"float32"`.
        options: What was asked for.
        block: Rows and columns of the blocks that are multiplied.
        density: Stored blocks over all blocks.
        blocks: Most blocks stored.
        amp_grad_w: Whether the gradient of the weight uses the multiplying unit.
        x: Row partitions of each candidate.
        y: Column partitions.
        z: Batch partitions.
        rows: Block rows of a part.
        columns: Block columns of a part.
        z_size: Batch columns of a part, whole grains.
    """

    machine: MachineSpec
    dtype: str
    options: DynamicOptions
    block: tuple[int, int]
    density: float
    blocks: int
    amp_grad_w: bool
    x: Ints
    y: Ints
    z: Ints
    rows: Ints
    columns: Ints
    z_size: Ints

    @property
    def bytes(self) -> int:
        """Of an element."""
        return BYTES[self.dtype]

    @property
    def partial_bytes(self) -> int:
        """Of a partial sum."""
        return BYTES[self.options.partials]

    @property
    def is_block(self) -> bool:
        """Whether blocks rather than single numbers are multiplied."""
        return self.block != (1, 1)

    @property
    def grain(self) -> int:
        """Columns of the dense operand that go together."""
        return VECTOR[self.dtype]

    @property
    def tiles(self) -> Ints:
        """Tiles used."""
        return self.x * self.y * self.z

    @property
    def used_rows(self) -> Ints:
        """Block rows of a part that store something, when blocks lie at random."""
        used = np.ceil(self.rows * (1 - (1 - self.density) ** self.columns))
        return np.maximum(used, 1).astype(np.int64)

    @property
    def used_columns(self) -> Ints:
        """Block columns of a part that store something."""
        used = np.ceil(self.columns * (1 - (1 - self.density) ** self.rows))
        return np.maximum(used, 1).astype(np.int64)

    @property
    def per_column(self) -> Ints:
        """Stored blocks of each of those."""
        stored = np.ceil(self.rows * self.columns * self.density)
        return np.maximum(np.ceil(stored / self.used_columns), 1).astype(np.int64)

    @property
    def per_row(self) -> Ints:
        """Stored blocks of each of those."""
        stored = np.ceil(self.rows * self.columns * self.density)
        return np.maximum(np.ceil(stored / self.used_rows), 1).astype(np.int64)


def bucket_values(case: Case) -> Ints:
    """Numbers that a bucket of each candidate holds.

    An even share of the blocks, oversized and rounded to the exchange's atom (poplibs).

    Args:
        case: The candidates.

    Returns:
        Numbers, whole blocks.
    """
    area = case.block[0] * case.block[1]
    share = -(-case.blocks // case.tiles)
    blocks = np.maximum(np.floor(share * (1 + case.options.oversize) + 0.5), 1).astype(np.int64)
    atom = 8 if case.options.grad_w else case.machine.exchange_atom
    whole = int(np.lcm(area, max(1, atom // case.bytes)))
    values: Ints = -(-blocks * area // whole) * whole
    return values


def bucket_meta(case: Case, grad_a: bool = False) -> Ints:
    """16-bit words of meta-information that a bucket of each candidate holds (poplibs).

    Two subgroups are reckoned with; rows and non-zeros are those of a whole part, not of its share
    over the batch partitions.

    Args:
        case: The candidates.
        grad_a: Whether for buckets of the gradient of the input of its own.

    Returns:
        Words, a multiple of 4.
    """
    extra, workers = case.options.grad_w, case.machine.workers
    rows, per_row, over = case.used_rows, case.per_row, 1 + case.options.oversize
    if case.is_block:
        fixed, each = 2 * (7 + extra * workers * 4), 2 + per_row
    elif grad_a:
        rows = case.used_columns
        fixed, each = 2 * (9 + workers * 5), 2 + 2 * case.per_column
    else:
        fixed, each = 2 * (9 + workers * 5 + extra * (1 + workers * 4)), 2 + per_row
    words = fixed + np.ceil(rows * each * over).astype(np.int64)
    whole: Ints = -(-words // 4) * 4
    return whole
