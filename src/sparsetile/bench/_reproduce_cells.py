"""What the model says of many products, on all processors at once."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple

from sparsetile.bench._errors import CommandError
from sparsetile.bench._progress import EVERY, say
from sparsetile.bench._waiting import quiet_bar
from sparsetile.machine import MachineSpec, preset

BOW = preset("bow-ipu")
_MOST = 8  # processes: each holds a torch of its own
_AT_ONCE = 2  # cells handed to a process, which Ctrl-C waits for
_FEW = 40  # cells that are done sooner than processes start


class Cell(NamedTuple):
    """A product with a random pattern, m = k.

    Attributes:
        mode: `"static"` or `"dynamic"`.
        dtype: `"float16"` or `"float32"`.
        b: Block size.
        parts: The density is one over this.
        m: Rows and columns of the sparse operand.
        n: Columns of the dense operand.
        machine: Where it runs.
    """

    mode: str
    dtype: str
    b: int
    parts: int
    m: int
    n: int
    machine: MachineSpec = BOW


class Outcome(NamedTuple):
    """What the model says of a cell.

    Attributes:
        tflops: 10¹² operations a second on stored values.
        speedup: Dense cycles over sparse cycles.
        bytes: Temporary memory of a tile.
        terms: Phases and their cycles.
    """

    tflops: float
    speedup: float
    bytes: int
    terms: tuple[tuple[str, float], ...]


#: By cell; None where the product does not fit into the memory.
Outcomes = dict[Cell, Outcome | None]


def predict_cell(cell: Cell) -> Outcome | None:
    """Ask the model for one cell.

    Args:
        cell: The product.

    Returns:
        What it costs; None where it does not fit into the memory.

    Examples:
        >>> outcome = predict_cell(Cell("static", "float16", 16, 16, 4096, 1024))
        >>> f"{outcome.speedup:.1f}×"
        '3.9×'
    """
    from sparsetile.plan import PlanError, predict

    try:
        p = predict(
            cell.m,
            cell.m,
            cell.n,
            blocksize=cell.b,
            density=1 / cell.parts,
            mode=cell.mode,
            dtype=cell.dtype,
            machine=cell.machine,
        )
    except PlanError:
        return None
    terms = tuple((term.name, float(term.cycles)) for term in p.cost.terms)
    return Outcome(p.flop_per_second / 1e12, p.speedup_over_dense, p.cost.peak_bytes, terms)


def predict_cells(cells: Iterable[Cell], stop: Callable[[], bool] = lambda: False) -> Outcomes:
    """Ask the model for many cells, with a bar on a terminal.

    Args:
        cells: The products; each is predicted once, however often it is named.
        stop: Asked between cells; true ends the work.

    Returns:
        What each costs.

    Raises:
        KeyboardInterrupt: If `stop` said so.
    """
    asked = list(dict.fromkeys(cells))
    done: Outcomes = {}
    with _shown(len(asked)) as show, _results(asked) as results:
        for cell, outcome in zip(asked, results, strict=True):
            done[cell] = outcome
            show(len(done))
            if stop():
                raise KeyboardInterrupt
    return done


@contextmanager
def _results(cells: Sequence[Cell]) -> Iterator[Iterator[Outcome | None]]:
    processes = min(_MOST, len(os.sched_getaffinity(0)) if _has_affinity() else os.cpu_count() or 1)
    if processes == 1 or len(cells) < _FEW:
        with _silence():
            yield map(predict_cell, cells)
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_start)
    try:
        with _deaf():
            results = pool.map(predict_cell, cells, chunksize=_AT_ONCE)
        yield results
    except BrokenProcessPool:
        raise CommandError(
            f"one of {processes} processes ended before its work was done, perhaps for want of "
            "memory; each needs about 0.5 GB: run it again with more free"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _has_affinity() -> bool:
    return hasattr(os, "sched_getaffinity")


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes started in here never hear Ctrl-C: the first process decides for all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start() -> None:
    import torch

    torch.set_num_threads(1)
    _planner_log().setLevel(logging.ERROR)


@contextmanager
def _silence() -> Iterator[None]:
    """Planners warn when they try more memory; here most cells do, and not fitting is a result."""
    log = _planner_log()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _planner_log() -> logging.Logger:
    return logging.getLogger("sparsetile.plan")


@contextmanager
def _shown(total: int) -> Iterator[Callable[[int], None]]:
    what, said = "Predicting", time.monotonic()
    if not sys.stderr.isatty():

        def line(done: int) -> None:
            nonlocal said
            if time.monotonic() - said >= EVERY:
                said = time.monotonic()
                say(f"  {what}: {done} of {total} products")

        yield line
        return
    bar: Any = quiet_bar()
    task = bar.add_task(what, total=total, left="")
    bar.start()

    def draw(done: int) -> None:
        bar.update(task, completed=done, left=f"{done} of {total} products")
        bar.refresh()

    try:
        yield draw
    finally:
        bar.stop()
