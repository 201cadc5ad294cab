"""Which products `sparsetile reproduce popsparse` asks the model for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from sparsetile.bench._reproduce_best import cells_of
from sparsetile.bench._reproduce_cells import BOW, Cell
from sparsetile.bench._reproduce_published import parts_of, published
from sparsetile.machine import MachineSpec, preset

MODES = ("static", "dynamic")

#: Machines that never were, beside two that were.
MACHINES: Final = (
    BOW,
    replace(BOW, name="twice the memory", memory_per_tile=2 * BOW.memory_per_tile),
    replace(BOW, name="twice the exchange", exchange_bytes_per_cycle=8),
    replace(BOW, name="half the tiles", tiles=BOW.tiles // 2),
    preset("mk2-ipu"),
)


@dataclass(frozen=True)
class Scope:
    """What is looked at; tests look at less.

    Attributes:
        sizes: m = k.
        blocks: Block sizes.
        parts: Densities are one over these.
        machines: Of the what-if part; the first is what the others are compared with.
    """

    sizes: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
    blocks: tuple[int, ...] = (1, 4, 8, 16)
    parts: tuple[int, ...] = (4, 8, 16, 32)
    machines: tuple[MachineSpec, ...] = MACHINES

    def has(self, m: int | str, blocksize: int | str = "", density: str = "") -> bool:
        """Whether a published row lies inside."""
        return (
            int(m) in self.sizes
            and (not blocksize or int(blocksize) in self.blocks)
            and (not density or parts_of(density) in self.parts)
        )

    def what_if_sizes(self) -> tuple[int, ...]:
        """The sizes of the what-if part."""
        return tuple(m for m in (4096, 8192) if m in self.sizes)

    def phase_cells(self) -> list[Cell]:
        """Products whose phases are shown."""
        return [
            Cell(mode, "float16", b, parts, m, n)
            for b, parts, m, n in (
                (1, 16, 4096, 256),
                (4, 16, 4096, 1024),
                (16, 4, 4096, 1024),
                (16, 16, 4096, 16),
                (16, 16, 4096, 1024),
                (16, 32, 8192, 1024),
                (16, 16, 512, 1024),
            )
            if self.has(m, b, f"1/{parts}")
            for mode in MODES
        ]


def wanted(scope: Scope) -> Iterator[Cell]:
    """Every product that the pictures need; some come twice.

    Args:
        scope: What is looked at.

    Yields:
        The products.

    Examples:
        >>> len(set(wanted(Scope())))
        3616
    """
    for row in published("static_grid"):
        if scope.has(row["m"], row["blocksize"], row["density"]):
            yield grid_cell(row)
    for mode in MODES:
        for b in scope.blocks:
            for parts in scope.parts:
                for m in scope.sizes:
                    yield from cells_of(mode, "float16", b, parts, m)
                for m in scope.what_if_sizes():
                    for machine in scope.machines:
                        yield from cells_of(mode, "float16", b, parts, m, machine)
    for row in published("table"):
        if scope.has(4096, row["blocksize"], "1/16"):
            yield from cells_of(row["mode"], row["dtype"], int(row["blocksize"]), 16, 4096)
    yield from scope.phase_cells()


def grid_cell(row: dict[str, str]) -> Cell:
    """The product of a row of the published grid."""
    b, parts = int(row["blocksize"]), parts_of(row["density"])
    return Cell("static", "float16", b, parts, int(row["m"]), int(row["n"]))
