"""The time of a step of each model, measured in turns in one process with one thread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from sparsetile.bench.dynsparse._data import Data
from sparsetile.bench.dynsparse._setting import Setting
from sparsetile.bench.dynsparse._train import Loop

COLUMNS = ("method", "blocksize", "width", "objective", "step_ms", "update_ms", "steps", "commit")
_STEPS = 10  # of one model in its turn; the last one ends with an update
_LONG = 1_000_000  # steps of the schedule, so that each update moves as much as the first


def measure(
    settings: Sequence[Setting], rounds: int, data: Data, tell: Callable[[int, float], None]
) -> list[dict[str, Any]]:
    """Time the steps of several models, and what an update adds to its step.

    The models take turns, so that whatever else the machine does meets all of them; the median
    leaves it out. Seconds are those of the thread, not of the clock on the wall.

    Args:
        settings: The models.
        rounds: How often each has its turn.
        data: The text.
        tell: Called after each round with its number and the last loss.

    Returns:
        One row for each model.
    """
    shapes = [replace(s, steps=_LONG, every=_STEPS if s.moves else 0) for s in settings]
    loops = [Loop(shape, data) for shape in shapes]
    plain: list[list[float]] = [[] for _ in loops]
    updating: list[list[float]] = [[] for _ in loops]
    for turn in range(1 + rounds):
        for place, loop in enumerate(loops):
            for step in range(_STEPS):
                start = time.thread_time()
                loss = loop.step()
                spent = time.thread_time() - start
                if turn:  # the first round makes kernels
                    (updating if step == _STEPS - 1 else plain)[place].append(spent)
        tell(turn, float(loss))
    return [
        {
            "method": setting.method,
            "blocksize": setting.blocksize,
            "width": setting.width,
            "objective": setting.objective,
            "step_ms": 1e3 * median(plain[place]),
            "update_ms": 1e3 * max(median(updating[place]) - median(plain[place]), 0.0)
            if setting.moves
            else 0.0,
            "steps": len(plain[place]),
        }
        for place, setting in enumerate(settings)
    ]
