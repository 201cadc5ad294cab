"""The sliced kernel, for small blocks: S short rows at once, the dense operand in the first cache.

One number of the dense operand serves only the few rows of a small block, so what counts is how
near it lies. A k-block's slice of the panel stays in the first cache while all rows of a chunk pass
over it; their sums are added to a stage in the second cache, which is stored once, at the end.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector, zero
from sparsetile.ops.cpu._tiles import INTEGERS, POINTERS, Fields, TileKernel

LAYOUT = Layout(
    integers=INTEGERS + "k_block k_blocks chunks chunk_rows",
    pointers=POINTERS + "table lengths rows index source zeros",
)
_AHEAD = 512  # bytes of the stream of packed blocks asked for in advance
_STEPS_AHEAD = 16  # the same in steps of S blocks, for blocks read where they lie


@dataclass(frozen=True)
class SlicedKernel(TileKernel):
    """What distinguishes one compiled sliced kernel from another."""

    lanes: int
    block: tuple[int, int]  # (rows, inner) of a block as it is multiplied
    slice_rows: int  # S block rows
    vectors: int  # T
    transposed: bool  # blocks are stored (inner, rows)
    x_by_rows: bool
    y_by_rows: bool

    @property
    def direct(self) -> bool:
        """Whether blocks are read where they lie."""
        return self.reads_directly(self.block)

    @staticmethod
    def reads_directly(block: tuple[int, int]) -> bool:
        """Whether blocks are read where they lie: those that fill cache lines of their own."""
        return 4 * block[0] * block[1] >= 64

    def stage_bytes(self, chunk_rows: int) -> int:
        """Bytes of a stage: a chunk, rows for padding, and what the transposing store reads on."""
        return (chunk_rows + self.block[0] + self.lanes) * self.row_bytes

    def ir(self) -> str:
        """Write the module: functions ``whole``, ``pack`` and ``rows``."""
        workers = []
        for name, emit in (("whole", self.whole), ("pack", self.pack), ("rows", self.rows)):
            f, fields = LAYOUT.function(name)
            emit(f, fields)
            workers.append(f)
        return module([*self.ends(), self._core(), *workers])

    def stretches(self, f: Function, a: Fields) -> Value:
        """Count the stretches that a panel is packed in: its k-blocks."""
        return a["k_blocks"]

    def pack_stretch(
        self, f: Function, a: Fields, x: Value, n: Value, panel: Value, stretch: Value
    ) -> None:
        """Emit the packing of one k-block of a tile's panel, and of its rows of zeros."""
        first = f.mul(stretch, a["k_block"])
        x = f.at(x, f.mul(first, i64(4) if self.x_by_rows else a["x_stride"]))
        left = f.sub(a["k"], first)
        target = f.at(panel, f.mul(stretch, self._slice_bytes(f, a)))
        f.call("pack_tile", x, a["x_stride"], n, i64(0), a["k_block"], left, target)
        zeros = f.at(target, f.mul(a["k_block"], self.row_bytes))
        for offset in range(0, self.block[1] * self.row_bytes, 4 * self.lanes):
            f.store(zero(vector(self.lanes)), f.at(zeros, offset))

    def _slice_bytes(self, f: Function, a: Fields) -> Value:
        """Bytes of a k-block's panel: its rows, and rows of zeros that padding multiplies."""
        return f.mul(f.add(a["k_block"], self.block[1]), self.row_bytes)

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
                panel = f.at(panel, f.mul(blocks.index, self._slice_bytes(f, a)))
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
        if self.direct:
            stream = f.at(a["source"], f.mul(slot, 4))
        else:
            stream = f.at(a["values"], f.mul(slot, 4 * self.block[0] * self.block[1]))
        index, tables = f.at(a["index"], f.mul(slot, 2)), (a["lengths"], a["rows"])
        f.call("core", panel, stage, first, last, *tables, index, stream, a["values"], a["zeros"])

    # --- the product ----------------------------------------------------------------------------

    def _core(self) -> Function:
        """Emit the walk over the slices of one (chunk, k-block).

        ``stream`` is what goes along with the slots: the packed blocks, or, for blocks read where
        they lie, their positions among the values.
        """
        (height, width), S, T, v = self.block, self.slice_rows, self.vectors, vector(self.lanes)
        args = [("panel", "ptr noalias readonly"), ("stage", "ptr noalias"), ("first", "i64")]
        args += [("last", "i64"), ("lengths", "ptr noalias readonly")]
        args += [
            (name, "ptr noalias readonly")
            for name in ("rows", "index", "stream", "values", "zeros")
        ]
        f = Function("core", args, internal=True)
        panel, stage, first, last, lengths, rows, index, stream, values, zeros = f.args
        step = 4 * S if self.direct else 4 * S * height * width
        with f.loop(first, last, carry=[index, stream]) as slices:
            length = f.load_index(lengths, slices.index)
            targets, sums = self._targets(f, stage, rows, slices.index), []
            for target in targets:
                for i in range(height * T):
                    sums.append(f.load(v, f.at(target, 4 * self.lanes * i), align=4 * self.lanes))
            for target in self._targets(f, stage, rows, f.add(slices.index, 1)):
                for line in range(0, height * self.row_bytes, 64):
                    f.prefetch(f.at(target, line), write=True)
            with f.loop(0, length, carry=[*slices.values, *sums]) as loop:
                index, stream, *sums = loop.values
                blocks = self._addresses(f, stream, values, zeros)
                sums = self._multiply(f, panel, index, blocks, sums)
                loop.carry([f.at(index, 2 * S), f.at(stream, step), *sums])
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

    def _addresses(self, f: Function, stream: Value, values: Value, zeros: Value) -> list[Value]:
        """Find the S blocks of this step, and ask for ones to come."""
        size, S = 4 * self.block[0] * self.block[1], self.slice_rows
        if not self.direct:
            for line in range(0, S * size, 64):
                f.prefetch(f.at(stream, _AHEAD + line))
            return [f.at(stream, u * size) for u in range(S)]
        blocks = []
        for u in range(2 * S):
            ahead = _STEPS_AHEAD * S if u >= S else 0
            position = f.load_signed(f.at(stream, 4 * (u % S + ahead)))
            block = f.at(values, f.mul(position, size))
            if u >= S:
                for line in range(0, size, 64):
                    f.prefetch(f.at(block, line))
            else:
                blocks.append(f.select(f.compare("sge", position, 0), block, zeros))
        return blocks

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
                        sums[s] = f.fma(xs[t], w, sums[s])
        return sums
