"""Scratch memory of the kernels: kept by each Python thread, grown when needed, on large pages."""

import ctypes
import mmap
import threading

_LARGE_PAGE = 2 << 20
_local = threading.local()


def scratch(purpose: str, size: int) -> int:
    """Return the address of at least ``size`` bytes, aligned to a cache line, contents undefined.

    The memory belongs to the calling thread until it asks again for the same purpose.
    """
    kept = _local.__dict__.setdefault("buffers", {})
    held = kept.get(purpose)
    if held is None or held[1] < size:
        held = kept[purpose] = _allocate(size)
    address: int = held[0]
    return address


def _allocate(size: int) -> tuple[int, int, mmap.mmap]:
    whole = -(-size // _LARGE_PAGE) * _LARGE_PAGE
    memory = _private(whole + _LARGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # large pages are physically contiguous: a panel meets fewer conflicts in the second cache
        memory.madvise(mmap.MADV_HUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return -(-start // _LARGE_PAGE) * _LARGE_PAGE, whole, memory


def _private(size: int) -> mmap.mmap:
    """Map memory that a forked child does not share: both would write to it."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)
