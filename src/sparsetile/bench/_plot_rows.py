"""The rows of `sparsetile bench`'s CSVs, read back and sorted by what belongs in one picture."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import inf, isnan, nan
from pathlib import Path
from typing import TypeVar

from sparsetile.bench._errors import CommandError
from sparsetile.bench._peers import DENSE, OWN

Key = TypeVar("Key")


@dataclass(frozen=True)
class Row:
    """One peer in one cell of a benchmark.

    Args:
        op: What was timed: `linear`, `dx`, `spmm`, …
        peer: Who did it: `sparsetile`, `torch-dense`, `scipy-csr`, …
        m: Outputs.
        k: Inputs.
        n: Rows of the batch.
        r: Rows of a block.
        c: Columns of a block.
        density: Fraction of the blocks stored.
        nnzb: Stored blocks; 0 when the peer cannot do the cell.
        dtype: Element type.
        threads: Threads allowed.
        median_us: Microseconds of a call; NaN when the peer cannot do the cell.
        gflops: Effective speed at the best time; NaN likewise.
        peak_fraction: The same over the measured peak; NaN likewise.
        bound: What limits by the roofline: `fma`, `l2` or `memory`.
        dense_ratio: How many times faster than dense of the same dtype; NaN likewise.
        verdict: `faster`, `slower`, `within the noise`, or why there is no time.
        cpu: The processor.
        isa: The instruction set that was used.
        versions: Of the software.
        commit: Of the checkout.
        command: What was typed.
    """

    op: str
    peer: str
    m: int
    k: int
    n: int
    r: int
    c: int
    density: float
    nnzb: int
    dtype: str
    threads: int
    median_us: float
    gflops: float
    peak_fraction: float
    bound: str
    dense_ratio: float
    verdict: str
    cpu: str
    isa: str
    versions: str
    commit: str
    command: str

    @property
    def setting(self) -> "Setting":
        """What this row has in common with the others of its picture."""
        return Setting(self.cpu, self.isa, self.op, self.dtype, self.m, self.k, self.threads)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.r, self.c

    @property
    def cell(self) -> tuple[object, ...]:
        """What was asked of every peer alike."""
        return self.setting, self.n, self.block, self.density


@dataclass(frozen=True)
class Setting:
    """What all rows of one picture share."""

    cpu: str
    isa: str
    op: str
    dtype: str
    m: int
    k: int
    threads: int

    def __str__(self) -> str:
        return f"{self.op}, {self.dtype}, {self.m}×{self.k}, {count(self.threads, 'thread')}"


_OPS = ("linear", "dx", "dvalues", "linear+grad", "spmm", "sddmm", "train-step")
_DTYPES = ("float32", "bfloat16", "float16")


def read_rows(paths: Sequence[Path]) -> list[Row]:
    """Read CSVs of `sparsetile bench`.

    Args:
        paths: The files; of two rows with the same peer and cell, the later one counts.

    Returns:
        The rows in the order of their ops, dtypes, sizes, batches, blocks and densities.

    Raises:
        CommandError: If a file cannot be read, is empty or is not such a CSV.
    """
    rows = list({(row.peer, row.cell): row for path in paths for row in _rows_of(path)}.values())
    if not any(row.peer == OWN and not isnan(row.dense_ratio) for row in rows):
        raise CommandError(
            f"{_names(paths)}: no row of {OWN} has a dense_ratio; pictures show {OWN} beside "
            f"{DENSE}; run `sparsetile bench` to its end with both among --peers"
        )
    return sorted(rows, key=_place)


def file_name(setting: Setting, among: Sequence[Setting]) -> str:
    """A file name for a setting: `linear-float32-4096x4096-1t`, with more where others need it."""
    parts = [
        setting.op.replace("+", "-"),
        setting.dtype.replace("*", "-"),
        f"{setting.m}x{setting.k}",
        f"{setting.threads}t",
    ]
    if len({s.isa for s in among}) > 1:
        parts.append(setting.isa)
    machines = list(dict.fromkeys(s.cpu for s in among))
    if len(machines) > 1:
        parts.append(f"machine{machines.index(setting.cpu) + 1}")
    return "-".join(parts)


def by_setting(rows: Iterable[Row]) -> dict[Setting, list[Row]]:
    """Rows by what belongs in one picture, where any of ours was timed beside dense."""
    parts = split(rows, lambda row: row.setting)
    return {setting: part for setting, part in parts.items() if compared(part)}


def split(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """Rows by a key, in the order they come."""
    parts: dict[Key, list[Row]] = {}
    for row in rows:
        parts.setdefault(key(row), []).append(row)
    return parts


def compared(rows: Iterable[Row]) -> list[Row]:
    """Our own rows that were timed beside dense."""
    return [row for row in rows if row.peer == OWN and not isnan(row.dense_ratio)]


def count(number: int, noun: str) -> str:
    """`1 thread`, `2 threads`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def density_text(density: float) -> str:
    """A density as a person writes it.

    Examples:
        >>> density_text(0.125), density_text(0.124997), density_text(0.35), density_text(1.0)
        ('1/8', '1/8', '0.35', '1')
    """
    # A pattern holds a whole number of blocks, so its density is a hair off what was asked.
    whole = round(1 / density)
    if abs(density * whole - 1) < 1e-3:
        return "1" if whole == 1 else f"1/{whole}"
    return f"{density:.2g}"


def block_text(block: tuple[int, int]) -> str:
    """`16×16`."""
    return f"{block[0]}×{block[1]}"


def _rows_of(path: Path) -> Iterator[Row]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            _check_columns(path, reader.fieldnames or ())
            lines = [(reader.line_num, line) for line in reader]
    except OSError as error:
        raise CommandError(
            f"{path}: cannot be read ({error.strerror}); {_FORM}; {_REMEDY}"
        ) from None
    except (UnicodeDecodeError, csv.Error):
        raise CommandError(f"{path}: is not a text file of columns; {_FORM}; {_REMEDY}") from None
    if not lines:
        raise CommandError(
            f"{path}: has a header and no rows; pictures need at least one; "
            "run the `sparsetile bench` that made it again, which goes on where it stopped"
        )
    for number, line in lines:
        yield _row(path, number, line)


_FORM = "pictures are made from a CSV of `sparsetile bench`"
_REMEDY = "make one with `sparsetile bench linear -o out.csv`"


def _check_columns(path: Path, given: Sequence[str]) -> None:
    needed = [field.name for field in fields(Row)]
    if not given:
        raise CommandError(f"{path}: is empty; {_FORM}; {_REMEDY}")
    missing = [name for name in needed if name not in given]
    if len(missing) > len(needed) // 3:
        shown = ", ".join(given[:4])
        raise CommandError(f"{path}: its columns are {shown}, …; {_FORM}; {_REMEDY}")
    if missing:
        raise CommandError(
            f"{path}: has no column {', '.join(missing)}; {_FORM}, whose rows have "
            f"{', '.join(needed)}; add what is missing, or {_REMEDY}"
        )


def _row(path: Path, number: int, line: dict[str, str]) -> Row:
    values: dict[str, str | int | float] = {}
    for field in fields(Row):
        text = line[field.name]
        try:
            values[field.name] = _read(field.name, field.type, text)
        except (TypeError, ValueError):
            kind = "whole number" if field.type is int else "number of 0 or more"
            raise CommandError(
                f"{path}, line {number}: {field.name} is {text or 'empty'!r}; it must be a {kind}; "
                "mend or remove that line and run `sparsetile bench` again to fill the gap"
            ) from None
    row = Row(**values)  # type: ignore[arg-type]
    if not (0 < row.density <= 1 and min(row.m, row.k, row.n, row.r, row.c, row.threads) > 0):
        raise CommandError(
            f"{path}, line {number}: sizes {row.m}, {row.k}, {row.n}, block {row.r}×{row.c}, "
            f"density {row.density:g}, {count(row.threads, 'thread')}; all must be above 0 and "
            "the density at most 1; mend or remove that line"
        )
    return row


_OPTIONAL: dict[str, int | float] = {"nnzb": 0} | dict.fromkeys(
    ("median_us", "gflops", "peak_fraction", "dense_ratio"), nan
)


def _read(name: str, kind: object, text: str | None) -> str | int | float:
    if text is None:  # the line has fewer cells than the header
        raise ValueError(name)
    if not text and name in _OPTIONAL:
        return _OPTIONAL[name]
    if kind is float:
        number = float(text)
        if not 0 <= number < inf:  # times, rates and ratios
            raise ValueError(name)
        return number
    return int(text) if kind is int else text


def _place(row: Row) -> tuple[object, ...]:
    return (
        (row.cpu, row.isa),
        _rank(_OPS, row.op),
        _rank(_DTYPES, row.dtype),
        (row.m, row.k, row.threads, row.n),
        (row.r * row.c, row.r),
        row.density,
        row.peer != OWN,
    )


def _rank(known: Sequence[str], name: str) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known)), name


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)
