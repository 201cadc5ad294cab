"""What is seen while something is timed: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from sparsetile.bench._progress import EVERY, clock_text, say

_REDRAW = 0.5  # seconds; drawn between the timed calls, never during one


def quiet_bar() -> Any:
    """A bar on stderr that moves when told to only: a thread of its own would disturb timing."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[left]}"),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )


class Waiting:
    """Shows on stderr how much of the planned time is over.

    Args:
        what: Name of the work.
        seconds: About how long it takes.
    """

    def __init__(self, what: str, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._bar: Any = None

    def __enter__(self) -> "Waiting":
        self._start = self._shown = time.monotonic()
        if sys.stderr.isatty():
            self._bar = quiet_bar()
            self._task = self._bar.add_task(self._what, total=self._seconds, left="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def between(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """Give a `stop` for `time_layers` that also shows how far it is."""

        def asked() -> bool:
            self._show()
            return stop()

        return asked

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown < (EVERY if self._bar is None else _REDRAW):
            return
        self._shown = now
        done = now - self._start
        left = f"{clock_text(done)} of about {clock_text(self._seconds)}"
        if done > self._seconds:  # each case is called a few times, however long that takes
            left = f"{clock_text(done)}, planned {clock_text(self._seconds)}, not done yet"
        if self._bar is None:
            say(f"  {self._what}: {left}")
        else:
            self._bar.update(self._task, completed=min(done, self._seconds), left=left)
            self._bar.refresh()
