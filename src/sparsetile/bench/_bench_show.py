"""What the person at a benchmark sees: how far it is, and then the table of this run."""

import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from sparsetile.bench._bench_case import Case
from sparsetile.bench._bench_run import time_left
from sparsetile.bench._layers import threads_text, times_text
from sparsetile.bench._peers import OWN
from sparsetile.bench._progress import clock_text, say
from sparsetile.bench._waiting import quiet_bar


class Cells:
    """Shows on stderr which cell is done and how long the rest takes: a bar, or lines.

    Args:
        total: Number of cells.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._timed = 0
        self._bar: Any = None

    def __enter__(self) -> "Cells":
        self._start = time.monotonic()
        if sys.stderr.isatty():
            self._bar = quiet_bar()
            self._task = self._bar.add_task("Timing cells", total=self._total, left="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, place: int, case: Case, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show that a cell is done; one without rows was in the file already."""
        self._timed += bool(rows)
        rest = time_left(self._start, self._timed, self._timed + self._total - place)
        left = f"{place} of {self._total}, {clock_text(rest)} left" if self._timed else ""
        if self._bar is not None:
            self._bar.update(self._task, completed=place, left=left)
            self._bar.refresh()
        elif rows:
            say(f"  {case_text(case)}: {_own_text(rows)} ({left})")


def case_text(case: Case) -> str:
    """A case on one line."""
    return (
        f"{case.op} {case.m}×{case.k} n={case.n} blocks {case.r}×{case.c} d={case.density:g} "
        f"{case.dtype} {threads_text(case.threads)}"
    )


def _own_text(rows: Sequence[Mapping[str, Any]]) -> str:
    own = next((row for row in rows if row["peer"] == OWN), rows[0])
    if own["dense_ratio"] == "":
        return str(own["verdict"])
    return f"{times_text(own['dense_ratio'])} dense, {own['verdict']}"


def result_table(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The rows of a run as a table for the terminal, one part a cell.

    Args:
        rows: As `row_of` makes them, in order.

    Returns:
        A `rich.table.Table`.
    """
    from rich.table import Table

    table = Table(
        title="each peer beside torch's dense product of the same dtype, and beside its own bound",
        title_justify="left",
    )
    for name in ("cell", "peer", "kernel"):
        table.add_column(name, overflow="fold")
    for name in ("µs", "GFLOP/s", "of bound", "× dense"):
        table.add_column(name, justify="right")
    table.add_column("verdict", overflow="fold")
    last: list[str] = []
    lines: list[str] = []
    for row in rows:
        cell = [
            f"{row['op']} {row['m']}×{row['k']} n={row['n']}",
            f"{row['r']}×{row['c']} d={row['density']:g} {row['dtype']}",
            threads_text(row["threads"]),
        ]
        if cell != last:
            table.add_section()
            lines = list(cell)
        kernel = (
            f"{row['backend']}:" * (row["peer"] == OWN and row["backend"] != "") + row["kernel"]
        )
        table.add_row(lines.pop(0) if lines else "", row["peer"], kernel, *_numbers(row))
        last = cell
    return table


def _numbers(row: Mapping[str, Any]) -> list[str]:
    if row["median_us"] == "":
        return ["–"] * 4 + [str(row["verdict"])]
    bound = f"{row['gflops'] / row['limit']:.0%} {row['bound']}" if row["bound"] else ""
    ratio = times_text(row["dense_ratio"])
    return [f"{row['median_us']:.4g}", f"{row['gflops']:.3g}", bound, ratio, row["verdict"]]


def roof_text(key: tuple[str, int], roof: Mapping[str, Any] | None) -> str:
    """A measured roofline on one line."""
    dtype, threads = key
    head = f"roofline, {dtype}, {threads_text(threads)}: "
    if roof is None:
        return head + "not measured, the CPU back end is missing"
    return (
        f"{head}{roof['unit']} {roof['peak']:.0f} GFLOP/s; read from L1 {roof['l1']:.0f}, "
        f"L2 {roof['l2']:.0f}, L3 {roof['l3']:.0f}, memory {roof['memory']:.1f} GB/s"
    )
