"""The CSV of a benchmark: read again, what it lacks, written whole after every cell."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsetile.bench._bench_case import Case
from sparsetile.bench._bench_row import COLUMNS, KEY, NOT_INSTALLED, PLACE
from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import cell_text, write_csv

# Verdicts that another run may change: those rows count as missing.
_AGAIN = (NOT_INSTALLED, "failed")


class File:
    """Rows of a CSV that grows; without a path they stay in memory.

    Args:
        path: The file; None for none.
        fresh: Count nothing that is there as done.

    Raises:
        CommandError: If the file is there and is not of `sparsetile bench`.
    """

    def __init__(self, path: Path | None, *, fresh: bool = False) -> None:
        self._path = path
        self._rows: dict[tuple[str, ...], dict[str, Any]] = {}
        if path is not None and path.exists():
            for row in _read(path):
                self._rows[_key(row)] = row
        self._done = set() if fresh else {k for k, row in self._rows.items() if _is_done(row)}

    def __len__(self) -> int:
        return len(self._rows)

    def lacks(
        self, case: Case, peers: Sequence[str], facts: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Whether a row of a case is missing.

        Args:
            case: The case.
            peers: Peers that should have rows.
            facts: The columns of `PLACE`, by peer.
        """
        wanted = (
            {name: getattr(case, name) for name in KEY if name != "peer"}
            | {"peer": peer}
            | dict(facts[peer])
            for peer in peers
        )
        return any(_key(row) not in self._done for row in wanted)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take in the rows of one cell, in place of older ones, and write the file."""
        for row in rows:
            self._rows[_key(row)] = dict(row)
            self._done.add(_key(row))
        if self._path is not None:
            try:
                write_csv(self._path, COLUMNS, self._rows.values())
            except OSError as error:
                raise CommandError(
                    f"--output {self._path}: cannot be written ({error.strerror}); make room or "
                    "name another file"
                ) from None


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            names = reader.fieldnames  # within: of an empty file they are looked for again
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CommandError(
            f"--output {path}: cannot be read ({error}); name another file"
        ) from None
    if names is None:  # an empty file holds nothing to lose
        return []
    if tuple(names) != COLUMNS:
        raise CommandError(
            f"--output {path}: is there, and its columns are not those of `sparsetile bench`; only "
            "such a file can be gone on with: name another file or move this one away"
        )
    if broken := [n for n, row in enumerate(rows, 2) if None in row or None in row.values()]:
        raise CommandError(
            f"--output {path}: line {broken[0]} has not {len(COLUMNS)} cells; mend or delete that "
            "line, or name another file"
        )
    return rows


def _key(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(cell_text(row[name])) for name in (*KEY, *PLACE))


def _is_done(row: Mapping[str, Any]) -> bool:
    return not str(row["verdict"]).startswith(_AGAIN)
