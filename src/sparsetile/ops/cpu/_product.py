"""One direction of one pattern, planned once and applied to many operands."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from sparsetile.ops.cpu._call import Call, Layout
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._isa import host, second_cache
from sparsetile.ops.cpu._operand import Dense
from sparsetile.ops.cpu._scratch import scratch
from sparsetile.ops.cpu._threads import run, thread_count

SKEW = 5 * 64  # bytes that keep the panels of several tiles out of each other's cache sets


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


class ProductPlan(ABC):
    """What multiplying by one matrix needs that depends on its pattern alone.

    A kernel multiplies tiles of columns of the dense operand. With many tiles each thread packs and
    multiplies its own; with few, threads share the packing and then the rows of each tile.

    Args:
        index: The blocks of the matrix as multiplied.
        block: Rows and inner size of a block as multiplied.
        shape: Rows and columns of the matrix as multiplied.
        transposed: Whether blocks are stored (inner, rows).
    """

    def __init__(
        self, index: Index, block: tuple[int, int], shape: tuple[int, int], transposed: bool
    ) -> None:
        self.block, self.transposed = block, transposed
        self.m, self.k = shape
        self._stored = index.nnzb * block[0] * block[1]
        self._no_bias = torch.zeros(index.block_rows * block[0], dtype=torch.float32)
        self._prepared: dict[tuple[int, bool, bool], Prepared] = {}

    @abstractmethod
    def prepare(self, vectors: int, x_by_rows: bool, y_by_rows: bool) -> Prepared:
        """Compile the kernel for one tile width and layout, and fill in its arguments."""

    @abstractmethod
    def widest(self) -> int:
        """Vectors of the widest tile."""

    @abstractmethod
    def parts(self, threads: int) -> tuple[int, Tensor]:
        """Cut the rows into parts for several threads: how many, and where they begin."""

    def values_address(self, values: Tensor) -> int:
        """Return where the kernel finds the blocks."""
        return values.data_ptr()

    def multiply(self, values: Tensor, x: Dense, y: Dense, bias: Tensor | None) -> None:
        """Compute y = W · x + bias, column by column."""
        address, biases = self.values_address(values), self._biases(bias)
        threads = thread_count(self._stored * x.columns * x.batch)
        for start, stop, vectors in stretches(x.columns, host().lanes, self.widest()):
            key = (vectors, x.by_rows, y.by_rows)
            prepared = self._prepared.get(key)
            if prepared is None:
                prepared = self._prepared[key] = self.prepare(*key)
            layout, workers = prepared.layout, prepared.workers
            call = layout.copy(prepared.template)
            x.fill(call, layout, "x", start)
            y.fill(call, layout, "y", start)
            tiles = x.batch * -(-(stop - start) // prepared.columns)
            whole = tiles % threads == 0 or tiles >= 4 * threads
            # groups of about equal size, as many as serve all threads alike
            most = max(1, second_cache() // 2 // prepared.panel_bytes) if whole else tiles
            groups = threads * -(-tiles // (most * threads)) if whole else 1
            group = -(-tiles // groups)
            panels = group * (threads if whole else 1)
            layout.fill(
                call,
                tasks=-(-tiles // group),
                column_tiles=tiles,
                group=group,
                n=stop - start,
                values=address,
                bias=biases.data_ptr(),
                panels=scratch("panels", prepared.panel_bytes * panels),
                stages=scratch("stages", prepared.stage_bytes * group * threads),
            )
            if whole:
                run(workers["whole"], call, min(threads, tiles))
                continue
            layout.fill(call, tasks=tiles * prepared.pack_tasks)
            run(workers["pack"], call, threads)
            count, bounds = self.parts(threads)
            layout.fill(call, tasks=count, bounds=bounds.data_ptr())
            run(workers["rows"], call, threads)

    def _biases(self, bias: Tensor | None) -> Tensor:
        """Return one number for each row of the padded result: the bias, or zero."""
        if bias is None:
            return self._no_bias
        missing = len(self._no_bias) - len(bias)
        bias = bias.detach()
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
