"""The two ends of the decode kernel: columns of x are packed, and sums become numbers of y."""

from dataclasses import dataclass

from sparsetile.ops.cpu._activation import activate
from sparsetile.ops.cpu._emit import Function, Value, vector
from sparsetile.ops.cpu._number import Numbers, load_wide, store_narrow


@dataclass(frozen=True)
class Piece:
    """What a block meets of one column of x: as float32, or as pairs of bfloat16."""

    numbers: Numbers
    count: int  # numbers in it
    width: int  # lanes of the vectors it is multiplied in

    @property
    def size(self) -> int:
        """Bytes of a number."""
        return 2 if self.numbers.pairs else 4

    @property
    def bytes(self) -> int:
        """Bytes of the piece."""
        return self.count * self.size

    def bytes_of(self, k: int) -> int:
        """Bytes of a packed column: whole pieces, and whole cache lines."""
        return -(-max(1, k) // self.count) * self.bytes + 63 & ~63

    def load(self, f: Function, pointer: Value, part: int) -> Value:
        """Load one vector of the piece; one shorter than the vector is repeated."""
        units = self.bytes // 4
        if units >= self.width:
            return f.load(vector(self.width), f.at(pointer, 4 * self.width * part))
        if units == 1:
            return f.splat(f.load("float", pointer), self.width)
        if units == 2:  # spelt so that one instruction loads and repeats
            twice = f.splat(f.load("double", pointer), self.width // 2)
            return f.bits(twice, vector(self.width))
        short = f.load(vector(units), pointer)
        return f.shuffle(short, None, [lane % units for lane in range(self.width)])


@dataclass(frozen=True)
class Pack:
    """Packing of some columns of x: piece by piece, the columns side by side, zeros at the end."""

    piece: Piece
    columns: int

    def function(self) -> Function:
        """Write ``pack_<columns>(x, x_stride, k, target)``."""
        args = [("x", "ptr"), ("x_stride", "i64"), ("k", "i64"), ("target", "ptr")]
        f = Function(f"pack_{self.columns}", args, internal=True)
        x, x_stride, k, target = f.args
        count = self.piece.count if self.columns > 1 else max(16, self.piece.count)
        whole = f.sub(k, f.rem(k, count))
        step = count * self.piece.size * self.columns
        with f.loop(0, self.columns) as columns:
            source = f.at(x, f.mul(columns.index, x_stride))
            to = f.at(target, f.mul(columns.index, count * self.piece.size))
            with f.loop(0, whole, step=count, carry=[to]) as loop:
                self._copy(f, f.at(source, f.mul(loop.index, self._size)), loop.values[0], count)
                loop.carry([f.at(loop.values[0], step)])
            with f.when(f.compare("slt", whole, k)):
                rest = f.at(source, f.mul(whole, self._size))
                self._copy(f, rest, loop.results[0], count, f.sub(k, whole))
        return f

    @property
    def _size(self) -> int:
        return self.piece.numbers.x.size

    def _copy(
        self, f: Function, source: Value, target: Value, count: int, left: Value | None = None
    ) -> None:
        """Copy numbers; those from ``left`` on become zero and are not read."""
        lanes, pairs = min(count, 16), self.piece.numbers.pairs
        for done in range(0, count, lanes):
            mask = None if left is None else f.lanes_below(f.sub(left, done), lanes)
            at, to = f.at(source, done * self._size), f.at(target, done * self.piece.size)
            if pairs:
                f.store(f.load_lanes(vector(lanes, "i16"), at, mask), to, align=2)
            else:
                f.store(load_wide(f, self.piece.numbers.x, lanes, at, mask), to)


@dataclass(frozen=True)
class Finish:
    """Sums of a group of block rows become a stretch of each column of y.

    The stage holds, column by column, vectors whose lanes are summed ``span`` by ``span``; each sum
    is one row's.
    """

    width: int  # lanes of a vector
    span: int
    vectors: int  # of a column
    numbers: Numbers
    activation: str

    @property
    def sum_bytes(self) -> int:
        """Bytes of a vector of sums."""
        return 4 * self.width

    @property
    def column_bytes(self) -> int:
        """Bytes of a column of the stage; the vectors taken together are all its own."""
        return -(-self.vectors // self.span) * self.span * self.sum_bytes

    def stage_bytes(self, columns: int) -> int:
        """Bytes of the stage."""
        return self.column_bytes * columns

    def function(self) -> Function:
        """Write ``finish(stage, y, y_stride, bias, rows, columns)``."""
        args = [("stage", "ptr"), ("y", "ptr"), ("y_stride", "i64"), ("bias", "ptr")]
        f = Function("finish", [*args, ("rows", "i64"), ("columns", "i64")], internal=True)
        stage, y, y_stride, bias, rows, columns = f.args
        number = self.numbers.y
        with f.loop(0, columns) as loop, f.loop(0, rows, step=self.width) as chunks:
            row = chunks.index
            here = f.at(stage, f.mul(loop.index, self.column_bytes))
            here = f.at(here, f.mul(row, 4 * self.span))
            total = self._added(f, here)
            offset = f.mul(row, number.size)
            target = f.at(f.at(y, f.mul(loop.index, y_stride)), offset)
            left = f.sub(rows, row)
            some = f.compare("slt", left, self.width)
            with f.when(some):
                self._store(f, total, f.at(bias, offset), target, f.lanes_below(left, self.width))
            with f.when(f.compare("sge", left, self.width)):
                self._store(f, total, f.at(bias, offset), target, None)
        return f

    def _added(self, f: Function, stage: Value) -> Value:
        """Add up the lanes of ``span`` vectors; row by row, one lane each."""
        vectors = [
            f.load(vector(self.width), f.at(stage, i * self.sum_bytes), align=self.sum_bytes)
            for i in range(self.span)
        ]
        while len(vectors) > 1:
            vectors = [
                f.fadd(
                    f.shuffle(a, b, range(0, 2 * self.width, 2)),
                    f.shuffle(a, b, range(1, 2 * self.width, 2)),
                )
                for a, b in zip(vectors[::2], vectors[1::2], strict=True)
            ]
        return vectors[0]

    def _store(
        self, f: Function, total: Value, bias: Value, target: Value, mask: Value | None
    ) -> None:
        number = self.numbers.y
        total = f.fadd(total, load_wide(f, number, self.width, bias, mask))
        total = activate(f, self.activation, total)
        store_narrow(f, number, total, target, mask, rounds=self.numbers.rounds)
