"""At which density a sparse product stops paying, and which cells dense wins."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, isnan, log, nan

from sparsetile.bench._bench_row import NOISE
from sparsetile.bench._peers import DENSE, DENSE_BF16, OWN
from sparsetile.bench._plot_rows import Row, block_text, compared, count, density_text


@dataclass(frozen=True)
class BreakEven:
    """Where the speed-up over dense falls through 1 as density grows.

    Args:
        density: The break-even density; NaN when the measured range holds none.
        low: Lowest density measured.
        high: Highest density measured.
        wins: Whether sparse wins anywhere.
    """

    density: float
    low: float
    high: float
    wins: bool

    def __str__(self) -> str:
        if not isnan(self.density):
            return f"{self.density:.2f}" if self.density >= 0.1 else f"{self.density:.2g}"
        if not self.wins:
            return f"< {density_text(self.low)}"
        return "all" if self.high == 1 else f"> {density_text(self.high)}"


def break_even(points: Iterable[tuple[float, float]]) -> BreakEven:
    """Find the break-even density of one line.

    Args:
        points: (density, speed-up over dense), in any order; at least one.

    Returns:
        The first place above a win where the line falls through 1, straight between its neighbours
        when both axes are logarithmic.

    Examples:
        >>> str(break_even([(0.25, 2.0), (1.0, 0.5)]))
        '0.50'
        >>> str(break_even([(0.25, 4.0), (0.5, 2.0)]))  # wins at all that was measured
        '> 1/2'
        >>> str(break_even([(0.25, 4.0), (1.0, 1.1)]))
        'all'
        >>> str(break_even([(0.25, 0.9), (0.5, 0.4)]))
        '< 1/4'
    """
    ordered = sorted(points)
    ends = ordered[0][0], ordered[-1][0]
    for (d0, s0), (d1, s1) in pairwise(ordered):
        if s0 >= 1 > s1:
            share = log(s0) / (log(s0) - log(s1))
            return BreakEven(exp(log(d0) + share * (log(d1) - log(d0))), *ends, True)
    return BreakEven(nan, *ends, ordered[-1][1] >= 1)


def line_of(rows: Iterable[Row]) -> list[tuple[float, float]]:
    """The rows of one block as (density, speed-up over dense)."""
    return [(row.density, row.dense_ratio) for row in rows]


def crossing(rows: Iterable[Row]) -> BreakEven:
    """The break-even density of one block; what is within the noise counts as equal to dense."""
    return break_even(
        (row.density, 1.0 if row.verdict == NOISE else row.dense_ratio) for row in rows
    )


def lost(row: Row) -> bool:
    """True where dense is faster, and not merely within the noise."""
    return row.dense_ratio < 1 and row.verdict != NOISE


def ratio_text(row: Row) -> str:
    """A speed-up as tables show it: losses end in a cross, draws in a wave.

    Args:
        row: One of our rows that was timed beside dense.

    Returns:
        `41`, `2.3`, `1.0 ≈` or `0.80 ✗`; a loss never reads as 1.
    """
    ratio = row.dense_ratio
    if row.verdict == NOISE:
        return f"{ratio:.2f} ≈"
    if ratio < 1:
        return f"{min(ratio, 0.99):.2f} ✗"
    return f"{ratio:.{0 if ratio >= 20 else 1 if ratio >= 1.1 else 2}f}"


def outcome(rows: Sequence[Row]) -> str:
    """One sentence: how many cells sparse wins, by how much at most, and which dense wins.

    Args:
        rows: Rows of one setting, or several.

    Returns:
        The sentence, without its full stop.
    """
    ours = compared(rows)
    losses = sum(lost(row) for row in ours)
    draws = sum(row.verdict == NOISE for row in ours)
    wins = len(ours) - losses - draws
    said = [f"{'Sparse' if wins else 'Dense'} wins {wins or losses} of {count(len(ours), 'cell')}"]
    if wins:
        said[0] += f", by up to {_times(max(ours, key=lambda row: row.dense_ratio))}"
        said += [f"dense wins {losses}"] if losses else []
    said += [f"{draws} too close to call"] if draws else []
    return "; ".join(said)


def _times(row: Row) -> str:
    return f"{row.dense_ratio:.0f}×" if row.dense_ratio >= 10 else f"{row.dense_ratio:.1f}×"


def worst(rows: Sequence[Row]) -> str:
    """One sentence: the cell where sparse does worst."""
    ours = compared(rows)
    least = min(ours, key=lambda row: row.dense_ratio)
    losses = sum(lost(row) for row in ours)
    where = (
        f"{block_text(least.block)} at density {density_text(least.density)}, "
        f"{count(least.n, 'row')}"
    )
    how = f"{min(least.dense_ratio, 0.99) if least.dense_ratio < 1 else least.dense_ratio:.2f}×"
    cells = count(len(ours), "cell")
    if losses:
        return f"Dense wins {losses} of {cells}; worst is {where}: {how}"
    return f"Dense wins none of {cells}; sparse is nearest to losing with {where}: {how}"


def against(rows: Sequence[Row]) -> dict[str, list[tuple[Row, float]]]:
    """How many times faster than each peer, cell by cell.

    Args:
        rows: Rows of one setting.

    Returns:
        By peer: its row, and our speed-up over dense divided by its own in the same cell, each
        against the dense product that took turns with it; NaN where it has none.
    """
    ours = {row.cell: row for row in compared(rows)}
    ratios: dict[str, list[tuple[Row, float]]] = {}
    for row in rows:
        if row.peer != OWN and (mine := ours.get(row.cell)):
            ratios.setdefault(row.peer, []).append((row, mine.dense_ratio / row.dense_ratio))
    return ratios


def best_peer(rows: Sequence[Row]) -> list[float]:
    """How many times faster than the fastest sparse peer, for each cell that has one."""
    cells: dict[tuple[object, ...], float] = {}
    for peer, ratios in against(rows).items():
        if peer in (DENSE, DENSE_BF16):
            continue
        for row, ratio in ratios:
            if not isnan(ratio):
                cells[row.cell] = min(ratio, cells.get(row.cell, ratio))
    return list(cells.values())


def has_sparse_peers(rows: Iterable[Row]) -> bool:
    """Whether any sparse library but ours was asked, even if it cannot do a single cell."""
    return any(row.peer not in (OWN, DENSE, DENSE_BF16) for row in rows)


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that treats twice as fast and half as fast alike.

    Examples:
        >>> geometric_mean([0.5, 2.0])
        1.0
    """
    return exp(sum(map(log, ratios)) / len(ratios))
