"""Files that are either whole or not there."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsetile._whole import write_whole


def write_text(path: Path, text: str) -> None:
    """Write a text file under another name, then give it its own."""
    write_whole(path, text.encode())


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file with a header; a missing value is an empty cell."""
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({c: cell_text(row[c]) for c in columns})
    write_text(path, file.getvalue())


def read_csv(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV file: numbers as numbers, an empty cell as None."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {column: _value(text) for column, text in row.items()} for row in csv.DictReader(file)
        ]


def _value(text: str) -> str | int | float | None:
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def cell_text(value: Any) -> Any:
    """A value as a CSV holds it: six digits of a float."""
    return f"{value:.6g}" if isinstance(value, float) else value


def human_bytes(count: int) -> str:
    """A size as a person reads it: `12.3 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
