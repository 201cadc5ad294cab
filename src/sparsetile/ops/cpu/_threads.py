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

    Args:
        work: Multiplications, or anything that takes as long.
    """
    worth = work // WORTH_A_THREAD
    return 1 if worth <= 1 or _forked else min(torch.get_num_threads(), worth)


def run(worker: int, call: Any, threads: int) -> None:
    """Run a compiled worker on several threads at once, all on the same argument array.

    Args:
        worker: Address of a function that takes one pointer and draws tasks until none are left.
        call: The ctypes array it is given.
        threads: How many threads, this one included.
    """
    if _watched is not None:
        _watched.append((worker, type(call).from_buffer_copy(call), threads))
    if threads <= 1:
        _function(worker)(call)
    else:
        _pool()(worker, call, threads)


@contextlib.contextmanager
def watching() -> Iterator[list[tuple[int, Any, int]]]:
    """Note the runs of workers inside the ``with`` block: worker, argument array, threads."""
    global _watched
    _watched = []
    try:
        yield _watched
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
    executor = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="sparsetile")

    def run_pooled(worker: int, call: Any, threads: int) -> None:
        # ctypes releases the interpreter lock for the length of the call
        wait([executor.submit(_function(worker), call) for _ in range(threads)])

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
