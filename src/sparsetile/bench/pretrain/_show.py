"""What is seen of a run on the way: a bar on a terminal, lines elsewhere; always on stderr."""

import sys
import time
from types import TracebackType
from typing import Any

from sparsetile.bench._progress import clock_text, say
from sparsetile.bench.pretrain._session import Session


class Display:
    """Shows loss, speed, time left and coverage of a session.

    Args:
        session: The run; it may have been resumed.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._start, self._first = time.monotonic(), session.step
        self._bar: Any = None

    def __enter__(self) -> "Display":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[words]}"),
                console=Console(stderr=True),
            )
            steps = self._session.settings.steps
            self._task = self._bar.add_task("", total=steps, completed=self._first, words="")
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

    def step(self) -> None:
        """A step is done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=self._session.step)

    def row(self, loss: float, tokens_per_second: float) -> None:
        """A row of the log is written."""
        session = self._session
        done, steps = session.step, session.settings.steps
        left = (time.monotonic() - self._start) / (done - self._first) * (steps - done)
        words = f"loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s  {clock_text(left)} left"
        if session.coverage is not None:
            words += f"  coverage {session.coverage:.1%}"
        if self._bar is None:
            say(f"  step {done}/{steps}  {words}")
        else:
            self._bar.update(self._task, completed=done, words=words)

    def line(self, text: str) -> None:
        """Say something that stays."""
        if self._bar is None:
            say(f"  {text}")
        else:
            self._bar.console.print(f"  {text}", highlight=False)
