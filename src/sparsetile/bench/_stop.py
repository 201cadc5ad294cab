"""Ctrl-C that lets the step in hand finish."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Stop:
    """Turns the first Ctrl-C into a request; the second one interrupts as usual.

    Long work asks `requested` between its steps, so that what was measured so far can still be
    written down.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: Any = None

    def __enter__(self) -> "Stop":
        # Python allows handlers in the main thread only; elsewhere Ctrl-C keeps its usual meaning.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
