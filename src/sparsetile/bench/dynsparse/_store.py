"""The runs that are done, kept in CSVs that are always whole."""

import subprocess
from pathlib import Path
from typing import Any

from sparsetile.bench._files import read_csv, write_csv
from sparsetile.bench.dynsparse._setting import COLUMNS, Setting, cells, setting_of
from sparsetile.bench.dynsparse._train import Result

RESULTS = (
    "loss",
    "train_loss",
    "stuck",
    "unigram",
    "stored",
    "flops",
    "all_flops",
    "attention_share",
    "block_bytes",
    "all_bytes",
    "cpu_seconds",
    "step_ms",
    "updates",
    "coverage",
    "wasted",
    "empty_rows",
    "empty_rows_end",
    "block_rows",
    "commit",
)
CURVE = ("run", "step", "loss", "train_loss", "seconds", "coverage", "wasted")
_RUNS, _CURVES = "runs.csv", "curves.csv"


class Store:
    """All finished runs of a folder.

    Args:
        folder: Where `runs.csv` and `curves.csv` are, or will be.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.runs = rows_in(folder / _RUNS)
        self.curves = rows_in(folder / _CURVES)
        self._commit = commit()

    @property
    def losses(self) -> dict[Setting, float]:
        """Final loss of each run that is done."""
        return {setting_of(row): float(row["loss"]) for row in self.runs}

    def add(self, stage: str, setting: Setting, result: Result) -> None:
        """Keep a run; both files are whole at any moment, and a run is in none or in both."""
        head = {"run": setting.name, "stage": stage} | cells(setting)
        self.runs.append(head | result.row | {"commit": self._commit})
        self.curves = [row for row in self.curves if row["run"] != setting.name]
        self.curves += [{"run": setting.name} | point for point in result.curve]
        write_csv(self._folder / _CURVES, CURVE, self.curves)
        write_csv(self._folder / _RUNS, ("run", "stage", *COLUMNS, *RESULTS), self.runs)


def rows_in(path: Path) -> list[dict[str, Any]]:
    """Rows of a CSV; none if there is no such file."""
    return read_csv(path) if path.exists() else []


def commit() -> str:
    """The commit of this source, if it is a checkout of it; nothing if it is not."""
    asked = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()
