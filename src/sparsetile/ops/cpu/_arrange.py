"""Moving stored blocks into the order of a plan, and computed ones back out of it."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, module
from sparsetile.ops.cpu._isa import host
from sparsetile.ops.cpu._jit import load
from sparsetile.ops.cpu._memo import TensorMemo
from sparsetile.ops.cpu._number import Number, load_pairs_of_rows, widen
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count
from sparsetile.ops.cpu._transpose import transpose

LAYOUT = Layout(integers="tasks slots", pointers="source values packed")
_RUN = 4096  # slots of a task
_UNROLLED = 8  # rows of a block arranged without a loop
_SAMPLED = 64  # numbers looked at
_AHEAD = 1024  # bytes past the end that kernels ask for


@dataclass(frozen=True)
class ArrangeKernel:
    """What distinguishes one compiled kernel from another.

    ``how`` blocks change on the way: "copy" not at all, "widen" to float32, "pair" so that numbers
    of two successive rows lie side by side, "turn" from rows to columns (16-bit, an even number
    of rows).
    """

    lanes: int
    block: tuple[int, int]  # as stored
    number: Number
    how: str

    @property
    def slot_bytes(self) -> int:
        """Bytes of an arranged block."""
        size = 4 if self.how == "widen" else self.number.size
        return size * self.block[0] * self.block[1]

    @property
    def block_bytes(self) -> int:
        """Bytes of a stored block."""
        return self.number.size * self.block[0] * self.block[1]

    def ir(self) -> str:
        """Write the module: functions ``gather`` and ``scatter``."""
        return module([self._gather(), self._scatter()])

    def _gather(self) -> Function:
        f, a = LAYOUT.function("gather")
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.mul(task, _RUN)
            with f.loop(first, f.least(f.add(first, _RUN), a["slots"])) as slots:
                position = f.load_index(a["source"], slots.index)
                block = f.at(a["values"], f.mul(position, self.block_bytes))
                self._move(f, block, f.at(a["packed"], f.mul(slots.index, self.slot_bytes)))
        return f

    def _move(self, f: Function, block: Value, slot: Value) -> None:
        if self.how == "copy":
            f.copy(slot, block, self.block_bytes)
        elif self.how == "widen":
            widen(f, self.number, block, slot, self.block[0] * self.block[1])
        elif self.how == "turn":
            self._turn(f, block, slot)
        elif self.block[0] <= _UNROLLED:
            for pair in range(self.block[0] // 2):
                offset = 2 * self.number.size * self.block[1] * pair
                self._pair(f, f.at(block, offset), f.at(slot, offset))
        else:
            with f.loop(0, self.block[0] // 2) as pairs:
                row = f.mul(pairs.index, 2 * self.number.size * self.block[1])
                self._pair(f, f.at(block, row), f.at(slot, row))

    def _pair(self, f: Function, rows: Value, target: Value) -> None:
        """Put the numbers of two rows of a block side by side."""
        done, width = 0, self.block[1]
        following = f.at(rows, self.number.size * width)
        while done < width:
            lanes = min(self.lanes, 1 << ((width - done).bit_length() - 1))
            low, high = (f.at(row, self.number.size * done) for row in (rows, following))
            f.store(load_pairs_of_rows(f, lanes, low, high), f.at(target, 4 * done))
            done += lanes

    def _turn(self, f: Function, block: Value, slot: Value) -> None:
        """Write the columns of a block as rows, two rows by so many columns at a time."""
        (r, c), size = self.block, self.number.size
        n = next(n for n in (8, 4, 2, 1) if r % (2 * n) == 0 and c % n == 0)
        with f.loop(0, r, 2 * n) as rows, f.loop(0, c, n) as columns:
            start = f.add(f.mul(rows.index, c), columns.index)
            source = f.at(block, f.mul(start, size))
            pairs = []
            for pair in range(n):
                low = f.at(source, 2 * pair * c * size)
                pairs.append(load_pairs_of_rows(f, n, low, f.at(low, c * size)))
            start = f.add(f.mul(columns.index, r), rows.index)
            target = f.at(slot, f.mul(start, size))
            for column, turned in enumerate(transpose(f, pairs)):
                f.store(turned, f.at(target, column * r * size))

    def _scatter(self) -> Function:
        f, a = LAYOUT.function("scatter")
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.mul(task, _RUN)
            with f.loop(first, f.least(f.add(first, _RUN), a["slots"])) as slots:
                position = f.load_signed(f.at(a["source"], f.mul(slots.index, 4)))
                with f.when(f.compare("sge", position, 0)):
                    block = f.at(a["packed"], f.mul(slots.index, self.block_bytes))
                    target = f.at(a["values"], f.mul(position, self.block_bytes))
                    f.copy(target, block, self.block_bytes)
        return f


class _Look(NamedTuple):
    """What tells whether values are still those that came before, as far as a look can."""

    address: int
    version: int
    sample: tuple[float, ...]  # what writes without a version writes most numbers, if not all

    @classmethod
    def at(cls, values: Tensor) -> "_Look":
        flat = values.view(-1)
        sample = flat[:: max(1, len(flat) // _SAMPLED)].tolist()
        return cls(values.data_ptr(), values._version, tuple(sample))


class Arrangement:
    """The blocks of one plan in the order and form its kernel wants.

    Values that want no gradient and come a second time unchanged are weights at rest: their
    arranged copy is kept until they change. All others are arranged in scratch memory at every
    call: some optimizers write them without counting up the version.

    Args:
        block: Rows and columns of a block as stored.
        number: Its format.
        how: "copy", "widen" or "pair"; see :class:`ArrangeKernel`.
        source: The stored block of each slot; int32, with room past the end.
        slots: Number of slots.
    """

    def __init__(
        self, block: tuple[int, int], number: Number, how: str, source: Tensor, slots: int
    ) -> None:
        self._kernel = ArrangeKernel(host().lanes, block, number, how)
        self._source, self._slots = source, slots
        self._kept: TensorMemo[Tensor] = TensorMemo(most=4)
        self._seen: _Look | None = None  # at the values that came last

    def of(self, values: Tensor) -> tuple[int, object]:
        """Return the address of the arranged blocks, and what keeps them there."""
        size = self._slots * self._kernel.slot_bytes + _AHEAD
        if not (values.requires_grad or values.is_inference()):
            before, look = self._seen, _Look.at(values)
            self._seen = look
            if look == before:
                kept = self._kept.get((values,), look.sample, lambda: self._make(values, size))
                return kept.data_ptr(), kept
        packed = scratch("packed", size)
        self._gather(values, packed)
        return packed, None

    def _make(self, values: Tensor, size: int) -> Tensor:
        kept = torch.empty(size, dtype=torch.uint8)
        self._gather(values, kept.data_ptr())
        return kept

    def _gather(self, values: Tensor, packed: int) -> None:
        if self._slots:
            _move(self._kernel, "gather", values, self._source, self._slots, packed)


def scatter(packed: int, source: Tensor, slots: int, values: Tensor) -> None:
    """Copy float32 blocks from slots to where they belong among the values, but for slots of -1."""
    r, c = values.shape[1:]
    kernel = ArrangeKernel(host().lanes, (r, c), Number("f32", 4), "copy")
    _move(kernel, "scatter", values, source, slots, packed)


def _move(
    kernel: ArrangeKernel, way: str, values: Tensor, source: Tensor, slots: int, packed: int
) -> None:
    call = LAYOUT.new(
        tasks=-(-slots // _RUN),
        slots=slots,
        source=source.data_ptr(),
        values=values.data_ptr(),
        packed=packed,
    )
    run(load(kernel, ["gather", "scatter"])[way], call, thread_count(slots * 4))
