"""The sliced kernel, for small blocks: S short rows at once, the dense operand in the first cache.

One number of the dense operand serves only the few rows of a small block, so what counts is how
near it lies. A k-block's slice of the panel stays in the first cache while all rows of a chunk pass
over it; their sums are added to a stage in the second cache, which is stored once, at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector
from sparsetile.ops.cpu._number import Numbers, multiply_add, widen
from sparsetile.ops.cpu._tiles import INTEGERS, POINTERS, Fields, TileKernel

LAYOUT = Layout(
    integers=INTEGERS + "k_block k_blocks chunks chunk_rows",
    pointers=POINTERS + "table lengths rows index stream",
)
# How far ahead blocks are asked for: bytes of packed ones, steps of slots.
_BYTES_AHEAD = 512
_STEPS_AHEAD = 16


def how_read(block: tuple[int, int], transposed: bool, numbers: Numbers) -> str:
    """Say how a kernel finds its blocks.

    By "rows": those of a row lie one after the other among the values. For the transpose they do
    not: blocks that fill cache lines are then read where they lie, each by its own position
    ("slots"); smaller ones, and pairs, which lie the wrong way round, are arranged in sliced order
    first ("packed"). So are 16-bit blocks too small to be widened together.

    Args:
        block: Rows and inner units of a block as it is multiplied.
        transposed: Whether blocks are stored (inner, rows).
        numbers: The formats of the operands.
    """
    area = block[0] * block[1]
    if (numbers.widens and area < 4) or (transposed and numbers.pairs):
        return "packed"
    if not transposed:
        return "rows"
    return "slots" if numbers.unit_bytes * area >= 64 else "packed"


def packed_as(transposed: bool, numbers: Numbers) -> str:
    """Say what becomes of blocks that are arranged in sliced order."""
    if numbers.widens:
        return "widen"
    return "pair" if transposed and numbers.pairs else "copy"


@dataclass(frozen=True)
class SlicedKernel(TileKernel):
    """What distinguishes one compiled sliced kernel from another."""

    lanes: int
    numbers: Numbers
    block: tuple[int, int]  # (rows, inner units) of a block as it is multiplied
    slice_rows: int  # S block rows
    vectors: int  # T
    transposed: bool  # blocks are stored (inner, rows)
    x_by_rows: bool
    y_by_rows: bool
    activation: str = ""

    @property
    def reading(self) -> str:
        """How blocks are found: by "rows", "slots", or "packed"."""
        return how_read(self.block, self.transposed, self.numbers)

    @property
    def widens(self) -> bool:
        """Whether blocks come in a 16-bit format and are widened as they are used."""
        return self.numbers.widens and self.reading != "packed"

    @property
    def block_bytes(self) -> int:
        """Bytes of a block as the kernel reads it."""
        unit = self.numbers.unit_bytes if self.widens else 4
        return unit * self.block[0] * self.block[1]

    def stage_bytes(self, chunk_rows: int) -> int:
        """Bytes of a stage: a chunk, rows for padding, and what the transposing store reads on."""
        return (chunk_rows + self.block[0] + self.lanes) * self.row_bytes

    def ir(self) -> str:
        """Write the module: functions ``whole``, ``pack`` and ``rows``."""
        return module([*self.ends(), self._core(), *self.workers(LAYOUT)])

    def stretches(self, f: Function, a: Fields) -> Value:
        """Count the stretches that a panel is packed in: its k-blocks."""
        return a["k_blocks"]

    def pack_stretch(
        self, f: Function, a: Fields, x: Value, n: Value, panel: Value, stretch: Value
    ) -> None:
        """Emit the packing of one k-block of a tile's panel."""
        first = f.mul(stretch, a["k_block"])
        number = f.mul(first, self.numbers.per_unit)
        step = i64(self.numbers.x.size) if self.x_by_rows else a["x_stride"]
        x, left = f.at(x, f.mul(number, step)), f.sub(a["k"], number)
        target = f.at(panel, f.mul(first, self.row_bytes))
        f.call("pack_tile", x, a["x_stride"], n, i64(0), a["k_block"], left, target)

    def row_parts(self, a: Fields) -> Value:
        """Count the chunks."""
        return a["chunks"]

    def multiply_rows(
        self,
        f: Function,
        a: Fields,
        stage: Value,
        panels: Value,
        rows: tuple[Value, Value],
        tiles: tuple[Value, Value],
    ) -> None:
        """Emit the product of chunks with tiles: k-block by k-block onto a stage for each tile."""
        with f.loop(*rows) as chunks:
            row = f.mul(chunks.index, a["chunk_rows"])
            count = f.least(f.sub(a["m"], row), a["chunk_rows"])
            with f.loop(*tiles) as loop:
                mine = f.at(stage, f.mul(f.sub(loop.index, tiles[0]), a["stage_bytes"]))
                self._write_biases(f, a, mine, row, count)
            with f.loop(0, a["k_blocks"]) as blocks, f.loop(*tiles) as loop:
                number = f.sub(loop.index, tiles[0])
                panel = f.at(panels, f.mul(number, a["panel_bytes"]))
                panel = f.at(panel, f.mul(f.mul(blocks.index, a["k_block"]), self.row_bytes))
                mine = f.at(stage, f.mul(number, a["stage_bytes"]))
                self._multiply_segment(f, a, panel, mine, chunks.index, blocks.index)
            with f.loop(*tiles) as loop:
                _, y, n = self.tile(f, a, loop.index)
                mine = f.at(stage, f.mul(f.sub(loop.index, tiles[0]), a["stage_bytes"]))
                target = f.at(y, f.mul(row, self.row_step(a)))
                f.call("unpack", mine, target, a["y_stride"], count, n)

    def _write_biases(self, f: Function, a: Fields, stage: Value, row: Value, count: Value) -> None:
        with f.loop(0, count) as loop:
            bias = f.load("float", f.at(a["bias"], f.mul(f.add(row, loop.index), 4)))
            target, wide = f.at(stage, f.mul(loop.index, self.row_bytes)), f.splat(bias, self.lanes)
            for t in range(self.vectors):
                f.store(wide, f.at(target, 4 * self.lanes * t), align=4 * self.lanes)

    def _multiply_segment(
        self, f: Function, a: Fields, panel: Value, stage: Value, chunk: Value, block: Value
    ) -> None:
        """Multiply what one chunk holds in one k-block."""
        entry = f.mul(f.add(f.mul(chunk, a["k_blocks"]), block), 3)
        first, last, slot = (f.load_index(a["table"], f.add(entry, i), bits=64) for i in range(3))
        size = {"rows": 0, "slots": 4, "packed": self.block_bytes}[self.reading]
        stream = f.at(a["values" if self.reading == "packed" else "stream"], f.mul(slot, size))
        index, tables = f.at(a["index"], f.mul(slot, 2)), (a["lengths"], a["rows"])
        f.call("core", panel, stage, first, last, *tables, index, stream, a["values"])

    # --- the product ----------------------------------------------------------------------------

    def _core(self) -> Function:
        """Emit the walk over the slices of one (chunk, k-block).

        ``stream`` holds, by the way of reading: the first block of each row of all slices; the
        positions of the blocks slot by slot; or the blocks themselves.
        """
        S, T, v = self.slice_rows, self.vectors, vector(self.lanes)
        height, area = self.block[0], self.block[0] * self.block[1]
        args = [("panel", "ptr noalias readonly"), ("stage", "ptr noalias"), ("first", "i64")]
        args += [("last", "i64"), ("lengths", "ptr noalias readonly")]
        args += [(name, "ptr noalias readonly") for name in ("rows", "index", "stream", "values")]
        f = Function("core", args, internal=True)
        panel, stage, first, last, lengths, rows, index, stream, values = f.args
        wide = f.scratch(4 * S * area) if self.widens else None
        with f.loop(first, last, carry=[index, stream]) as slices:
            length, following = f.load_index(lengths, slices.index), f.add(slices.index, 1)
            targets, sums = self._targets(f, stage, rows, slices.index), []
            for target in targets:
                for i in range(height * T):
                    sums.append(f.load(v, f.at(target, 4 * self.lanes * i), align=4 * self.lanes))
            for target in self._targets(f, stage, rows, following):
                for line in range(0, height * self.row_bytes, 64):
                    f.prefetch(f.at(target, line), write=True)
            reader = self._reader(f, slices.index, following, lengths, stream, values)
            with f.loop(0, length, carry=[*slices.values, *sums]) as loop:
                index, here, *sums = loop.values
                blocks, here = reader(loop.index, here)
                if wide is not None:
                    blocks = self._widened(f, blocks, wide)
                sums = self._multiply(f, panel, index, blocks, sums)
                loop.carry([f.at(index, 2 * S), here, *sums])
            slices.carry(loop.results[:2])
            sums = loop.results[2:]
            for u, target in enumerate(targets):
                for i in range(height * T):
                    at = f.at(target, 4 * self.lanes * i)
                    f.store(sums[u * height * T + i], at, align=4 * self.lanes)
        return f

    def _targets(self, f: Function, stage: Value, rows: Value, slice_: Value) -> list[Value]:
        """Find where the S block rows of a slice lie in the stage."""
        first = f.mul(slice_, self.slice_rows)
        return [
            f.at(stage, f.mul(f.load_index(rows, f.add(first, u)), self.row_bytes))
            for u in range(self.slice_rows)
        ]

    def _reader(
        self,
        f: Function,
        slice_: Value,
        following: Value,
        lengths: Value,
        stream: Value,
        values: Value,
    ) -> Callable[[Value, Value], tuple[list[Value], Value]]:
        """Prepare a slice; return what emits a step's S blocks and the next place of the stream."""
        size, S = self.block_bytes, self.slice_rows

        def packed(_: Value, here: Value) -> tuple[list[Value], Value]:
            for line in range(0, S * size, 64):
                f.prefetch(f.at(here, _BYTES_AHEAD + line))
            return [f.at(here, u * size) for u in range(S)], f.at(here, S * size)

        def slots(_: Value, here: Value) -> tuple[list[Value], Value]:
            for u in range(S):
                ahead = f.load_index(here, u + _STEPS_AHEAD * S)
                for line in range(0, size, 64):
                    f.prefetch(f.at(values, f.add(f.mul(ahead, size), line)))
            blocks = [f.at(values, f.mul(f.load_index(here, u), size)) for u in range(S)]
            return blocks, f.at(here, 4 * S)

        if self.reading != "rows":
            return packed if self.reading == "packed" else slots

        def firsts(of: Value) -> list[Value]:
            number = f.mul(of, S)
            return [
                f.at(values, f.mul(f.load_index(stream, f.add(number, u)), size)) for u in range(S)
            ]

        rows, coming = firsts(slice_), firsts(following)
        if size < 64:
            run = f.mul(f.load_index(lengths, following), size)
            with f.loop(0, f.add(run, 63), 64) as lines:
                for row in coming:
                    f.prefetch(f.at(row, lines.index))

        def by_rows(step: Value, here: Value) -> tuple[list[Value], Value]:
            offset = f.mul(step, size)
            if size >= 64:
                for row in coming:
                    for line in range(0, size, 64):
                        f.prefetch(f.at(row, f.add(offset, line)))
            return [f.at(row, offset) for row in rows], here

        return by_rows

    def _widened(self, f: Function, blocks: list[Value], wide: Value) -> list[Value]:
        """Widen blocks to a small buffer."""
        area = self.block[0] * self.block[1]
        targets = [f.at(wide, 4 * area * u) for u in range(len(blocks))]
        for block, target in zip(blocks, targets, strict=True):
            widen(f, self.numbers.values, block, target, area)
        return targets

    def _multiply(
        self, f: Function, panel: Value, index: Value, blocks: list[Value], sums: list[Value]
    ) -> list[Value]:
        """Multiply one block of each of the S block rows."""
        (height, width), T, sums = self.block, self.vectors, list(sums)
        for u, block in enumerate(blocks):
            x = f.at(panel, f.mul(f.load_index(index, u, bits=16), self.row_bytes))
            for j in range(width):
                xs = []
                for t in range(T):
                    at = f.at(x, 4 * self.lanes * (j * T + t))
                    xs.append(f.load(vector(self.lanes), at, align=4 * self.lanes))
                for i in range(height):
                    place = j * height + i if self.transposed else i * width + j
                    w = f.splat(f.load("float", f.at(block, 4 * place)), self.lanes)
                    for t in range(T):
                        s = (u * height + i) * T + t
                        sums[s] = multiply_add(f, self.numbers, xs[t], w, sums[s])
        return sums
