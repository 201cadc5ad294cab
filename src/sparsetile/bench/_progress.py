"""What the person waiting sees: live bars on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

EVERY = 10.0  # seconds between plain lines


@runtime_checkable
class Progress(Protocol):
    """Shows how far the work is; always on stderr, so that stdout holds results alone."""

    def __enter__(self) -> "Progress": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def add(self, name: str, seconds: float) -> None:
        """Announce work that will take so long."""

    def update(self, name: str, seconds: float, loss: float, tokens_per_second: float) -> None:
        """Show one step of it."""


def make_progress() -> Progress:
    """Bars when stderr is a terminal, lines when it is not."""
    return _Bars() if sys.stderr.isatty() else _Lines()


def say(text: str) -> None:
    """One line on stderr that says what happens now."""
    print(text, file=sys.stderr, flush=True)


class _Bars:
    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=30),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[speed]} tokens/s"),
            TextColumn("{task.fields[left]} left"),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "_Bars":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def add(self, name: str, seconds: float) -> None:
        self._tasks[name] = self._progress.add_task(
            name, total=seconds, loss="  –  ", speed="    –", left=clock_text(seconds)
        )

    def update(self, name: str, seconds: float, loss: float, tokens_per_second: float) -> None:
        task = self._progress.tasks[self._tasks[name]]
        self._progress.update(
            self._tasks[name],
            completed=min(seconds, task.total or seconds),
            loss=f"{loss:5.3f}",
            speed=f"{tokens_per_second:6,.0f}",
            left=clock_text((task.total or seconds) - seconds),
        )


class _Lines:
    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def add(self, name: str, seconds: float) -> None:
        self._totals[name] = seconds
        self._said[name] = time.monotonic()

    def update(self, name: str, seconds: float, loss: float, tokens_per_second: float) -> None:
        if time.monotonic() - self._said[name] < EVERY:
            return
        self._said[name] = time.monotonic()
        say(
            f"  {name:<14} loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s  "
            f"{clock_text(self._totals[name] - seconds)} left"
        )


def clock_text(seconds: float) -> str:
    """Minutes and seconds: `1:05`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
