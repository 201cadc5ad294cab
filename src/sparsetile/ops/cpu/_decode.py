"""The decode kernel, for few columns: blocks as they are stored, times a handful of columns of x.

With so few columns the stored values are read once and hardly used, so memory is what counts: they
are neither copied nor reordered. A vector of sums holds, for some rows and all columns, the sums of
every ``run``-th product along the row (see :class:`Lanes`); values and x are repeated to match on
their way from memory, which costs nothing. Lanes of one sum are added up only at the end of a row.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._decode_ends import Finish, Lanes, Pack
from sparsetile.ops.cpu._decode_gather import GatherRow
from sparsetile.ops.cpu._decode_mask import MaskRow
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector, zero
from sparsetile.ops.cpu._number import Numbers, load_wide, multiply_add, widen

LAYOUT = Layout(
    integers="tasks m k x_stride y_stride own_bytes",
    pointers="x y own values bias crow col bounds",  # strides in bytes
)
_CHAINS = 8  # sums at least at once: an FMA waits for the one before it in its chain
_TURN = 8  # FMAs in a turn of the hot loop at least
_UNROLL = 8  # vectors along a row of a block that are spelt out at most


@dataclass(frozen=True)
class DecodeKernel:
    """What distinguishes one compiled decode kernel from another."""

    most_lanes: int
    registers: int
    block: tuple[int, int]
    columns: int
    numbers: Numbers
    activation: str
    index_bits: int  # of a column index
    ahead: int  # bytes of values asked for before their turn; none where they lie in a near cache
    walk: str = "blocks"  # one by one, or many 1×1 blocks at once: by "gather" or by "mask"
    expands: bool = False  # whether the processor spreads 16-bit numbers by a mask

    @property
    def units(self) -> int:
        """Units in a row of a block."""
        return self.block[1] // self.numbers.per_unit

    @property
    def lanes(self) -> Lanes:
        """What the lanes of a vector of sums are."""
        if self.walk != "blocks":
            return Lanes(1, self.columns, self.most_lanes // self.columns)
        least = 4 if self.numbers.pairs else 1  # there is no shorter product of pairs
        return lanes_for(self.most_lanes, least, self.block[0], self.units, self.columns)

    @property
    def parts(self) -> int:
        """Vectors in a row of a block."""
        return max(1, self.units // self.lanes.run)

    @property
    def sums(self) -> int:
        """Vectors of sums of a block row."""
        return self.block[0] // self.lanes.rows

    @property
    def group(self) -> int:
        """Block rows multiplied before their sums are finished."""
        return -(-max(16, self.lanes.width // self.lanes.rows) // self.sums)

    @property
    def passes(self) -> int:
        """How often the blocks of a group are passed over."""
        return -(-self.columns // self.lanes.columns)

    def ir(self) -> str:
        """Write the module: the function ``run``."""
        packs = [
            self._pack(columns).function() for columns in sorted(set(self._columns_of_passes()))
        ]
        return module([*packs, self._core(), self._finish.function(), self._run()])

    def own_bytes(self, k: int) -> int:
        """Bytes that each thread needs for itself: its stage and the packed columns."""
        return self._stage_bytes + self._pack(1).bytes_of(k) * self.passes

    @property
    def _stage_bytes(self) -> int:
        return self._finish.stage_bytes(self.sums * self.group)

    def _pack(self, columns: int) -> Pack:
        run = {"blocks": self.lanes.run, "gather": 1, "mask": self.most_lanes}[self.walk]
        return Pack(run, self.lanes.columns, self.most_lanes, columns, self.numbers, self.block[1])

    @property
    def _finish(self) -> Finish:
        return Finish(self.lanes, self.numbers, self.activation)

    # --- the walk -------------------------------------------------------------------------------

    def _run(self) -> Function:
        """Task = a band of block rows, for all columns; each thread packs the columns itself."""
        f, a = LAYOUT.function("run")
        stage = f.at(a["own"], f.mul(f.take(a["ticket"]), a["own_bytes"]))
        packed = f.at(stage, self._stage_bytes)
        pass_bytes = f.div(f.sub(a["own_bytes"], self._stage_bytes), self.passes)
        for i, columns in enumerate(self._columns_of_passes()):
            x = f.at(a["x"], f.mul(a["x_stride"], i * self.lanes.columns))
            target = f.at(packed, f.mul(pass_bytes, i))
            f.call(f"pack_{columns}", x, a["x_stride"], a["k"], target)
        number = self.numbers.y
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.load_index(a["bounds"], task, bits=64)
            last = f.load_index(a["bounds"], f.add(task, 1), bits=64)
            with f.loop(first, last, step=self.group) as groups:
                stop = f.least(f.add(groups.index, self.group), last)
                row = f.mul(groups.index, self.block[0])
                rows = f.sub(f.least(f.mul(stop, self.block[0]), a["m"]), row)
                offset = f.mul(row, number.size)
                for i, columns in enumerate(self._columns_of_passes()):
                    x = f.at(packed, f.mul(pass_bytes, i))
                    tables = (a["crow"], a["col"], a["values"], stage, a["k"])
                    f.call("core", x, groups.index, stop, *tables)
                    y = f.at(f.at(a["y"], f.mul(a["y_stride"], i * self.lanes.columns)), offset)
                    bias = f.at(a["bias"], offset)
                    f.call("finish", stage, y, a["y_stride"], i64(columns), bias, rows)
        return f

    def _columns_of_passes(self) -> list[int]:
        most = self.lanes.columns
        return [min(most, self.columns - done) for done in range(0, self.columns, most)]

    # --- the product ----------------------------------------------------------------------------

    @property
    def tile(self) -> int:
        """Sums of a block row that are in registers at once."""
        return max(d for d in range(1, self.registers - 3) if self.sums % d == 0)

    @property
    def chains(self) -> int:
        """Vectors that a sum is spread over."""
        return max(1, _CHAINS // self.tile)

    @property
    def together(self) -> int:
        """Blocks multiplied in one turn."""
        return max(1, _CHAINS // (self.tile * self.parts), _TURN // (self.tile * self.parts))

    def _core(self) -> Function:
        """Emit the product of block rows first…stop with the columns of a pass, into the stage.

        In place of columns, ``col`` may point to the rows of a bit mask.
        """
        args = [("x", "ptr noalias readonly"), ("first", "i64"), ("stop", "i64")]
        args += [(name, "ptr noalias readonly") for name in ("crow", "col", "values")]
        args += [("stage", "ptr noalias"), ("k", "i64")]
        f = Function("core", args, internal=True)
        x, first, stop, crow, col, values, stage, k = f.args
        size = 4 * self.lanes.width
        step = _Step(self, f, x, col)
        with f.loop(first, stop, carry=[f.load_index(crow, first), stage]) as loop:
            start, here = loop.values
            end = f.load_index(crow, f.add(loop.index, 1))
            if self.walk != "blocks":
                total = self._row_of_numbers(f, x, col, values, (start, end), (loop.index, k))
                f.store(total, here, align=size)
            else:
                with f.loop(0, self.sums, step=self.tile) as tiles:
                    tile = f.at(values, f.mul(tiles.index, self.parts * self.piece_bytes))
                    target = f.at(here, f.mul(tiles.index, size))
                    for i, total in enumerate(self._row(f, step, tile, start, end)):
                        f.store(total, f.at(target, i * size), align=size)
            loop.carry([end, f.at(here, self.sums * size)])
        return f

    def _row_of_numbers(
        self,
        f: Function,
        x: Value,
        col: Value,
        values: Value,
        numbers: tuple[Value, Value],
        place: tuple[Value, Value],
    ) -> Value:
        """Emit the walk along a row of 1×1 blocks, many at once; return its sums."""
        stored, (start, end), (row, k) = self.numbers.values, numbers, place
        if self.walk == "gather":
            gather = GatherRow(f, stored, self.columns, self.index_bits, self.ahead)
            return gather.sums(x, col, values, start, end)
        mask = MaskRow(f, self.numbers, self.columns, self.expands, self.ahead)
        return mask.sums(x, col, f.at(values, f.mul(start, stored.size)), row, k)

    @property
    def spelt(self) -> int:
        """Vectors along a row of a block that are spelt out, not looped over."""
        return max(d for d in range(1, _UNROLL + 1) if self.parts % d == 0)

    @property
    def piece_bytes(self) -> int:
        """Bytes of the values that a vector holds, before they are repeated."""
        return self.lanes.rows * self.lanes.run * self.numbers.unit_bytes

    def _row(
        self, f: Function, step: "_Step", values: Value, start: Value, end: Value
    ) -> list[Value]:
        """Emit the walk along a block row; return its sums."""
        sums = [zero(vector(self.lanes.width))] * (self.tile * self.chains)
        whole = f.sub(end, f.rem(f.sub(end, start), self.together))
        with f.loop(start, whole, step=self.together, carry=sums) as loop:
            loop.carry(step.add(values, loop.index, self.together, loop.values))
        sums = loop.results
        if self.together > 1:
            with f.loop(whole, end, carry=sums) as loop:
                loop.carry(step.add(values, loop.index, 1, loop.values))
            sums = loop.results
        while len(sums) > self.tile:
            half = len(sums) // 2
            sums = [f.fadd(a, b) for a, b in zip(sums[:half], sums[half:], strict=True)]
        return sums


class _Step:
    """What emits the product of a tile of rows of some blocks that follow each other."""

    def __init__(self, kernel: DecodeKernel, f: Function, x: Value, col: Value) -> None:
        self.kernel, self.f, self.x, self.col = kernel, f, x, col
        self.block_bytes = kernel.block[0] * kernel.block[1] * kernel.numbers.values.size
        self.row_bytes = kernel.parts * kernel.piece_bytes  # of the rows of a vector of sums
        self.ahead = kernel.ahead
        if kernel.tile < kernel.sums:  # whole blocks, since what follows a tile is another one's
            self.ahead = -(-kernel.ahead // (kernel.tile * self.row_bytes)) * self.block_bytes
        # values that must be both widened and repeated are widened into memory first
        self.wide: Value | None = None
        if kernel.numbers.widens and kernel.lanes.columns > 1:
            most = kernel.together * kernel.tile * kernel.spelt * kernel.lanes.run
            self.wide = f.scratch(4 * most)

    def add(self, values: Value, first: Value, count: int, sums: list[Value]) -> list[Value]:
        """Add the products of the blocks from the first on to the sums.

        Each part of each block goes to the next chain of sums.
        """
        f, kernel = self.f, self.kernel
        w = f.at(values, f.mul(first, self.block_bytes))
        for block in range(count):
            column = f.load_index(self.col, f.add(first, block), bits=kernel.index_bits)
            x = f.at(self.x, f.mul(column, 4 * kernel.units * kernel.lanes.columns))
            if kernel.spelt == kernel.parts:
                if block == 0 and self.wide is not None:
                    self._widen(w, count)
                sums = self._parts(w, x, sums, block)
                continue
            with f.loop(0, kernel.parts, step=kernel.spelt, carry=sums) as loop:
                here = f.at(w, f.mul(loop.index, kernel.piece_bytes))
                there = f.at(x, f.mul(loop.index, 4 * kernel.lanes.run * kernel.lanes.columns))
                if self.wide is not None:
                    self._widen(here, 1)
                loop.carry(self._parts(here, there, loop.values, 0))
            sums = loop.results
        return sums

    def _widen(self, values: Value, blocks: int) -> None:
        """Widen what is spelt out of some blocks; they lie one after the other if whole."""
        kernel, wide = self.kernel, self.wide
        assert wide is not None
        count = kernel.spelt * kernel.lanes.run
        if kernel.spelt == kernel.parts:
            number = kernel.tile * count
            strides = [(self.block_bytes * b, 4 * number * b) for b in range(blocks)]
            if kernel.tile == kernel.sums:
                number, strides = number * blocks, [(0, 0)]
        else:
            number = count
            strides = [(self.row_bytes * i, 4 * count * i) for i in range(kernel.tile)]
        for source, target in strides:
            at, to = self.f.at(values, source), self.f.at(wide, target)
            widen(self.f, kernel.numbers.values, at, to, number)

    def _parts(self, w: Value, x: Value, sums: list[Value], block: int) -> list[Value]:
        """Add the spelt parts of one of the blocks at ``w``, or of what was widened of them."""
        f, kernel, sums = self.f, self.kernel, list(sums)
        lanes, numbers, before = kernel.lanes, kernel.numbers, block * self.block_bytes
        for part in range(kernel.spelt):
            xs = lanes.load_x(f, f.at(x, 4 * lanes.run * lanes.columns * part))
            chain = (block * kernel.parts + part) % kernel.chains * kernel.tile
            for i in range(kernel.tile):
                offset = before + self.row_bytes * i + kernel.piece_bytes * part
                if self.ahead and offset % 64 < kernel.piece_bytes:
                    f.prefetch(f.at(w, offset + self.ahead), level=2)
                if self.wide is not None:
                    place = (block * kernel.tile + i) * kernel.spelt + part
                    ws = lanes.load_values(f, f.at(self.wide, 4 * lanes.run * place))
                elif numbers.widens:
                    ws = load_wide(f, numbers.values, lanes.width, f.at(w, offset))
                else:
                    ws = lanes.load_values(f, f.at(w, offset))
                sums[chain + i] = multiply_add(f, numbers, ws, xs, sums[chain + i])
        return sums


def lanes_for(most: int, least: int, rows: int, units: int, columns: int) -> Lanes:
    """Choose what the lanes of vectors are, for a block of so many rows of so many units.

    Args:
        most: Lanes of the widest vector.
        least: Lanes of the narrowest one.
        rows: Rows of a block.
        units: Units in a row of a block.
        columns: Columns of the dense operand; a power of two, at most ``most``, serves them.
    """
    width = min(most, 1 << (columns - 1).bit_length())
    run = _factor(units, most // width)
    rows = _factor(rows, most // run) if columns == 1 and run == units else 1
    if rows * width * run < least:
        return Lanes(1, least // run, run)
    return Lanes(rows, width, run)


def _factor(number: int, most: int) -> int:
    """Find the largest power of two that divides a number and is at most ``most``."""
    return min(most, number & -number)
