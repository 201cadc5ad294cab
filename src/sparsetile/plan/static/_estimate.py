"""What the busiest tile of a cut has to do, as the static planner reckons it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from sparsetile.plan._units import BYTES, up
from sparsetile.plan.static import _cost

if TYPE_CHECKING:
    from sparsetile.plan.static._search import Problem

_Ints: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]

_MOST_ENTRIES = 65535  # of 16 bits: of work lists, and of offsets into the dense operand's rows

# Multiplications of 1×1 non-zeros on a tile of an IPU. Published figures stop between 1.5 and 2.6
# million, at plans that need a third of the memory; those of blocks do not. Why is not known: it is
# taken for memory that the planner does not count, and grows with the memory of a tile.
_MOST_ELEMENT_WORK = 2**21 / 638_976


@dataclass(frozen=True)
class Load:
    """What falls to the tiles of one interval and its heaviest band.

    Attributes:
        cut: Which of the cuts being compared this belongs to.
        intervals: Intervals of the cut.
        columns: Columns of the dense operand in the interval.
        blocks: Stored blocks of the band.
        tiles: Tiles of the band.
        width: Block columns of the band.
        widest: Most block columns with non-zeros in any band.
    """

    cut: int
    intervals: int
    columns: int
    blocks: int
    tiles: int
    width: int
    widest: int


@dataclass(frozen=True)
class Estimate:
    """Cycles and memory of one load.

    Attributes:
        planned: Cycles by which the planner compares cuts.
        phases: Name and cycles of each phase, those included that the planner leaves out.
        bytes: Temporary memory of a tile.
        valid: Whether offsets and work lists fit into 16 bits, and 1×1 work is not too much.
    """

    planned: float
    phases: tuple[tuple[str, float], ...]
    bytes: int
    valid: bool


def estimate(p: "Problem", loads: list[Load], bands: int) -> list[Estimate]:
    """Estimate loads of cuts with one number of bands, all at once.

    Args:
        p: The product.
        loads: Interval and heaviest band of each.
        bands: Bands of the cuts.

    Returns:
        An estimate for each load.
    """
    b, z, dtype, machine = p.b, BYTES[p.dtype], p.dtype, p.machine
    W, d = machine.workers, p.density
    n, nz, tiles, width, widest, intervals = (
        np.array([getattr(load, name) for load in loads], np.int64)
        for name in ("columns", "blocks", "tiles", "width", "widest", "intervals")
    )
    N, rows = -(-nz // tiles), -(-p.rows // tiles)
    # A tile with a part of one row meets only as many columns as its blocks span.
    span = np.minimum(np.ceil(N / max(d, 1e-30)), width).astype(np.int64)
    columns = np.maximum(np.where(rows > 1, width, span), 1)
    in_row = np.asarray(1 - (1 - d) ** columns, np.float64)
    in_column = np.asarray(1 - (1 - d) ** rows, np.float64)
    used_rows, used_columns = _used(rows, in_row), _used(columns, in_column)
    factor = np.ceil((in_row * bands + np.ceil(_deviation(bands, in_row))) * width / columns)
    factor = np.maximum(factor, 1)
    per_row = up(N, used_rows)
    if b == 1:
        worker = _cost.multiply_elements(up(used_rows, W), per_row, n, dtype)
        multiply = W * worker
    else:
        multiply = _cost.multiply_blocks(used_rows, per_row, up(n, W), b, dtype, W)
    outputs = used_rows * n * b
    away = np.where(intervals > 1, _cost.nonzero_exchange(N, b, z, machine), 0.0)
    phases = {
        "Exchange of dense rows": _cost.dense_exchange(n, used_columns, columns, b, z, machine),
        "Exchange of non-zeros": away,
        "Zero partials": _cost.zero_partials(outputs, b, dtype, machine),
        "Multiply": multiply,
        "Exchange to reduce": _cost.partials_exchange(outputs, factor, z, machine),
        "Reduction": _cost.reduction(outputs, factor, dtype, machine),
        "Placement": np.full(len(loads), _cost.placement(p.m * p.n, z, machine)),
    }
    planned = np.sum(list(phases.values()), axis=0)
    moved = _cost.rearrangement(p.k * p.n, z, machine) + _cost.rearrangement(p.m * p.n, z, machine)
    phases["Uneven tiles"] = _cost.uneven_tiles(multiply)
    phases["Order of values"] = _cost.value_order(N / intervals, b)
    phases["Rearrangement"] = np.full(len(loads), moved)
    phases["Sync"] = np.full(len(loads), float(_cost.SUPERSTEPS * machine.sync_cycles))
    bytes_ = np.maximum(
        n * used_columns * (b * z) + N * (b * b * z) + outputs * z,
        np.where(factor > 1, 2, 1) * outputs * z,
    )
    valid = widest * (b * z) * n <= _MOST_ENTRIES * (1 if b == 1 else 8 * b)
    valid &= N + 2 * used_rows <= _MOST_ENTRIES
    if b == 1:
        valid &= N * n <= _MOST_ELEMENT_WORK * machine.memory_per_tile
    names = list(phases)
    table = np.stack([phases[name] for name in names], axis=1)
    return [
        Estimate(
            float(planned[i]),
            tuple(zip(names, map(float, table[i]), strict=True)),
            int(bytes_[i]),
            bool(valid[i]),
        )
        for i in range(len(loads))
    ]


def _used(size: _Ints, probability: _Floats) -> _Ints:
    """How many of `size` rows a random tile has something in, a deviation more than the mean."""
    used = np.ceil(probability * size + np.ceil(_deviation(size, probability)))
    return np.clip(used, 1, size).astype(np.int64)


def _deviation(trials: _Ints | int, probability: _Floats) -> _Floats:
    deviation: _Floats = np.sqrt(trials * probability * (1 - probability))
    return deviation
