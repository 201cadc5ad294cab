"""Running a kernel on torch's own threads, so that torch and we never compete for the cores."""

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any

import torch

# Work worth waking a thread for: some 10 microseconds. A thread that wakes late, on a busy machine,
# makes all others wait.
WORTH_A_THREAD = 1 << 20

# Where one of these is set, OpenMP ties each thread to a processor of its own, ours included: our
# mask then says nothing of the others.
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")

_forked = False
_watched: list[tuple[int, Any, int]] | None = None  # runs, where somebody looks; see watching


def _note_fork() -> None:
    # An OpenMP pool does not survive fork: a child that enters it waits for ever.
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def thread_count(work: int) -> int:
    """Choose how many threads share some work: torch's setting, fewer where it is little.

    Never more than there are processors for this process, whatever torch's setting: two threads
    that take turns on one are slower than one.

    Args:
        work: Multiplications, or anything that takes as long.
    """
    worth = work // WORTH_A_THREAD
    threads = 1 if worth <= 1 or _forked else min(torch.get_num_threads(), worth)
    # the look at the mask takes a microsecond, which only much work is worth
    return threads if threads <= 1 else min(threads, processors())


def processors() -> int:
    """Count the processors that this process may use, as its mask says now."""
    if any(os.environ.get(name, "false").lower() != "false" for name in _BINDING):
        return os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)
    return count() or 1


def run(worker: int, call: Any, threads: int) -> None:
    """Run a compiled worker on several threads at once, all on the same argument array.

    Args:
        worker: Address of a function that takes one pointer and draws tasks until none are left.
        call: The ctypes array it is given.
        threads: How many threads, this one included.
    """
    watched = _watched  # another thread may end the watching meanwhile
    if watched is not None:
        watched.append((worker, type(call).from_buffer_copy(call), threads))
    if threads <= 1:
        _function(worker)(call)
    else:
        _pool()(worker, call, threads)


@contextlib.contextmanager
def watching() -> Iterator[list[tuple[int, Any, int]]]:
    """Note the runs of workers inside the ``with`` block: worker, argument array, threads."""
    global _watched
    watched: list[tuple[int, Any, int]] = []
    _watched = watched
    try:
        yield watched
    finally:
        _watched = None


@cache
def _function(address: int) -> Callable[..., None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)


@cache
def _pool() -> Callable[[int, Any, int], None]:
    """Return what runs a worker on several threads: torch's OpenMP pool, else one of ours."""
    gomp = _openmp()
    if gomp is not None:
        return lambda worker, call, threads: gomp(worker, call, threads, 0)
    # the calling thread works too
    executor = ThreadPoolExecutor(max(1, processors() - 1), thread_name_prefix="sparsetile")

    def run_pooled(worker: int, call: Any, threads: int) -> None:
        function = _function(worker)
        # ctypes releases the interpreter lock for the length of the call
        others = [executor.submit(function, call) for _ in range(threads - 1)]
        function(call)
        wait(others)

    return run_pooled


def _openmp() -> Any:
    """Find ``GOMP_parallel`` in the OpenMP library that torch loaded; None where there is none."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        gomp = getattr(ctypes.CDLL(str(path)), "GOMP_parallel", None)
        if gomp is not None:
            gomp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
            gomp.restype = None
            return gomp
    return None
