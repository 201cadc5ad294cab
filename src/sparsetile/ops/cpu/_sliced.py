"""The sliced kernel, for small blocks: S short rows at once, the dense operand in the first cache.

One number of the dense operand serves only the few rows of a small block, so what counts is how
near it lies. A k-block's slice of the panel stays in the first cache while all rows of a chunk pass
over it; their sums are added to a stage in the second cache, which is stored once, at the end.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector, zero
from sparsetile.ops.cpu._pack import pack_columns, pack_rows, unpack_columns, unpack_rows

LAYOUT = Layout(
    integers="tasks column_tiles n k m k_block k_blocks chunks chunk_rows x_stride x_batch "
    "y_stride y_batch panel_bytes stage_bytes",  # strides in bytes
    pointers="x y panels stages table lengths rows index source values bias bounds zeros",
)
_AHEAD = 512  # bytes of the stream of packed blocks asked for in advance
_STEPS_AHEAD = 16  # the same in steps of S blocks, for blocks read where they lie


@dataclass(frozen=True)
class SlicedKernel:
    """What distinguishes one compiled sliced kernel from another."""

    lanes: int
    block: tuple[int, int]  # (rows, inner) of a block as it is multiplied
    slice_rows: int  # S block rows
    vectors: int  # T vectors of columns
    transposed: bool  # blocks are stored (inner, rows)
    x_by_rows: bool
    y_by_rows: bool

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    @property
    def direct(self) -> bool:
        """Whether blocks are read where they lie."""
        return self.reads_directly(self.block)

    @staticmethod
    def reads_directly(block: tuple[int, int]) -> bool:
        """Whether blocks are read where they lie: those that fill cache lines of their own."""
        return 4 * block[0] * block[1] >= 64

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a panel or stage."""
        return 4 * self.columns

    def stage_bytes(self, chunk_rows: int) -> int:
        """Bytes of a stage: a chunk, rows for padding, and what the transposing store reads on."""
        return (chunk_rows + self.block[0] + self.lanes) * self.row_bytes

    def ir(self) -> str:
        """Write the module: functions ``whole``, ``pack`` and ``rows``."""
        pack = pack_rows if self.x_by_rows else pack_columns
        unpack = unpack_rows if self.y_by_rows else unpack_columns
        return module(
            [
                pack("pack_tile", self.lanes, self.vectors),
                unpack("unpack", self.lanes, self.vectors),
                self._core(),
                *(self._worker(name) for name in ("whole", "pack", "rows")),
            ]
        )

    # --- workers ---------------------------------------------------------------------------------

    def _worker(self, name: str) -> Function:
        """Task = a column tile (``whole``), or its k-block (``pack``) or chunk (``rows``)."""
        f, a = LAYOUT.function(name)
        ticket = f.take(a["ticket"]) if name != "pack" else i64(0)
        stage = f.at(a["stages"], f.mul(ticket, a["stage_bytes"]))
        with f.tasks(a["task"], a["tasks"]) as task:
            if name == "whole":
                x, y, n = self._tile(f, a, task)
                panel = f.at(a["panels"], f.mul(ticket, a["panel_bytes"]))
                with f.loop(0, a["k_blocks"]) as blocks:
                    self._pack_block(f, a, x, n, panel, blocks.index)
                with f.loop(0, a["chunks"]) as chunks:
                    self._chunk(f, a, panel, stage, y, n, chunks.index)
            elif name == "pack":
                tile, block = f.div(task, a["k_blocks"]), f.rem(task, a["k_blocks"])
                x, _, n = self._tile(f, a, tile)
                panel = f.at(a["panels"], f.mul(tile, a["panel_bytes"]))
                self._pack_block(f, a, x, n, panel, block)
            else:
                chunk, tile = f.div(task, a["column_tiles"]), f.rem(task, a["column_tiles"])
                _, y, n = self._tile(f, a, tile)
                panel = f.at(a["panels"], f.mul(tile, a["panel_bytes"]))
                self._chunk(f, a, panel, stage, y, n, chunk)
        return f

    def _tile(self, f: Function, a: dict[str, Value], tile: Value) -> tuple[Value, Value, Value]:
        """Find where a column tile lies: x, y, and how many columns of it exist."""
        per_batch = f.div(f.add(a["n"], self.columns - 1), self.columns)
        batch, column = f.div(tile, per_batch), f.mul(f.rem(tile, per_batch), self.columns)
        x_step = a["x_stride"] if self.x_by_rows else i64(4)
        y_step = a["y_stride"] if self.y_by_rows else i64(4)
        x = f.at(f.at(a["x"], f.mul(batch, a["x_batch"])), f.mul(column, x_step))
        y = f.at(f.at(a["y"], f.mul(batch, a["y_batch"])), f.mul(column, y_step))
        return x, y, f.least(f.sub(a["n"], column), self.columns)

    def _slice_bytes(self, f: Function, a: dict[str, Value]) -> Value:
        """Bytes of a k-block's panel: its rows, and rows of zeros that padding multiplies."""
        return f.mul(f.add(a["k_block"], self.block[1]), self.row_bytes)

    def _pack_block(
        self, f: Function, a: dict[str, Value], x: Value, n: Value, panel: Value, block: Value
    ) -> None:
        first = f.mul(block, a["k_block"])
        x = f.at(x, f.mul(first, i64(4) if self.x_by_rows else a["x_stride"]))
        left = f.sub(a["k"], first)
        target = f.at(panel, f.mul(block, self._slice_bytes(f, a)))
        f.call("pack_tile", x, a["x_stride"], n, i64(0), a["k_block"], left, target)
        zeros = f.at(target, f.mul(a["k_block"], self.row_bytes))
        for offset in range(0, self.block[1] * self.row_bytes, 4 * self.lanes):
            f.store(zero(vector(self.lanes)), f.at(zeros, offset))

    def _chunk(
        self,
        f: Function,
        a: dict[str, Value],
        panel: Value,
        stage: Value,
        y: Value,
        n: Value,
        chunk: Value,
    ) -> None:
        """Multiply the rows of a chunk: bias into the stage, all k-blocks onto it, out to y."""
        row = f.mul(chunk, a["chunk_rows"])
        rows = f.least(f.sub(a["m"], row), a["chunk_rows"])
        with f.loop(0, rows) as biases:
            b = f.load("float", f.at(a["bias"], f.mul(f.add(row, biases.index), 4)))
            target = f.at(stage, f.mul(biases.index, self.row_bytes))
            wide = f.splat(b, self.lanes)
            for t in range(self.vectors):
                f.store(wide, f.at(target, 4 * self.lanes * t), align=4 * self.lanes)
        size = 4 * self.block[0] * self.block[1]
        with f.loop(0, a["k_blocks"]) as blocks:
            entry = f.mul(f.add(f.mul(chunk, a["k_blocks"]), blocks.index), 3)
            first, last, slot = (
                f.load_index(a["table"], f.add(entry, i), bits=64) for i in range(3)
            )
            f.call(
                "core",
                f.at(panel, f.mul(blocks.index, self._slice_bytes(f, a))),
                stage,
                first,
                last,
                a["lengths"],
                a["rows"],
                f.at(a["index"], f.mul(slot, 2)),
                f.at(a["source"], f.mul(slot, 4))
                if self.direct
                else f.at(a["values"], f.mul(slot, size)),
                a["values"],
                a["zeros"],
            )
        step = i64(4) if self.y_by_rows else a["y_stride"]
        f.call("unpack", stage, f.at(y, f.mul(row, step)), a["y_stride"], rows, n)

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
