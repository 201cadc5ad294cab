"""How a dense product is cut over tiles: rows, inner dimension and columns, each in equal parts."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int64, Num

from sparsetile.machine import MachineSpec
from sparsetile.plan._check import check_share
from sparsetile.plan._cost import Cost, Term
from sparsetile.plan._units import Numbers
from sparsetile.plan.dynamic._vertex_sum import cast, reduce

_LOAD = 8  # bytes a cycle at which the matrix units take the operand that stays in them
_START = 20  # cycles from there to the first row of the other operand


@dataclass(frozen=True)
class DensePartition:
    """A product A·B cut over tiles, A m×k and B k×n.

    Tile `index[ix, iy, iz]` multiplies rows `ix` of A by columns `iz` of B over part `iy` of the
    inner dimension. Parts are equal; the last ones may be short, none is empty.

    Attributes:
        machine: The machine.
        m: Rows of A.
        k: Columns of A, rows of B.
        n: Columns of B.
        dtype: `"float16"` or `"float32"`, of operands and result.
        partials: The same, of partial sums.
        block: Rows and columns of the result that stay together on a tile.
        x_size: Rows of a part.
        y_size: Inner extent of a part.
        z_size: Columns of a part.
        inner: `"x"` if tiles of different rows are neighbours, `"z"` if tiles of different columns
            are; neighbours can share what the exchange brings.
        cost: What the search expects.

    Examples:
        >>> from sparsetile.machine import preset
        >>> cut = partition_dense(preset("bow-ipu"), 1024, 1024, 64, "float16")
        >>> cut.x * cut.y * cut.z <= cut.machine.tiles
        True
    """

    machine: MachineSpec
    m: int
    k: int
    n: int
    dtype: str
    partials: str
    block: tuple[int, int]
    x_size: int
    y_size: int
    z_size: int
    inner: str
    cost: Cost

    @property
    def x(self) -> int:
        """Parts of the rows."""
        return -(-self.m // self.x_size)

    @property
    def y(self) -> int:
        """Parts of the inner dimension."""
        return -(-self.k // self.y_size)

    @property
    def z(self) -> int:
        """Parts of the columns."""
        return -(-self.n // self.z_size)

    @property
    def tiles(self) -> int:
        """Tiles that multiply."""
        return self.x * self.y * self.z

    @cached_property
    def index(self) -> Int64[np.ndarray, "x y z"]:
        """The tile of each part."""
        flat = np.arange(self.tiles, dtype=np.int64)
        if self.inner == "z":
            return flat.reshape(self.y, self.x, self.z).transpose(1, 0, 2)
        return flat.reshape(self.y, self.z, self.x).transpose(2, 0, 1)


def multiply_cycles(
    rows: Numbers, inner: Numbers, columns: Numbers, dtype: str, partials: str, machine: MachineSpec
) -> Numbers:
    """Cycles of a tile that multiplies dense parts on its matrix units; an estimate of our own.

    One operand stays in the units, 16 of its rows by 16 (float32: 8) of the inner dimension at a
    time: it is loaded at 8 bytes a cycle, then the rows of the other run through at the machine's
    peak. The operand that makes it shorter stays.

    Args:
        rows: Rows of the result.
        inner: Extent of the sum.
        columns: Columns of the result.
        dtype: `"float16"` or `"float32"`, of the operands.
        partials: The same, of the sums.
        machine: The machine.

    Returns:
        Cycles of the tile.

    Examples:
        >>> from sparsetile.machine import preset
        >>> float(multiply_cycles(16, 16, 100, "float16", "float16", preset("bow-ipu")))
        484.0
    """
    depth, bytes_ = (16, 2) if dtype == "float16" else (8, 4)
    mixed = machine.flops_mixed if partials == "float32" else machine.flops_float16
    rate = (machine.flops_float32 if dtype == "float32" else mixed) / 2
    deep = np.ceil(np.asarray(inner) / depth)

    def staying(stay: Numbers, run: Numbers) -> Num[np.ndarray, "..."]:
        blocks = np.ceil(np.asarray(stay) / 16) * deep
        each = 16 * depth * bytes_ / _LOAD + _START + np.asarray(run) * (16 * depth / rate)
        return np.asarray(blocks * each)

    return np.asarray(np.minimum(staying(rows, columns), staying(columns, rows)))


def partition_dense(
    machine: MachineSpec,
    m: int,
    k: int,
    n: int,
    dtype: str,
    *,
    partials: str | None = None,
    block: tuple[int, int] = (1, 1),
    memory: float = 1.0,
    reserved: int = 0,
) -> DensePartition:
    """Find the cheapest way to cut a dense product over tiles.

    All sizes of row and inner parts are tried, each with as many column parts as there are tiles
    for, in both orders of tiles. Costs are those of bringing the operands, of multiplying, of
    bringing partial sums together, of adding them up, and of the waits between.

    Args:
        machine: The machine.
        m: Rows of A and of the result, 1 or more.
        k: Columns of A and rows of B, 1 or more.
        n: Columns of B and of the result, 1 or more.
        dtype: `"float16"` or `"float32"`, of operands and result.
        partials: The same, of partial sums; that of the operands if None.
        block: Rows and columns of the result that stay together; they divide `m` and `n`.
        memory: Share of a tile's memory that the product may take.
        reserved: Bytes of each tile, of that share, that other things take.

    Returns:
        The partition.

    Raises:
        ValueError: If a size, dtype or block is not possible, or nothing fits in memory.

    Examples:
        >>> from sparsetile.machine import preset
        >>> cut = partition_dense(preset("bow-ipu"), 4096, 4096, 1024, "float16")
        >>> cut.x * cut.y * cut.z <= 1472
        True
        >>> [term.name for term in cut.cost.terms]
        ['Distribution exchange', 'Multiply', 'Exchange to reduce', 'Reduction or cast', 'Sync']
    """
    check_share("a dense product", "memory", memory)
    partials = dtype if partials is None else partials
    check_product(m, k, n, dtype, partials, block)
    x_size, y_size, z_size = _candidates(machine, m, k, n, dtype, block)
    limit = memory * machine.memory_per_tile - reserved
    best: DensePartition | None = None
    for inner in ("z", "x"):
        terms = _terms(machine, (m, k, n), (x_size, y_size, z_size), dtype, partials, inner)
        cycles = np.sum([cost for _, cost, _ in terms], axis=0)
        fits = np.max([size for _, _, size in terms], axis=0) <= limit
        if not fits.any():
            continue
        at = int(np.argmin(np.where(fits, cycles, np.inf)))
        cost = Cost(tuple(Term(name, float(c[at]), int(size[at])) for name, c, size in terms))
        if best is None or cost.cycles < best.cost.cycles:
            sizes = (int(x_size[at]), int(y_size[at]), int(z_size[at]))
            best = DensePartition(machine, m, k, n, dtype, partials, block, *sizes, inner, cost)
    if best is None:
        least = int(np.min(np.max([size for _, _, size in terms], axis=0)))
        raise ValueError(
            f"a dense product m={m}, k={k}, n={n} in {dtype} was to take {memory:g} of a tile's "
            f"memory of machine {machine.name!r}, {max(0, limit):.0f} bytes; it needs at least "
            f"{least}: allow more memory, or cut the product into several"
        )
    return best


def check_product(
    m: int,
    k: int,
    n: int,
    dtype: str,
    partials: str,
    block: tuple[int, int],
) -> None:
    """Refuse sizes, dtypes and blocks that no memory would make possible."""
    if min(m, k, n) < 1:
        raise ValueError(
            f"a dense product was asked for m={m}, k={k}, n={n}; "
            f"sizes are 1 or more: give what the operands have"
        )
    allowed = (("float16", "float16"), ("float16", "float32"), ("float32", "float32"))
    if (dtype, partials) not in allowed:
        raise ValueError(
            f"a dense product was asked for in {dtype} with partial sums in {partials}; float16 "
            f"goes with float16 or float32, float32 with float32: choose one of these"
        )
    if min(block) < 1 or m % block[0] or n % block[1]:
        raise ValueError(
            f"a dense product of {m} rows and {n} columns was to keep blocks of "
            f"{block[0]}×{block[1]} together; sides must divide rows and columns: choose such ones"
        )


def _sizes(size: int, grain: int, most: int) -> Int64[np.ndarray, " sizes"]:
    """All sizes of equal parts, each the least that gives its number of parts."""
    grains = -(-size // grain)
    parts = np.arange(1, min(grains, most) + 1)
    return np.unique(-(-grains // parts)) * grain


def _candidates(
    machine: MachineSpec, m: int, k: int, n: int, dtype: str, block: tuple[int, int]
) -> tuple[Int64[np.ndarray, " candidates"], ...]:
    """Sizes of parts, with as many column parts as there are tiles for."""
    # Two half numbers are moved at once.
    y_grain = 2 if dtype == "float16" else 1
    x_size, y_size = np.meshgrid(
        _sizes(m, block[0], machine.tiles), _sizes(k, y_grain, machine.tiles), indexing="ij"
    )
    x_size, y_size = x_size.reshape(-1), y_size.reshape(-1)
    left = machine.tiles // (-(-m // x_size) * -(-k // y_size))
    x_size, y_size, left = x_size[left > 0], y_size[left > 0], left[left > 0]
    grains = n // block[1]
    return x_size, y_size, -(-grains // np.minimum(left, grains)) * block[1]


def _terms(
    machine: MachineSpec,
    shape: tuple[int, int, int],
    sizes: tuple[Int64[np.ndarray, " candidates"], ...],
    dtype: str,
    partials: str,
    inner: str,
) -> list[tuple[str, Num[np.ndarray, " candidates"], Num[np.ndarray, " candidates"]]]:
    """Name, cycles and bytes of a tile, of each phase and candidate."""
    x_size, y_size, z_size = sizes
    x, y, z = (-(-size // part) for size, part in zip(shape, sizes, strict=True))
    number, partial = (np.dtype(name).itemsize for name in (dtype, partials))
    rate, bus = machine.exchange_bytes_per_cycle, machine.tiles_per_bus
    a, b, sums = x_size * y_size * number, z_size * y_size * number, x_size * z_size
    a_share, b_share = -(-a // z), -(-b // x)
    a_rate = np.where((inner == "z") & (z % bus == 0), rate * bus, rate)
    b_rate = np.where((inner == "x") & (x % bus == 0), rate * bus, rate)
    bring = (a - a_share) / a_rate + (b - b_share) / b_rate
    outputs = -(-sums // y)
    several = y > 1
    same = dtype == partials
    add = np.where(
        several,
        reduce(outputs, y, partials, dtype, machine.workers),
        0 if same else cast(sums, partials, dtype, machine.workers),
    )
    homes = a_share + b_share
    return [
        ("Distribution exchange", bring, homes + a + b),
        (
            "Multiply",
            multiply_cycles(x_size, y_size, z_size, dtype, partials, machine),
            homes + a + b + sums * partial,
        ),
        (
            "Exchange to reduce",
            several * (sums - outputs) * partial / rate,
            homes + sums * partial + several * outputs * y * partial,
        ),
        ("Reduction or cast", add, homes + outputs * (y * partial + number)),
        ("Sync", _waits(machine, several), 0 * outputs),
    ]


def _waits(
    machine: MachineSpec, several: Bool[np.ndarray, " candidates"]
) -> Int64[np.ndarray, " candidates"]:
    """Cycles of all waits: before each superstep, and for each exchange."""
    return machine.sync_cycles * (3 + several) + machine.exchange_cycles * (1 + several)
