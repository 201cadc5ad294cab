"""From comma lists to the cells of a sweep; every mistake is named before anything runs."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import TypeVar

from sparsetile.bench._bench_case import DTYPES, OPS, Case
from sparsetile.bench._errors import CommandError

T = TypeVar("T")
_MOST = 1 << 20  # of a side


@dataclass(frozen=True)
class Lists:
    """The comma lists of one `sparsetile bench`, as they were typed.

    Args:
        op: Products.
        m: Outputs.
        k: Inputs; empty for k = m.
        n: Rows.
        blocksize: `4` or `16x1`.
        density: `0.125` or `1/8`.
        dtype: Dtypes.
        threads: Numbers of threads.
    """

    op: str
    m: str
    k: str
    n: str
    blocksize: str
    density: str
    dtype: str
    threads: str


def cases_of(lists: Lists) -> list[Case]:
    """Make every combination of the lists.

    Args:
        lists: What was typed.

    Returns:
        The cells; those that share processes follow each other.

    Raises:
        CommandError: If an entry cannot be.

    Examples:
        >>> lists = Lists("linear", "64,128", "", "8", "4,16x1", "1/8", "float32", "1")
        >>> [(case.m, case.k, case.r, case.c) for case in cases_of(lists)]
        [(64, 64, 4, 4), (64, 64, 16, 1), (128, 128, 4, 4), (128, 128, 16, 1)]
    """
    heights, rows = (_entries(f, t, _side) for f, t in (("-m", lists.m), ("-n", lists.n)))
    widths = _entries("-k", lists.k, _side) if lists.k else [None]
    return [
        Case(op, m, m if k is None else k, n, r, c, density, dtype, threads)
        for threads, dtype, op, m, k, n, (r, c), density in product(
            _entries("--threads", lists.threads, _threads),
            _entries("--dtype", lists.dtype, _one_of(DTYPES)),
            _entries("op", lists.op, _one_of(OPS)),
            heights,
            widths,
            rows,
            _entries("--blocksize", lists.blocksize, read_blocksize),
            _entries("--density", lists.density, _density),
        )
    ]


def blocksizes_of(text: str) -> list[tuple[int, int]]:
    """Read the list of `--blocksize`; mistakes are CommandErrors.

    Examples:
        >>> blocksizes_of("4,16x1")
        [(4, 4), (16, 1)]
    """
    return _entries("--blocksize", text, read_blocksize)


def densities_of(text: str) -> list[float]:
    """Read the list of `--density`; mistakes are CommandErrors.

    Examples:
        >>> densities_of("0.1,1/8")
        [0.1, 0.125]
    """
    return _entries("--density", text, _density)


def _entries(flag: str, text: str, read: Callable[[str], T]) -> list[T]:
    """Read each entry of a list once."""
    found: list[T] = []
    for entry in text.split(","):
        try:
            value = read(entry.strip())
        except ValueError as allowed:
            raise CommandError(
                f"{flag} {text}: {entry.strip()!r} cannot be; {allowed}, with commas between them"
            ) from None
        if value not in found:
            found.append(value)
    return found


def _side(text: str) -> int:
    return _whole(text, f"give whole numbers from 1 to {_MOST}", _MOST)


def _threads(text: str) -> int:
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return _whole(text, f"give whole numbers from 1 to {most}, the CPUs there are", most or 1)


def read_blocksize(text: str) -> tuple[int, int]:
    """Rows and columns of a block from `4` or `16x1`; a ValueError says what is allowed."""
    allowed = "give sides from 1 to 4096, such as 4, or r×c, such as 16x1"
    rows, cross, columns = text.replace("×", "x").partition("x")
    return _whole(rows, allowed, 4096), _whole(columns if cross else rows, allowed, 4096)


def _density(text: str) -> float:
    allowed = "give numbers above 0 and up to 1, such as 0.125, or fractions, such as 1/8"
    try:
        value = float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise ValueError(allowed) from None
    if not 1e-6 <= value <= 1:
        raise ValueError(allowed)
    return value


def _one_of(names: Sequence[str] | dict[str, str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise ValueError(f"choose from {', '.join(names)}")
        return text

    return read


def _whole(text: str, allowed: str, most: int) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise ValueError(allowed)
    return int(text)
