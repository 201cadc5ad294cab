"""The CSVs of a run: rows are appended as they come, and cut back when a run is resumed."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparsetile.bench._files import cell_text, write_csv

TRAIN, EVAL = "train.csv", "eval.csv"
COLUMNS: Mapping[str, Sequence[str]] = {
    # loss is the mean since the row before; seconds are those of training alone
    TRAIN: ("step", "seconds", "tokens", "loss", "gradient_norm", "lr", "rest_lr", "step_ms"),
    EVAL: ("step", "seconds", "tokens", "loss", "perplexity"),
}
#: Written by `train.CsvLog`.
UPDATES = "updates.csv"


class Log:
    """A CSV file that grows by rows.

    Args:
        path: The file; its name is one of `COLUMNS`.
        upto: Rows of later steps are dropped: the run goes on from there.
    """

    def __init__(self, path: Path, upto: int) -> None:
        self.path = path
        self.columns = COLUMNS[path.name]
        write_csv(path, self.columns, [row for row in read_rows(path) if int(row["step"]) <= upto])

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        line = io.StringIO(newline="")
        csv.writer(line, lineterminator="\n").writerow(cell_text(row[c]) for c in self.columns)
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(line.getvalue())


def read_rows(path: Path) -> list[dict[str, str]]:
    """The whole rows of a CSV; none if there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    # Power may have gone in the middle of the last line.
    return [row for row in rows if None not in row and None not in row.values()]
