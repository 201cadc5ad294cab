"""The decode kernel, for few columns: rows of blocks, as they are stored, times columns of x.

With so few columns the stored values are read once and hardly used, so memory is what counts: they
are neither copied nor reordered. A vector runs along a row of a block, or over several rows of a
narrow one; its products are summed lane by lane along the block row, and only at the end are the
lanes of a row added up. The columns of x are packed first, block column by block column.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._decode_ends import Finish, Pack, Piece
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector, zero
from sparsetile.ops.cpu._number import Numbers, load_wide, multiply_add

LAYOUT = Layout(
    integers="tasks m k x_stride y_stride pack_bytes",
    pointers="x y packed values bias crow col bounds",  # strides in bytes
)
_MOST_COLUMNS = 8  # of a pass over the blocks
_CHAINS = 4  # sums at least at once: an FMA waits for the one before it in its chain


@dataclass(frozen=True)
class DecodeKernel:
    """What distinguishes one compiled decode kernel from another."""

    lanes: int  # of the widest vector
    registers: int
    block: tuple[int, int]  # its columns are a power of two
    columns: int
    numbers: Numbers
    activation: str
    index_bits: int  # of a column index

    @property
    def units(self) -> int:
        """Units in a row of a block."""
        return self.block[1] // self.numbers.per_unit

    @property
    def width(self) -> int:
        """Lanes of the vectors that a block is read in."""
        return lanes_for(self.block[0] * self.units, self.lanes)

    @property
    def parts(self) -> int:
        """Vectors in a row of a block, at least one."""
        return max(1, self.units // self.width)

    @property
    def sums(self) -> int:
        """Vectors of sums of a block row."""
        return self.block[0] * self.units // (self.width * self.parts)

    @property
    def group(self) -> int:
        """Block rows multiplied before their sums are finished."""
        return -(-16 // self.sums)

    @property
    def passes(self) -> tuple[int, ...]:
        """Columns of each pass over the blocks of a group."""
        count = -(-self.columns // _MOST_COLUMNS)
        return tuple((self.columns + i) // count for i in range(count))

    @property
    def _piece(self) -> Piece:
        return Piece(self.numbers, self.block[1], self.width)

    @property
    def _finish(self) -> Finish:
        stage = self.sums * self.group
        span = min(self.units, self.width)
        return Finish(self.width, span, stage, self.numbers, self.activation)

    def ir(self) -> str:
        """Write the module: the function ``run``."""
        cores = [self._core(columns) for columns in sorted(set(self.passes))]
        packs = [Pack(self._piece, columns).function() for columns in sorted(set(self.passes))]
        return module([*packs, *cores, self._finish.function(), self._run()])

    def pack_bytes(self, k: int) -> int:
        """Bytes of the packed columns of one thread."""
        return self._piece.bytes_of(k) * self.columns

    # --- the walk -------------------------------------------------------------------------------

    def _run(self) -> Function:
        """Task = a band of block rows, for all columns; each thread packs the columns for itself."""
        f, a = LAYOUT.function("run")
        ticket = f.take(a["ticket"])
        packed = f.at(a["packed"], f.mul(ticket, a["pack_bytes"]))
        column_bytes = f.div(a["pack_bytes"], self.columns)
        done = 0
        for columns in self.passes:
            source = f.at(a["x"], f.mul(a["x_stride"], done))
            target = f.at(packed, f.mul(column_bytes, done))
            f.call(f"pack_{columns}", source, a["x_stride"], a["k"], target)
            done += columns
        stage = f.scratch(self._finish.stage_bytes(max(self.passes)))
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.load_index(a["bounds"], task, bits=64)
            last = f.load_index(a["bounds"], f.add(task, 1), bits=64)
            with f.loop(first, last, step=self.group) as groups:
                self._group(f, a, packed, column_bytes, stage, groups.index, last)
        return f

    def _group(
        self,
        f: Function,
        a: dict[str, Value],
        packed: Value,
        column_bytes: Value,
        stage: Value,
        first: Value,
        last: Value,
    ) -> None:
        stop = f.least(f.add(first, self.group), last)
        row = f.mul(first, self.block[0])
        rows = f.sub(f.least(f.mul(stop, self.block[0]), a["m"]), row)
        bias = f.at(a["bias"], f.mul(row, self.numbers.y.size))
        done = 0
        for columns in self.passes:
            x = f.at(packed, f.mul(column_bytes, done))
            f.call(f"core_{columns}", x, first, stop, a["crow"], a["col"], a["values"], stage)
            y = f.at(a["y"], f.add(f.mul(a["y_stride"], done), f.mul(row, self.numbers.y.size)))
            f.call("finish", stage, y, a["y_stride"], bias, rows, i64(columns))
            done += columns

    # --- the product ----------------------------------------------------------------------------

    def _tile(self, columns: int) -> tuple[int, int]:
        """Choose how many of the sums of a block row, and how many blocks, are in flight."""
        # a column's x and the values of each row lie in registers beside the sums
        room = self.registers - (4 if columns == 1 else 2)
        fits = [d for d in range(1, self.sums + 1) if self.sums % d == 0]
        need = (1 if columns == 1 else columns + 1, 1)
        rows = max((d for d in fits if need[0] * d + need[1] <= room), default=1)
        blocks = max(1, _CHAINS // (rows * columns))
        return rows, blocks

    def _core(self, columns: int) -> Function:
        """Emit the product of block rows first…stop with some columns, into the stage."""
        args = [("x", "ptr noalias readonly"), ("first", "i64"), ("stop", "i64")]
        args += [(name, "ptr noalias readonly") for name in ("crow", "col", "values")]
        f = Function(f"core_{columns}", [*args, ("stage", "ptr noalias")], internal=True)
        x, first, stop, crow, col, values, stage = f.args
        rows, blocks = self._tile(columns)
        finish = self._finish
        start = f.load_index(crow, first)
        with f.loop(first, stop, carry=[start, stage]) as loop:
            start, here = loop.values
            end = f.load_index(crow, f.add(loop.index, 1))
            with f.loop(0, self.sums, step=rows) as tiles:
                offset = f.mul(tiles.index, self.parts * self._vector_bytes)
                tile = f.at(values, offset)
                sums = self._tile_sums(f, columns, (rows, blocks), x, col, tile, start, end)
                target = f.at(here, f.mul(tiles.index, finish.sum_bytes))
                for i, total in enumerate(sums):
                    at = (i // rows) * finish.column_bytes + (i % rows) * finish.sum_bytes
                    f.store(total, f.at(target, at), align=finish.sum_bytes)
            loop.carry([end, f.at(here, self.sums * finish.sum_bytes)])
        return f

    @property
    def _vector_bytes(self) -> int:
        return self.width * self.numbers.per_unit * self.numbers.values.size

    def _tile_sums(
        self,
        f: Function,
        columns: int,
        tile: tuple[int, int],
        x: Value,
        col: Value,
        values: Value,
        start: Value,
        end: Value,
    ) -> list[Value]:
        """Emit the walk along a block row; return sums, row by row of each column."""
        rows, blocks = tile
        count, v = rows * columns, vector(self.width)
        none = [zero(v)] * count
        if blocks == 1:
            with f.loop(start, end, carry=none) as loop:
                loop.carry(self._step(f, columns, rows, x, col, values, loop.index, loop.values))
            return loop.results
        whole = f.sub(end, f.rem(f.sub(end, start), blocks))
        with f.loop(start, whole, step=blocks, carry=none * blocks) as loop:
            after = []
            for b in range(blocks):
                block = f.add(loop.index, b) if b else loop.index
                mine = loop.values[b * count : (b + 1) * count]
                after += self._step(f, columns, rows, x, col, values, block, mine)
            loop.carry(after)
        sums = loop.results[:count]
        for b in range(1, blocks):
            more = loop.results[b * count : (b + 1) * count]
            sums = [f.fadd(one, other) for one, other in zip(sums, more, strict=True)]
        with f.loop(whole, end, carry=sums) as loop:
            loop.carry(self._step(f, columns, rows, x, col, values, loop.index, loop.values))
        return loop.results

    def _step(
        self,
        f: Function,
        columns: int,
        rows: int,
        x: Value,
        col: Value,
        values: Value,
        block: Value,
        sums: list[Value],
    ) -> list[Value]:
        """Add the product of some rows of one block with the columns."""
        sums = list(sums)
        size = self.block[0] * self.block[1] * self.numbers.values.size
        w = f.at(values, f.mul(block, size))
        column = f.load_index(col, block, bits=self.index_bits)
        piece = self._piece
        x = f.at(x, f.mul(column, piece.bytes * columns))
        for part in range(self.parts):
            ws = [
                self._load(f, f.at(w, (i * self.parts + part) * self._vector_bytes))
                for i in range(rows)
            ]
            for j in range(columns):
                xs = piece.load(f, f.at(x, j * piece.bytes), part)
                for i in range(rows):
                    at = j * rows + i
                    sums[at] = multiply_add(f, self.numbers, ws[i], xs, sums[at])
        return sums

    def _load(self, f: Function, pointer: Value) -> Value:
        if self.numbers.pairs:
            return f.load(vector(self.width), pointer)
        return load_wide(f, self.numbers.values, self.width, pointer)


def lanes_for(numbers: int, most: int) -> int:
    """Choose the lanes of vectors that cut so many numbers without a rest."""
    return min(most, numbers & -numbers)
