"""Whether other programs kept the CPUs busy while something was timed."""

import os
import time
from pathlib import Path

import torch

from sparsetile.bench._measure import clock_name

_STAT = Path("/proc/stat")
# Less than this many CPUs at work for others, of what the timing needs, is a quiet machine.
_SLACK = 0.15


class Neighbours:
    """Compares what all CPUs did with what this process did, from its making on.

    Examples:
        >>> neighbours = Neighbours()
        >>> _ = sum(range(1000))
        >>> neighbours.cpus() is None or neighbours.cpus() >= 0
        True
    """

    def __init__(self) -> None:
        self._start = _now()

    def cpus(self) -> float | None:
        """CPUs that worked for others so far, on average; None where the system does not say."""
        now = _now()
        if now is None or self._start is None:
            return None
        wall, busy, own = (after - before for after, before in zip(now, self._start, strict=True))
        # The system counts in ticks of 10 ms: a shorter time tells nothing.
        return max(0.0, busy - own) / wall if wall > 0.1 else None

    def warning(self) -> str:
        """Say that times taken meanwhile are rough; empty when they are not.

        Returns:
            One sentence, or nothing on a quiet machine, with a clock that is deaf to others, or
            where the system does not say.
        """
        others = self.cpus()
        if others is None or clock_name() == "thread":
            return ""
        return busy_warning(others, torch.get_num_threads(), os.cpu_count() or 1)


def busy_warning(others: float, threads: int, cpus: int) -> str:
    """Judge how busy others kept a machine.

    Args:
        others: CPUs that worked for others, on average.
        threads: Threads that were timed.
        cpus: CPUs of the machine.

    Returns:
        One sentence; empty when enough CPUs were free.

    Examples:
        >>> busy_warning(0.1, threads=2, cpus=2)
        ''
        >>> busy_warning(1.3, threads=2, cpus=2)[:36]
        'the machine was busy with other work'
    """
    if others <= max(0, cpus - threads) + _SLACK * threads:
        return ""
    return (
        f"the machine was busy with other work ({others:.1f} of {cpus} CPUs): these numbers are "
        "rough; --threads 1 counts CPU time"
    )


def _now() -> tuple[float, float, float] | None:
    """Seconds of the clock, of all CPUs at work, and of this process at work."""
    try:
        fields = [int(n) for n in _STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
        ticks = os.sysconf("SC_CLK_TCK")
        user, nice, system, _idle, _wait, irq, softirq, steal = fields
    except (OSError, ValueError):
        return None
    busy = (user + nice + system + irq + softirq + steal) / ticks
    return time.perf_counter(), busy, time.process_time()
