"""Several runs at a time, each in a process of its own with one thread."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from sparsetile.bench._errors import CommandError
from sparsetile.bench._progress import clock_text, say
from sparsetile.bench.dynsparse._data import Data
from sparsetile.bench.dynsparse._plan import Job
from sparsetile.bench.dynsparse._setting import Setting
from sparsetile.bench.dynsparse._store import Store

_EVERY = 30.0  # seconds between lines of progress of one run
# Set before a process loads torch: one thread, and memory in large pages that is kept. Without
# them tensors of megabytes are mapped anew at each step, which takes time that is no training's.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(2_000_000_000),
}


def drive(store: Store, data: Data, wanted: Callable[[], Iterator[Job]], processes: int) -> None:
    """Do all runs that are wanted and not done.

    Args:
        store: Where finished runs are, and go.
        data: The text.
        wanted: Gives all runs known at present, the most wanted first.
        processes: Runs at a time.

    Raises:
        KeyboardInterrupt: On Ctrl-C; what is finished is in the store, what is not begins anew.
        CommandError: If a run failed.
    """
    workers: list[_Worker] = []
    try:
        while True:
            _deal(store, data, wanted, workers, processes)
            busy = [worker for worker in workers if worker.job is not None]
            if not busy:
                return
            for connection in wait([worker.connection for worker in busy]):
                [worker] = [w for w in busy if w.connection is connection]
                worker.listen(store)
    finally:
        for worker in workers:
            worker.close()


def _deal(
    store: Store,
    data: Data,
    wanted: Callable[[], Iterator[Job]],
    workers: list["_Worker"],
    processes: int,
) -> None:
    """Give each idle worker the most wanted run that nobody has."""
    taken = set(store.losses) | {worker.job.setting for worker in workers if worker.job}
    for job in wanted():
        if job.setting in taken:
            continue
        idle = next((worker for worker in workers if worker.job is None), None)
        if idle is None:
            if len(workers) == processes:
                return
            idle = _Worker(data)
            workers.append(idle)
        idle.start(job)
        taken.add(job.setting)


def time_steps(settings: Sequence[Setting], rounds: int, data: Data) -> list[dict[str, Any]]:
    """Time steps of several models in a process of its own.

    Args:
        settings: The models.
        rounds: How often each has its turn.
        data: The text.

    Returns:
        One row for each, as `_timing.measure` gives them.
    """
    worker = _Worker(data)
    try:
        worker.connection.send((list(settings), rounds))
        while True:
            kind, message = _heard(worker.connection, "the timing")
            if kind == "done":
                rows: list[dict[str, Any]] = message
                return rows
            if message[0] % 4 == 0:
                say(f"  timing the steps, round {message[0]} of {rounds}")
    finally:
        worker.close()


class _Worker:
    """A process that trains one model after another."""

    def __init__(self, data: Data) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, far = context.Pipe()
        self.job: Job | None = None
        self._process = context.Process(target=work, args=(far, data), daemon=True)
        before = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)
        try:
            self._process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        far.close()

    def start(self, job: Job) -> None:
        """Begin a run."""
        self.job = job
        self._began = self._said = time.monotonic()
        self.connection.send(job.setting)

    def listen(self, store: Store) -> None:
        """Take what the process has to say."""
        assert self.job is not None
        setting = self.job.setting
        kind, message = _heard(self.connection, f"the run {setting.name}")
        now = time.monotonic()
        if kind == "done":
            store.add(self.job.stage, setting, message)
            say(
                f"  {setting.name:<52} done, loss {message.row['loss']:.4f}, "
                f"{clock_text(now - self._began)}"
            )
            self.job = None
        elif now - self._said > _EVERY:
            step, loss = message
            left = (now - self._began) * (setting.steps - step) / step
            say(
                f"  {setting.name:<52} {step:>6}/{setting.steps}  loss {loss:.3f}  "
                f"{clock_text(left)} left"
            )
            self._said = now

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _heard(connection: Connection, what: str) -> tuple[str, Any]:
    """The next message of a process.

    Raises:
        CommandError: If it failed or is gone.
    """
    try:
        kind, message = connection.recv()
    except EOFError:
        raise CommandError(
            f"{what} ended without a result (out of memory?); what was finished is kept: start "
            "the command again, with fewer --jobs"
        ) from None
    if kind == "error":
        raise CommandError(f"{what} failed: {message}")
    return kind, message


def work(connection: Connection, data: Data) -> None:
    """Train or time what is asked for until nobody asks; runs in a process of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    import torch

    from sparsetile.bench.dynsparse._timing import measure
    from sparsetile.bench.dynsparse._train import run

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)

    def tell(*at: float) -> None:
        try:
            connection.send(("step", at))
        except BrokenPipeError:  # the parent was killed
            raise SystemExit from None

    while True:
        try:
            asked: Setting | tuple[list[Setting], int] = connection.recv()
        except EOFError:
            return
        try:
            answer: Any = (
                run(asked, data, tell)
                if isinstance(asked, Setting)
                else measure(*asked, data, tell)
            )
        except Exception as error:  # anything: the parent must hear of it
            connection.send(("error", f"{type(error).__name__}: {error}"))
            return
        connection.send(("done", answer))
