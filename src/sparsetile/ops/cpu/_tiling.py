"""The table of tile shapes: which registers and cache each kernel fills, by what it is made for.

The table is ``tiles.csv`` beside this file; rules of a file named by ``SPARSETILE_TILES``, such as
``sparsetile tune`` writes, come before it. The first rule that fits decides. ``*`` fits everything.
Columns:

- kernel: ``panel``, ``sliced`` or ``outer``
- isa: instruction set
- dtype: as in the kernel's name, such as ``f32`` or ``f32*bf16``
- block: rows × columns as multiplied, such as ``4x4`` or ``1x*``
- n: ``few`` columns of the dense operand (four vectors at most), or ``many``
- rows: panel; most rows of a tile of one vector, of two, and so on to the widest tile
- vectors: sliced; vectors of a tile
- sums: sliced, outer; registers for sums
- slice_bytes: sliced; bytes of a k-block's part of the panel
"""

import contextlib
import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

from sparsetile.ops.cpu._isa import LEVELS, host

VARIABLE = "SPARSETILE_TILES"
_OWN = Path(__file__).with_name("tiles.csv")
# What each kernel's rules give.
_GIVES = {"panel": ("rows",), "sliced": ("vectors", "sums", "slice_bytes"), "outer": ("sums",)}
_MOST_SUMS = 28  # of 32 registers; more cannot be held
_tried: list["Rule"] = []  # before all others; see trying
_noted: list["Rule"] | None = None  # see noting


@dataclass(frozen=True)
class Rule:
    """One line of the table: what it is for, and the tile."""

    kernel: str
    isa: str
    dtype: str
    block: str
    n: str
    rows: tuple[int, ...] = ()
    vectors: int = 0
    sums: int = 0
    slice_bytes: int = 0

    def fits(self, kernel: str, isa: str, dtype: str, block: tuple[int, int], n: str) -> bool:
        """Say whether the rule is for this."""
        given = (kernel, isa, dtype, *map(str, block), n)
        r, _, c = self.block.partition("x")
        asked = (self.kernel, self.isa, self.dtype, r, c or r, self.n)
        return all(a in ("*", g) for a, g in zip(asked, given, strict=True))

    @property
    def key(self) -> tuple[str, ...]:
        """What the rule is for, without the tile."""
        return self.kernel, self.isa, self.dtype, self.block, self.n

    def line(self) -> str:
        """Write the rule as a line of a table."""
        numbers = (str(number or "") for number in (self.vectors, self.sums, self.slice_bytes))
        return ",".join([*self.key, " ".join(map(str, self.rows)), *numbers])


COLUMNS = tuple(field.name for field in fields(Rule))


def choose(kernel: str, dtype: str, block: tuple[int, int], *, few: bool | None = None) -> Rule:
    """Choose a kernel's tile.

    Args:
        kernel: Kind of the kernel.
        dtype: Name of the formats, as in the kernel's name.
        block: Rows and columns of a block as multiplied.
        few: Whether the dense operand has few columns; None where the tile serves any number.

    Raises:
        ValueError: If ``SPARSETILE_TILES`` names no table.
    """
    what = (kernel, host().name, dtype, block, "few" if few else "many")
    rules = (*_tried, *_table(os.environ.get(VARIABLE, "")))
    found = next(rule for rule in rules if rule.fits(*what))
    if _noted is not None:
        n = "*" if few is None else what[-1]
        _noted.append(replace(found, isa=what[1], dtype=dtype, block=f"{block[0]}x{block[1]}", n=n))
    return found


@contextlib.contextmanager
def trying(rule: Rule) -> Iterator[None]:
    """Put a rule before all others, for plans made inside the ``with`` block."""
    _tried.insert(0, rule)
    try:
        yield
    finally:
        _tried.remove(rule)


@contextlib.contextmanager
def noting() -> Iterator[list[Rule]]:
    """Note the tiles that plans choose inside the ``with`` block, as rules for exactly these."""
    global _noted
    noted: list[Rule] = []
    _noted = noted
    try:
        yield noted
    finally:
        _noted = None


def candidates(rule: Rule) -> list[Rule]:
    """List the tiles worth trying in place of a rule's own, that one first."""
    many = host().registers == 32
    if rule.kernel == "panel":
        shapes = ((16, 8, 8), (16, 8), (16,), (16, 8, 8, 4)) if many else ((8, 4, 4), (8, 4), (8,))
        others = [replace(rule, rows=rows) for rows in shapes]
    elif rule.kernel == "sliced":
        others = [
            replace(rule, vectors=vectors, sums=sums, slice_bytes=size << 10)
            for vectors in ((2, 4) if many else (1, 2))
            for sums in ((16, 24) if many else (8,))
            for size in (24, 36, 52)
        ]
    else:
        others = [replace(rule, sums=sums) for sums in ((16, 20, 24) if many else (6, 8, 10))]
    return [rule, *(one for one in others if one != rule)]


@cache
def _table(file: str) -> tuple[Rule, ...]:
    """Read the rules: those of a file first, then our own."""
    return (*(read(Path(file), VARIABLE) if file else ()), *read(_OWN, "tiles.csv"))


def read(path: Path, what: str) -> tuple[Rule, ...]:
    """Read a table.

    Args:
        path: The file.
        what: Who asked for it, for messages.

    Raises:
        ValueError: If it cannot be read or a line is wrong; the message names the line.
    """
    try:
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{what}: {path} cannot be read ({error}); name a table of `sparsetile tune`"
        ) from None
    if not lines or tuple(lines[0]) != COLUMNS:
        raise ValueError(f"{what}: {path}, line 1: must be {','.join(COLUMNS)}")
    return tuple(
        _rule(cells, f"{what}: {path}, line {number}")
        for number, cells in enumerate(lines[1:], 2)
        if cells
    )


def _rule(cells: Sequence[str], where: str) -> Rule:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{where}: has {len(cells)} cells; must have {len(COLUMNS)}")
    named = dict(zip(COLUMNS, (cell.strip() for cell in cells), strict=True))
    for name, allowed in (("kernel", _GIVES), ("isa", (*LEVELS, "*")), ("n", ("few", "many", "*"))):
        if named[name] not in allowed:
            raise ValueError(f"{where}: {name} is {named[name]!r}; one of {', '.join(allowed)}")
    sides = named["block"].split("x")
    if len(sides) > 2 or not all(side == "*" or side.isdecimal() for side in sides):
        raise ValueError(f"{where}: block is {named['block']!r}; such as 4x4, 1x* or *")
    tile: dict[str, tuple[int, ...]] = {}
    for name in ("rows", "vectors", "sums", "slice_bytes"):
        given = named[name].split()
        wanted = name in _GIVES[named["kernel"]]
        if not all(part.isdecimal() and int(part) for part in given) or wanted != bool(given):
            need = "positive whole numbers" if wanted else f"empty for {named['kernel']}"
            raise ValueError(f"{where}: {name} is {named[name]!r}; must be {need}")
        tile[name] = tuple(map(int, given))
    rows, (vectors, sums, size) = (
        tile["rows"],
        (tile[name][0] if tile[name] else 0 for name in ("vectors", "sums", "slice_bytes")),
    )
    most = max([sums, *(r * t for t, r in enumerate(rows, 1))])
    if most > _MOST_SUMS:
        raise ValueError(f"{where}: needs {most} registers for sums; {_MOST_SUMS} at most")
    kernel, isa, dtype, block, n = (named[name] for name in COLUMNS[:5])
    return Rule(kernel, isa, dtype, block, n, rows, vectors, sums, size)
