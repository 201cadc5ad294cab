"""Callbacks that look at a run now and then and keep what they saw."""

import os
import re
from abc import ABC, abstractmethod
from pathlib import Path

from sparsetile._whole import write_whole
from sparsetile.train._check import checked_int
from sparsetile.train._records import Update
from sparsetile.train._trainer import Trainer
from sparsetile.train._watch import COLUMNS, Snapshot, watch
from sparsetile.train._watch_flops import FlopMeter

_HEADER = ",".join(COLUMNS) + "\n"
_ROW = re.compile(rf"\d+(,[-+.\w]*){{{len(COLUMNS) - 1}}}\n")


class Log(ABC):
    """Takes a `Snapshot` now and then: after every update, or every so many steps.

    When a run goes on from a saved state, or goes back to one, what was logged after that state is
    forgotten first, so that every step stands there once.

    Args:
        every: Steps between two snapshots, taken before an update that may follow the step; after
            each update instead if None.
        flops: Counts the operations of the run, if they are to be logged too; it is told of the
            steps here and need not be added to the trainer.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If `every` is below 1.
    """

    def __init__(self, *, every: int | None = None, flops: FlopMeter | None = None) -> None:
        if every is not None:
            every = checked_int("every", every, least=1)
        if flops is not None and not isinstance(flops, FlopMeter):
            raise TypeError(
                f"flops must be a FlopMeter or None, got {type(flops).__name__}; "
                "make one with FlopMeter(model, sequence=…, batch=…)"
            )
        self.every, self.flops = every, flops
        self._seen: int | None = None

    def on_step(self, trainer: Trainer) -> None:
        """Take a snapshot if it is time."""
        step = trainer.step_count
        if self._seen is None or step <= self._seen:
            self._begin(step)
        self._seen = step
        if self.flops is not None:
            self.flops.on_step(trainer)
        if self.every is not None and step % self.every == 0:
            self._take(watch(trainer, self.flops))

    def on_update(self, trainer: Trainer, update: Update) -> None:
        """Take a snapshot, if every update is to have one."""
        if self.every is None:
            self._take(watch(trainer, self.flops))

    @abstractmethod
    def _begin(self, step: int) -> None:
        """Forget what was logged of `step` and later ones."""

    @abstractmethod
    def _take(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""


class History(Log):
    """Keeps snapshots in memory.

    Args:
        every: Steps between two snapshots; after each update if None.
        flops: Counts the operations, if they are to be kept too.

    Attributes:
        snapshots: What was seen, in the order of steps.

    Examples:
        >>> import torch
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import SET
        >>> layer = Linear(64, 64, density=0.25)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> trainer = SET(total_steps=9, every=3).attach(layer, optimizer)
        >>> history = trainer.add_callback(History())
        >>> for _ in range(9):
        ...     layer(torch.randn(8, 64)).square().sum().backward()
        ...     optimizer.step()
        >>> [(seen.step, seen.blocks) for seen in history.snapshots]
        [(3, 4), (6, 4)]
    """

    def __init__(self, *, every: int | None = None, flops: FlopMeter | None = None) -> None:
        super().__init__(every=every, flops=flops)
        self.snapshots: list[Snapshot] = []

    def _begin(self, step: int) -> None:
        self.snapshots = [seen for seen in self.snapshots if seen.step < step]

    def _take(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)


class CsvLog(Log):
    """Writes snapshots as rows of a CSV file.

    Every row is written whole and at once; half a row, which a full disk may leave, is removed when
    the run goes on. A run that starts or goes on at step `n` removes the rows of later steps from
    the file, so a new run to the same file replaces an old one. Of several processes only one may
    have it.

    Args:
        path: The file; its folder must exist.
        every: Steps between two rows; one after each update if None.
        flops: Counts the operations, if they are to be written too.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If the file has other columns; nothing of it is changed.
        FileNotFoundError: If there is no such folder.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import SET
        >>> layer = Linear(64, 64, density=0.25)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> trainer = SET(total_steps=9, every=3).attach(layer, optimizer)
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "run.csv")
        ...     log = trainer.add_callback(CsvLog(path))
        ...     for _ in range(9):
        ...         layer(torch.randn(8, 64)).square().sum().backward()
        ...         optimizer.step()
        ...     [line[:11] for line in path.read_text().splitlines()]
        ['step,update', '3,1,4,0.25,', '6,2,4,0.25,']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every: int | None = None,
        flops: FlopMeter | None = None,
    ) -> None:
        super().__init__(every=every, flops=flops)
        self.path = checked_path("path", path)
        self._kept()  # so that a file of another kind is refused before the run

    def _begin(self, step: int) -> None:
        rows = [line for line in self._kept() if int(line.partition(",")[0]) < step]
        write_whole(self.path, "".join([_HEADER, *rows]).encode())

    def _take(self, snapshot: Snapshot) -> None:
        row = snapshot.row()
        line = ",".join(cell(row[name]) for name in COLUMNS) + "\n"
        with self.path.open("ab", buffering=0) as file:
            # Somebody may have moved the file away.
            file.write((line if file.tell() else _HEADER + line).encode())

    def _kept(self) -> list[str]:
        """The whole rows of the file, without its header."""
        if not self.path.exists():
            return []
        text = self.path.read_text("utf-8", errors="replace")
        if text and not text.startswith(_HEADER):
            raise ValueError(
                f"path {str(self.path)!r} is a file with other columns "
                f"({text[:60].partition(chr(10))[0]!r}); a CsvLog goes on only with its own: name "
                "another file, or move this one away"
            )
        return [line for line in text.splitlines(keepends=True) if _ROW.fullmatch(line)]


def checked_path(name: str, path: object) -> Path:
    """Check the path of a file to write.

    Raises:
        TypeError: If it is no path.
        FileNotFoundError: If its folder does not exist.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name} must be a string or a Path, got {type(path).__name__}")
    target = Path(os.fsdecode(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{name} {str(target)!r} lies in a folder that does not exist; make it first"
        )
    return target


def cell(value: float | None) -> str:
    """A number as the file holds it: counts exact, shares with six digits, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.6g}"
    return f"{value:.0f}"
