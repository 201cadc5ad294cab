"""Files that are either whole or not there."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a text file under another name, then give it its own."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file under another name, then give it its own."""
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    half.write_bytes(data)
    half.replace(path)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file with a header; a missing value is an empty cell."""
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    with half.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({c: _cell(row[c]) for c in columns})
    half.replace(path)


def _cell(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def human_bytes(count: int) -> str:
    """A size as a person reads it: `12.3 MB`."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
