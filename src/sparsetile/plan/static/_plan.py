"""What the static planner decides: columns of X, bands of W, and tiles."""

from dataclasses import dataclass
from pathlib import Path

from sparsetile.machine import MachineSpec
from sparsetile.matrix import Pattern
from sparsetile.plan._cost import Cost


@dataclass(frozen=True)
class StaticPlan:
    """How a product with a fixed pattern is cut over tiles (PopSparse, static).

    The columns of the dense operand are cut into equal intervals, the block columns of the sparse
    one into bands of about equal non-zeros. Each interval has tiles of its own; among them, each
    band has tiles in proportion to its non-zeros, and its blocks are dealt to them row by row.

    Attributes:
        machine: The machine.
        pattern: The stored blocks of the sparse operand, m×k.
        n: Columns of the dense operand.
        dtype: `"float16"` or `"float32"`, of operands, partial sums and result.
        preprocess: Whether rows and columns are permuted before they are cut.
        column_starts: First column of each interval, and the end of the last (n rounded up to
            the vector width); `[splits + 1]`.
        split_tiles: First tile of each interval, and the end of the last; `[splits + 1]`.
        band_starts: First block column of each band, in permuted order, and the end of the last;
            `[bands + 1]`.
        band_tiles: For each interval, the first tile of each band and the end of the last;
            `[splits][bands + 1]`.
        cost: What the planner expects.

    Examples:
        >>> from sparsetile.matrix import random_pattern
        >>> from sparsetile.plan import plan_static
        >>> plan = plan_static(random_pattern(512, 512, blocksize=16, density=0.25, seed=0), 16)
        >>> plan.split_tiles[-1] <= plan.machine.tiles
        True
    """

    machine: MachineSpec
    pattern: Pattern
    n: int
    dtype: str
    preprocess: bool
    column_starts: tuple[int, ...]
    split_tiles: tuple[int, ...]
    band_starts: tuple[int, ...]
    band_tiles: tuple[tuple[int, ...], ...]
    cost: Cost

    def __str__(self) -> str:
        from sparsetile.plan._table import static_text

        return static_text(self)

    @property
    def splits(self) -> int:
        """Intervals of the dense operand's columns."""
        return len(self.column_starts) - 1

    @property
    def bands(self) -> int:
        """Bands of the sparse operand's columns."""
        return len(self.band_starts) - 1

    def draw(self, path: str | Path) -> None:
        """Write a picture: which tiles have which blocks, and what each phase costs.

        Args:
            path: A file that ends in `.svg`, `.png` or `.pdf`.

        Raises:
            ValueError: If it ends otherwise.
            ImportError: If matplotlib is missing; `pip install 'sparsetile[plot]'` brings it.
        """
        from sparsetile.plan._picture import draw_plan

        draw_plan(self, path)
