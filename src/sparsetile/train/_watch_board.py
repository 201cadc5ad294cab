"""Snapshots of a run as curves in TensorBoard."""

import os
from pathlib import Path
from typing import Any

from sparsetile.train._watch import Snapshot
from sparsetile.train._watch_flops import FlopMeter
from sparsetile.train._watch_log import Log


class TensorBoardLog(Log):
    """Writes snapshots as scalars for TensorBoard, coverage and empty rows of each layer too.

    A run that goes on from step `n` hides what an earlier one wrote of later steps.

    Args:
        folder: Where the event files go; made if it does not exist.
        every: Steps between two points; one after each update if None.
        flops: Counts the operations of the run, if they are to be written too.

    Raises:
        ImportError: If tensorboard is missing.
        TypeError: If an argument is of the wrong type.
        ValueError: If `every` is below 1.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import torch
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import Static
        >>> layer = Linear(64, 64, density=0.25)
        >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        >>> trainer = Static().attach(layer, optimizer)
        >>> with TemporaryDirectory() as folder:
        ...     log = trainer.add_callback(TensorBoardLog(folder, every=1))
        ...     layer(torch.randn(8, 64)).square().sum().backward()
        ...     optimizer.step()
        ...     log.close()
        ...     [path.name[:19] for path in Path(folder).iterdir()]
        ['events.out.tfevents']
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int | None = None,
        flops: FlopMeter | None = None,
    ) -> None:
        super().__init__(every=every, flops=flops)
        if not isinstance(folder, str | os.PathLike):
            raise TypeError(f"folder must be a string or a Path, got {type(folder).__name__}")
        self.folder = Path(os.fsdecode(folder))
        self._make = _writer_class()
        self._writer: Any = None

    def close(self) -> None:
        """Finish the event file; a later snapshot begins another."""
        if self._writer is not None:
            self._writer.close()

    def _begin(self, step: int) -> None:
        self.close()
        self._writer = self._make(str(self.folder), purge_step=step)

    def _take(self, snapshot: Snapshot) -> None:
        points = {f"run/{name}": value for name, value in snapshot.row().items() if name != "step"}
        for name, layer in snapshot.layers.items():
            points[f"coverage/{name or 'layer'}"] = layer.coverage
            points[f"empty_rows/{name or 'layer'}"] = layer.empty_rows
        for name, value in points.items():
            if value is not None:
                self._writer.add_scalar(name, value, snapshot.step)
        self._writer.flush()


def _writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as missing:
        raise ImportError(
            "TensorBoardLog needs tensorboard, which is not installed; install it: pip install "
            "tensorboard, or use CsvLog"
        ) from missing
    return SummaryWriter
