"""Moving stored blocks into the order of a plan, and computed ones back out of it."""

from functools import cache

from torch import Tensor

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, module
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

LAYOUT = Layout(integers="tasks slots", pointers="source values packed")
_RUN = 4096  # slots of a task


def gather(values: Tensor, source: Tensor, slots: int) -> int:
    """Copy blocks into slots of scratch memory.

    Args:
        values: Contiguous blocks, ``[nnzb, r, c]``.
        source: The block of each slot; int32.
        slots: Number of slots.

    Returns:
        The address of the first slot.
    """
    size = values[0].nbytes if len(values) else 0
    packed = scratch("packed", slots * size + 1024)  # kernels ask for what lies ahead
    if slots:
        _move("gather", values, source, slots, size, packed)
    return packed


def scatter(packed: int, source: Tensor, slots: int, values: Tensor) -> None:
    """Copy blocks from slots to where they belong among the values; a slot of -1 is left out."""
    _move("scatter", values, source, slots, values[0].nbytes, packed)


def _move(way: str, values: Tensor, source: Tensor, slots: int, size: int, packed: int) -> None:
    call = LAYOUT.new()
    LAYOUT.fill(
        call,
        tasks=-(-slots // _RUN),
        slots=slots,
        source=source.data_ptr(),
        values=values.data_ptr(),
        packed=packed,
    )
    run(_compiled(size)[way], call, thread_count(slots * 4))


@cache
def _compiled(size: int) -> dict[str, int]:
    return load(module([_gather(size), _scatter(size)]), ["gather", "scatter"])


def _gather(size: int) -> Function:
    f, a = LAYOUT.function("gather")
    with f.tasks(a["task"], a["tasks"]) as task:
        first = f.mul(task, _RUN)
        with f.loop(first, f.least(f.add(first, _RUN), a["slots"])) as slots:
            block = f.at(a["values"], f.mul(f.load_index(a["source"], slots.index), size))
            f.copy(f.at(a["packed"], f.mul(slots.index, size)), block, size)
    return f


def _scatter(size: int) -> Function:
    f, a = LAYOUT.function("scatter")
    with f.tasks(a["task"], a["tasks"]) as task:
        first = f.mul(task, _RUN)
        with f.loop(first, f.least(f.add(first, _RUN), a["slots"])) as slots:
            position = f.load_signed(f.at(a["source"], f.mul(slots.index, 4)))
            with f.when(f.compare("sge", position, 0)):
                block = f.at(a["packed"], f.mul(slots.index, size))
                f.copy(f.at(a["values"], f.mul(position, size)), block, size)
    return f
