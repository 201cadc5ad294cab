"""One direction of one pattern, planned once and applied to many operands."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from sparsetile.ops.cpu._call import Call, Layout
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host, second_cache
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._operand import Dense
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

SKEW = 5 * 64  # bytes that keep the panels of several tiles out of each other's cache sets
_MOST_LAUNCHES = 64  # kept by a plan: one for each number of columns, more or less


@dataclass(frozen=True)
class Prepared:
    """A compiled kernel and its argument array, with all that depends on the pattern filled in."""

    layout: Layout
    workers: dict[str, int]
    template: Call
    columns: int  # of a tile
    panel_bytes: int
    stage_bytes: int
    pack_tasks: int  # packing tasks of a tile


class Ends(NamedTuple):
    """What a kernel is made for besides the pattern: layouts, and what becomes of the sums."""

    x_by_rows: bool
    y_by_rows: bool
    activation: str


class _Phase(NamedTuple):
    """One run of a worker: its argument array but for the addresses of this call."""

    worker: int
    template: Call
    slots: tuple[int, ...]  # of the addresses: x, y, values, bias, panels, stages
    threads: int
    x_offset: int  # bytes from the operand's start to the first column of the phase
    y_offset: int
    panel_bytes: int
    stage_bytes: int


class ProductPlan(ABC):
    """What multiplying by one matrix needs that depends on its pattern alone.

    A kernel multiplies tiles of columns of the dense operand. With many tiles each thread packs and
    multiplies its own; with few, threads share the packing and then the rows of each tile.

    Args:
        index: The blocks of the matrix as multiplied.
        block: Rows and inner size of a block as multiplied.
        shape: Rows and columns of the matrix as multiplied.
        transposed: Whether blocks are stored (inner, rows).
        numbers: The formats of the operands.
    """

    def __init__(
        self,
        index: Index,
        block: tuple[int, int],
        shape: tuple[int, int],
        transposed: bool,
        numbers: Numbers,
    ) -> None:
        self.block, self.transposed, self.numbers = block, transposed, numbers
        self.m, self.k = shape
        self._stored = index.nnzb * block[0] * block[1]
        self._no_bias = torch.zeros(index.block_rows * block[0], dtype=torch.float32)
        self._prepared: dict[tuple[int, Ends], Prepared] = {}
        self._launches: dict[object, list[_Phase]] = {}

    @abstractmethod
    def prepare(self, vectors: int, ends: Ends) -> Prepared:
        """Compile the kernel for one tile width and layout, and fill in its arguments."""

    @abstractmethod
    def widest(self) -> int:
        """Vectors of the widest tile."""

    @abstractmethod
    def parts(self, threads: int) -> tuple[int, Tensor]:
        """Cut the rows into parts for several threads: how many, and where they begin."""

    def arranged(self, values: Tensor) -> tuple[int, object]:
        """Return where the kernel finds the blocks, and what must live as long as it runs."""
        return values.data_ptr(), values

    def multiply(
        self, values: Tensor, x: Dense, y: Dense, bias: Tensor | None, activation: str
    ) -> None:
        """Compute y = activation(W · x + bias), column by column."""
        threads = thread_count(self._stored * x.columns * x.batch)
        key = (x[1:], y[1:], threads, activation)
        launch = self._launches.get(key)
        if launch is None:
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches.clear()
            ends = Ends(x.by_rows, y.by_rows, activation)
            launch = self._launches[key] = list(self._phases(x, y, ends, threads))
        address, _alive = self.arranged(values)
        biases = self._no_bias if bias is None else self._biases(bias)
        x_at, y_at, bias_at = x.tensor.data_ptr(), y.tensor.data_ptr(), biases.data_ptr()
        for worker, template, slots, count, x_offset, y_offset, panels, stages in launch:
            call = type(template).from_buffer_copy(template)
            call[slots[0]] = x_at + x_offset
            call[slots[1]] = y_at + y_offset
            call[slots[2]] = address
            call[slots[3]] = bias_at
            call[slots[4]] = scratch("panels", panels)
            call[slots[5]] = scratch("stages", stages)
            run(worker, call, count)

    def _phases(self, x: Dense, y: Dense, ends: Ends, threads: int) -> Iterator[_Phase]:
        """Cut a product into runs of workers."""
        for start, stop, vectors in stretches(x.columns, host().lanes, self.widest()):
            prepared = self._prepared.get((vectors, ends))
            if prepared is None:
                prepared = self._prepared[vectors, ends] = self.prepare(vectors, ends)
            layout, workers = prepared.layout, prepared.workers
            tiles = x.batch * -(-(stop - start) // prepared.columns)
            whole = tiles % threads == 0 or tiles >= 4 * threads
            # groups of about equal size, as many as serve all threads alike
            most = max(1, second_cache() // 2 // prepared.panel_bytes) if whole else tiles
            groups = threads * -(-tiles // (most * threads)) if whole else 1
            group = -(-tiles // groups)
            call = layout.copy(
                prepared.template,
                tasks=-(-tiles // group),
                column_tiles=tiles,
                group=group,
                n=stop - start,
                x_stride=x.line_step,
                x_batch=x.batch_step,
                y_stride=y.line_step,
                y_batch=y.batch_step,
            )
            slots = layout.slots("x", "y", "values", "bias", "panels", "stages")
            offsets = (start * x.column_step, start * y.column_step)
            panels = prepared.panel_bytes * group * (threads if whole else 1)
            sizes = (panels, prepared.stage_bytes * group * threads)
            if whole:
                most_threads = min(threads, tiles)
                yield _Phase(workers["whole"], call, slots, most_threads, *offsets, *sizes)
                continue
            pack = layout.copy(call, tasks=tiles * prepared.pack_tasks)
            yield _Phase(workers["pack"], pack, slots, threads, *offsets, *sizes)
            count, bounds = self.parts(threads)
            rows = layout.copy(call, tasks=count, bounds=bounds.data_ptr())
            yield _Phase(workers["rows"], rows, slots, threads, *offsets, *sizes)

    def _biases(self, bias: Tensor) -> Tensor:
        """Return one float32 number for each row of the padded result."""
        bias = bias.detach().to(torch.float32)
        missing = len(self._no_bias) - len(bias)
        return torch.nn.functional.pad(bias, (0, missing)) if missing else bias.contiguous()


@cache
def stretches(columns: int, lanes: int, widest: int) -> tuple[tuple[int, int, int], ...]:
    """Cut columns into stretches of one tile width: first, last, vectors.

    All tiles are as wide as can be, but for what is left at the end; a lone vector there shares
    with the last full tile, since the narrowest tile uses the registers worst.
    """
    total = -(-columns // lanes)
    full, rest = divmod(total, widest)
    widths = [widest] * full + [rest] * (rest > 0)
    if rest == 1 and full and widest > 2:
        widths[-2:] = [widest - 1, 2]
    cuts: list[tuple[int, int, int]] = []
    at = 0
    for width in widths:
        stop = min(columns, at + width * lanes)
        if cuts and cuts[-1][2] == width:
            cuts[-1] = (cuts[-1][0], stop, width)
        else:
            cuts.append((at, stop, width))
        at = stop
    return tuple(cuts)
