"""What is seen while things are done one after the other: a bar, or a line now and then."""

import sys
import time
from types import TracebackType
from typing import Any

from sparsetile.bench._progress import EVERY, say
from sparsetile.bench._waiting import quiet_bar


class Counting:
    """Shows on stderr how many things are done; called as `(done, total, name)`.

    Args:
        what: Name of the work.

    Examples:
        >>> with Counting("Reading weights") as counting:
        ...     counting(0, 2, "up.weight")
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Any = None

    def __enter__(self) -> "Counting":
        self._shown = time.monotonic()
        if sys.stderr.isatty():
            self._bar = quiet_bar()
            self._task = self._bar.add_task(self._what, total=None, left="")
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

    def __call__(self, done: int, total: int, name: str) -> None:
        """Show that so many of all are done, and which comes next."""
        if self._bar is not None:
            left = f"{done} of {total} {name}"
            self._bar.update(self._task, completed=done, total=total, left=left)
            self._bar.refresh()
        elif time.monotonic() - self._shown >= EVERY:
            self._shown = time.monotonic()
            say(f"  {self._what}: {done} of {total} {name}")
