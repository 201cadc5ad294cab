"""Timing that is fair on a machine with other work to do."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch

from sparsetile.bench._machine import command, commit, machine


@dataclass(frozen=True)
class Measurement:
    """One timed case: what ran, on which sizes, how long; one row of a results CSV.

    Args:
        op: What was timed: `linear`, or `linear+grad` with both gradients.
        backend: `dense` for torch's own product, else the back end that ran.
        kernel: Name of the kernel that ran last.
        m: Outputs.
        k: Inputs.
        n: Rows of the batch.
        blocksize: Side of the blocks; 0 for dense.
        density: Fraction of the values stored; 1 for dense.
        dtype: Element type.
        device: Device type.
        threads: Threads torch was allowed.
        clock: `thread` (CPU time of the one thread) or `wall`.
        repeats: Number of timed calls.
        median: Seconds.
        p20: Seconds, 20th percentile.
        p80: Seconds, 80th percentile.
        minimum: Seconds.
        speedup: Dense minimum over this minimum, both of the same run.
        machine: Where it ran.
        commit: Commit of the checkout, if any.
        command: What was typed.

    Examples:
        >>> row = Measurement.of([2.0, 1.0, 3.0], op="linear", m=8, k=8, n=1)
        >>> row.median, row.minimum
        (2.0, 1.0)
    """

    op: str
    backend: str
    kernel: str
    m: int
    k: int
    n: int
    blocksize: int
    density: float
    dtype: str
    device: str
    threads: int
    clock: str
    repeats: int
    median: float
    p20: float
    p80: float
    minimum: float
    speedup: float
    machine: str
    commit: str
    command: str

    @classmethod
    def of(
        cls,
        seconds: Sequence[float],
        *,
        op: str,
        m: int,
        k: int,
        n: int,
        backend: str = "dense",
        kernel: str = "",
        blocksize: int = 0,
        density: float = 1.0,
        dtype: str = "float32",
        dense_minimum: float | None = None,
    ) -> "Measurement":
        """Sum up the times of one case."""
        p20, median, p80 = (float(v) for v in np.quantile(seconds, [0.2, 0.5, 0.8]))
        minimum = min(seconds)
        return cls(
            op=op,
            backend=backend,
            kernel=kernel,
            m=m,
            k=k,
            n=n,
            blocksize=blocksize,
            density=density,
            dtype=dtype,
            device="cpu",
            threads=torch.get_num_threads(),
            clock=clock_name(),
            repeats=len(seconds),
            median=median,
            p20=p20,
            p80=p80,
            minimum=minimum,
            speedup=(minimum if dense_minimum is None else dense_minimum) / minimum,
            machine=machine(),
            commit=commit(),
            command=command(),
        )

    def row(self) -> dict[str, Any]:
        """The measurement as a row of a CSV."""
        return asdict(self)


COLUMNS = tuple(field.name for field in fields(Measurement))


def clock_name() -> str:
    """Which clock is right: a lone thread's CPU time is deaf to neighbours, several need wall."""
    return "thread" if torch.get_num_threads() == 1 else "wall"


def interleave(
    cases: Mapping[str, Callable[[], object]],
    *,
    seconds: float,
    rounds: tuple[int, int] = (2, 30),
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], Any] | None = None,
    counts: Mapping[str, int] | None = None,
) -> dict[str, list[Any]]:
    """Time several calls in turns, so that a busy neighbour slows all of them alike.

    A turn calls each case twice and times the second call, as it would run in a loop: no case pays
    for the caches that the one before it filled.

    Args:
        cases: What to call, by name; each is called once untimed to warm up.
        seconds: Time to spend on all of them.
        rounds: Fewest and most timed calls of each.
        stop: Asked before every call; true ends the timing.
        clock: Gives the time, or an array of several times; that of `clock_name` if not given.
        counts: How often to call for one timing, for calls too short for the clock; 1 if not given.

    Returns:
        The seconds of each call, by name; the lists are equally long.

    Examples:
        >>> times = interleave({"a": int, "b": float}, seconds=0.01, rounds=(2, 4))
        >>> 2 <= len(times["a"]) == len(times["b"]) <= 4
        True
    """
    if clock is None:
        clock = time.thread_time if clock_name() == "thread" else time.perf_counter
    start = time.perf_counter()
    for call in cases.values():
        if stop():
            return {name: [] for name in cases}
        call()
    times: dict[str, list[Any]] = {name: [] for name in cases}
    for done in range(rounds[1]):
        if done >= rounds[0] and time.perf_counter() - start > seconds:
            break
        turn = []
        for name, call in cases.items():
            if stop():
                return times
            number = 1 if counts is None else counts[name]
            call()
            before = clock()
            for _ in range(number):
                call()
            turn.append((clock() - before) / number)
        for name, spent in zip(cases, turn, strict=True):
            times[name].append(spent)
    return times
