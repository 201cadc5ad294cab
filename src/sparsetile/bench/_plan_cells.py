"""`sparsetile plan --cells`: many predictions from one CSV, written beside what it had."""

from __future__ import annotations

import csv
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import write_csv
from sparsetile.bench._plan_ask import DTYPES, MODES, density, side
from sparsetile.bench._progress import EVERY, say
from sparsetile.bench._waiting import quiet_bar

if TYPE_CHECKING:
    from sparsetile.machine import MachineSpec
    from sparsetile.plan import Prediction

NEEDED = ("blocksize", "density", "m", "n")
ADDED = ("cycles", "speedup_over_dense", "bytes_per_tile")
SPEEDUP = "speedup_over_dense"
PUBLISHED = f"published_{SPEEDUP}"
_CLOSE = 0.25
_STATIC_BLOCKS = (1, 4, 8, 16)


@dataclass(frozen=True)
class Defaults:
    """What rows take that have no column for it, or nothing in it.

    Args:
        mode: `"static"` or `"dynamic"`.
        dtype: Of operands and result.
        machine: Name or TOML file.
        memory: Share of a tile's memory, for all rows.
    """

    mode: str
    dtype: str
    machine: str
    memory: float


@dataclass(frozen=True)
class Cell:
    """One product.

    Args:
        line: Of the file, for messages.
        row: What the file has.
        m: Rows of the sparse operand.
        k: Columns of it.
        n: Columns of the dense operand.
        blocksize: Side of a block.
        density: Share of blocks stored.
        mode: `"static"` or `"dynamic"`.
        dtype: Of operands and result.
        machine: The machine.
        published: Speed-up over dense that the file has; None where there is none.
    """

    line: int
    row: Mapping[str, str]
    m: int
    k: int
    n: int
    blocksize: int
    density: float
    mode: str
    dtype: str
    machine: MachineSpec
    published: float | None


@dataclass(frozen=True)
class Table:
    """A CSV of products.

    Args:
        source: The file.
        columns: Its columns, under the names they are written with.
        cells: Its rows.
        memory: Share of a tile's memory.
        judged: Whether it has speed-ups to compare with.
    """

    source: Path
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    memory: float
    judged: bool


def read_cells(source: Path, defaults: Defaults) -> Table:
    """Read products, every row of them checked before anything is predicted.

    A column `speedup_over_dense` holds what ours is compared with, and is kept under the name
    `published_speedup_over_dense`. Where there is a column of that name already, the file is one
    that was written here: its predictions are made anew.

    Args:
        source: A CSV with columns blocksize, density, m, n and, optional, k, mode, dtype, machine.
        defaults: For what rows leave out.

    Returns:
        The products.

    Raises:
        CommandError: If the file or a row cannot be; it names the line.
    """
    try:
        text = source.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise CommandError(f"--cells {source}: is no text; must be a CSV file in UTF-8") from None
    except OSError as error:
        raise CommandError(
            f"--cells {source}: cannot be read ({error.strerror}); must be a CSV file"
        ) from None
    reader = csv.reader(text.splitlines(), strict=True)
    try:
        names = [name.strip() for name in next(reader, [])]
        new = _names(source, names)
        cells = tuple(
            _cell(source, reader.line_num, dict(zip(new, entries, strict=True)), defaults)
            for entries in _rows(source, reader, len(names))
        )
    except csv.Error as error:
        raise CommandError(
            f"{source}, line {reader.line_num}: {error}; every line must be a row of CSV"
        ) from None
    columns = tuple(name for name in new if name not in ADDED)
    return Table(source, columns, cells, defaults.memory, PUBLISHED in columns)


def _names(source: Path, names: Sequence[str]) -> list[str]:
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise CommandError(
            f"{source}: has no column {', '.join(missing)}; needed are {', '.join(NEEDED)}, and "
            "there may be k, mode, dtype, machine and others: name them in the first line"
        )
    if len(set(names)) < len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise CommandError(f"{source}: has two columns {double}; give each a name of its own")
    if PUBLISHED in names:
        return list(names)
    return [PUBLISHED if name == SPEEDUP else name for name in names]


def _rows(source: Path, reader: Any, columns: int) -> Iterator[list[str]]:
    for entries in reader:
        if not entries:
            continue
        if len(entries) != columns:
            raise CommandError(
                f"{source}, line {reader.line_num}: has {len(entries)} entries; the first line "
                f"names {columns} columns: give each row as many"
            )
        yield entries


def _cell(source: Path, line: int, row: Mapping[str, str], defaults: Defaults) -> Cell:
    from sparsetile.machine import load_machine

    at = f"{source}, line {line}"

    def entry(name: str, default: str = "") -> str:
        return row.get(name, "").strip() or default

    m, n = side(f"{at}, m", entry("m")), side(f"{at}, n", entry("n"))
    k = side(f"{at}, k", entry("k", str(m)))
    b = side(f"{at}, blocksize", entry("blocksize"))
    mode = _one(f"{at}, mode", entry("mode", defaults.mode), MODES)
    dtype = _one(f"{at}, dtype", entry("dtype", defaults.dtype), DTYPES)
    if mode == "static" and b not in _STATIC_BLOCKS:
        raise CommandError(
            f"{at}, blocksize: {b} has no static kernel; give one of "
            f"{', '.join(map(str, _STATIC_BLOCKS))}, or mode dynamic"
        )
    try:
        machine = load_machine(entry("machine", defaults.machine))
    except ValueError as error:
        raise CommandError(f"{at}, machine: {' '.join(str(error).split())}") from None
    share = density(at, entry("density"))
    published = _published(at, entry(PUBLISHED))
    return Cell(line, row, m, k, n, b, share, mode, dtype, machine, published)


def _published(at: str, text: str) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        value = math.nan
    if value is not None and not (math.isfinite(value) and value > 0):
        raise CommandError(
            f"{at}, {SPEEDUP}: {text!r} is no speed-up; give a number above 0, or nothing where "
            "the product does not fit"
        )
    return value


def _one(what: str, value: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise CommandError(f"{what}: there is no {value!r}; give {' or '.join(allowed)}")
    return value


def predict_cells(table: Table) -> list[Prediction | None]:
    """Predict every product, showing how far it is.

    Args:
        table: The products.

    Returns:
        A prediction each, or None where the product does not fit into the memory.

    Raises:
        CommandError: If a product cannot be predicted; it names the line.
    """
    from sparsetile.plan import PlanError, predict

    answers: list[Prediction | None] = []
    with _Counter(len(table.cells)) as done:
        for cell in table.cells:
            try:
                answer = predict(
                    cell.m,
                    cell.k,
                    cell.n,
                    blocksize=cell.blocksize,
                    density=cell.density,
                    mode=cell.mode,
                    dtype=cell.dtype,
                    machine=cell.machine,
                    memory=table.memory,
                )
            except PlanError:
                answer = None
            except ValueError as error:
                raise CommandError(f"{table.source}, line {cell.line}: {error}") from None
            answers.append(answer)
            done(len(answers))
    return answers


def write_cells(output: Path, table: Table, answers: Sequence[Prediction | None]) -> None:
    """Write the rows as they came, with what was predicted, whole or not at all.

    Args:
        output: The file.
        table: The products.
        answers: Their predictions.
    """
    rows = []
    for cell, answer in zip(table.cells, answers, strict=True):
        added: dict[str, object] = dict.fromkeys(ADDED, "")
        if answer is not None:
            values = (round(answer.cost.cycles), answer.speedup_over_dense, answer.cost.peak_bytes)
            added = dict(zip(ADDED, values, strict=True))
        rows.append({**{name: cell.row[name] for name in table.columns}, **added})
    try:
        write_csv(output, [*table.columns, *ADDED], rows)
    except OSError as error:
        raise CommandError(
            f"--output {output}: cannot be written ({error.strerror}); name a file elsewhere"
        ) from None


def judge_lines(table: Table, answers: Sequence[Prediction | None]) -> list[str]:
    """Say how well predictions agree with the speed-ups that the file had.

    Args:
        table: The products.
        answers: Their predictions.

    Returns:
        Lines.
    """
    refused = sum(answer is None for answer in answers)
    lines = [f"{len(answers)} cells, {refused} too large for the memory"]
    if not table.judged:
        return lines
    pairs = list(zip((c.published for c in table.cells), answers, strict=True))
    both = [(p, a.speedup_over_dense) for p, a in pairs if p is not None and a is not None]
    if both:
        ratios = [ours / published for published, ours in both]
        close = sum(abs(ratio - 1) <= _CLOSE for ratio in ratios) / len(both)
        rms = math.sqrt(sum(math.log(ratio) ** 2 for ratio in ratios) / len(both))
        sign = sum((p > 1) == (ours > 1) for p, ours in both) / len(both)
        lines.append(
            f"compared with {SPEEDUP} of the file in {len(both)} cells: {close:.1%} within "
            f"{_CLOSE:.0%}, root mean square of the logarithm {rms:.3f}, "
            f"faster or slower than dense right in {sign:.1%}".replace("%", " %")
        )
    ours_only = sum(p is not None and a is None for p, a in pairs)
    theirs_only = sum(p is None and a is not None for p, a in pairs)
    lines.append(
        f"not fitting: {refused - ours_only} in both, {ours_only} only as predicted, "
        f"{theirs_only} only in the file"
    )
    return lines


class _Counter:
    """Shows how many cells are done: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar = quiet_bar() if sys.stderr.isatty() else None

    def __enter__(self) -> Callable[[int], None]:
        self._shown = time.monotonic()
        if self._bar is not None:
            self._task = self._bar.add_task("Predicting", total=self._total, left="")
            self._bar.start()
        return self._done

    def __exit__(self, *ended: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _done(self, count: int) -> None:
        now = time.monotonic()
        if now - self._shown < (EVERY if self._bar is None else 0.1):
            return
        self._shown = now
        if self._bar is None:
            say(f"  {count} of {self._total} cells predicted")
        else:
            self._bar.update(self._task, completed=count, left=f"{count} of {self._total}")
            self._bar.refresh()
