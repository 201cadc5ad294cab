"""The two ends of the decode kernel: columns of x are packed, and sums become numbers of y."""

from collections.abc import Sequence
from dataclasses import dataclass

from sparsetile.ops.cpu._activation import activate
from sparsetile.ops.cpu._emit import Function, Value, vector, zero
from sparsetile.ops.cpu._number import Numbers, load_pairs, load_wide, store_narrow


@dataclass(frozen=True)
class Lanes:
    """The lanes of a vector of sums: ``[rows, columns, run]``, each a power of two.

    A lane holds a row times a column of x, summed over every ``run``-th unit. Either ``rows`` or
    ``columns`` is one, so values and x each lie in one piece and are at most repeated.
    """

    rows: int
    columns: int
    run: int

    @property
    def width(self) -> int:
        """Lanes of the vector."""
        return self.rows * self.columns * self.run

    def load_values(self, f: Function, pointer: Value) -> Value:
        """Load values ``[rows, run]`` for every column."""
        return _repeated(f, self.rows * self.run, self.width, pointer)

    def load_x(self, f: Function, pointer: Value) -> Value:
        """Load packed x ``[columns, run]`` for every row."""
        return _repeated(f, self.columns * self.run, self.width, pointer)


def _repeated(f: Function, units: int, width: int, pointer: Value) -> Value:
    """Load some units and repeat them over a vector: one instruction of the load port."""
    if units == width:
        return f.load(vector(width), pointer)
    if units == 1:
        return f.splat(f.load("float", pointer), width)
    if units == 2:  # spelt so that LLVM sees a repeated number
        return f.bits(f.splat(f.load("double", pointer), width // 2), vector(width))
    short = f.load(vector(units), pointer)
    return f.shuffle(short, None, [lane % units for lane in range(width)])


@dataclass(frozen=True)
class Pack:
    """Packing of columns of x: units ``[k / run, columns, run]``, padded by zeros.

    Zeros stand for columns that are not there, and follow the last number up to whole blocks.
    """

    run: int
    columns: int  # with those that are not there
    width: int  # lanes of the vectors it is moved in
    given: int  # columns that are there
    numbers: Numbers
    block_columns: int

    @property
    def _step(self) -> int:
        """Numbers of a column packed at once: a vector of units."""
        return self.width * self.numbers.per_unit

    def bytes_of(self, k: int) -> int:
        """Bytes of all columns, packed."""
        whole = max(1, -(-k // self.block_columns)) * self.block_columns
        return -(-whole // self._step) * 4 * self.width * self.columns + 63 & ~63

    def function(self) -> Function:
        """Write ``pack_<given>(x, x_stride, k, target)``."""
        args = [("x", "ptr"), ("x_stride", "i64"), ("k", "i64"), ("target", "ptr")]
        f = Function(f"pack_{self.given}", args, internal=True)
        _, _, k, target = f.args
        step = self._step
        whole, blocks = f.sub(k, f.rem(k, step)), f.add(k, self.block_columns - 1)
        padded = f.sub(blocks, f.rem(blocks, self.block_columns))
        bytes_of_step = 4 * self.width * self.columns
        with f.loop(0, whole, step=step, carry=[target]) as loop:
            self._move(f, loop.index, loop.values[0], None)
            loop.carry([f.at(loop.values[0], bytes_of_step)])
        with f.loop(whole, padded, step=step, carry=loop.results) as loop:
            self._move(f, loop.index, loop.values[0], f.sub(k, loop.index))
            loop.carry([f.at(loop.values[0], bytes_of_step)])
        return f

    def _move(self, f: Function, number: Value, target: Value, left: Value | None) -> None:
        """Move a vector of units of each column; only ``left`` numbers are there."""
        x, x_stride = f.args[:2]
        size = self.numbers.x.size
        vectors = [zero(vector(self.width))] * self.columns
        for column in range(self.given):
            at = f.at(f.at(x, f.mul(x_stride, column)), f.mul(number, size))
            vectors[column] = self._load(f, at, left)
        for i, units in enumerate(_zipped(f, vectors, self.run)):
            f.store(units, f.at(target, 4 * self.width * i))

    def _load(self, f: Function, pointer: Value, left: Value | None) -> Value:
        if self.numbers.pairs:
            return load_pairs(f, self.width, pointer, left)
        mask = None if left is None else f.lanes_below(left, self.width)
        return load_wide(f, self.numbers.x, self.width, pointer, mask)


def _zipped(f: Function, vectors: Sequence[Value], run: int) -> list[Value]:
    """Zip the sequences of several vectors, ``run`` lanes of each in turn."""
    if len(vectors) == 1:
        return list(vectors)
    width = int(vectors[0].type.split()[0][1:])
    places = [
        start + half + lane
        for start in range(0, width, run)
        for half in (0, width)
        for lane in range(run)
    ]
    even, odd = _zipped(f, vectors[::2], run), _zipped(f, vectors[1::2], run)
    return [
        f.shuffle(a, b, some)
        for a, b in zip(even, odd, strict=True)
        for some in (places[:width], places[width:])
    ]


@dataclass(frozen=True)
class Finish:
    """Sums of a group of block rows become a stretch of each column of y.

    The stage holds the vectors of sums in the order of their rows.
    """

    lanes: Lanes
    numbers: Numbers
    activation: str

    @property
    def _together(self) -> int:
        """Vectors that hold as many rows as a vector has lanes."""
        return self.lanes.width // self.lanes.rows

    def stage_bytes(self, vectors: int) -> int:
        """Bytes of a stage of so many vectors, whole cache lines.

        Vectors that are finished together are all its own.
        """
        whole = -(-vectors // self._together) * self._together
        return whole * 4 * self.lanes.width + 63 & ~63

    def function(self) -> Function:
        """Write ``finish(stage, y, y_stride, columns, bias, rows)``."""
        args = [("stage", "ptr"), ("y", "ptr"), ("y_stride", "i64"), ("columns", "i64")]
        f = Function("finish", [*args, ("bias", "ptr"), ("rows", "i64")], internal=True)
        stage, y, y_stride, columns, bias, rows = f.args
        width, number = self.lanes.width, self.numbers.y
        with f.loop(0, rows, step=width) as loop:
            row, left = loop.index, f.sub(rows, loop.index)
            totals = self._totals(f, f.at(stage, f.mul(row, 4 * width // self.lanes.rows)))
            offset = f.mul(row, number.size)
            here, mask = f.at(y, offset), f.lanes_below(left, width)
            added = load_wide(f, number, width, f.at(bias, offset), mask)
            for column, total in enumerate(totals):
                with f.when(f.compare("slt", column, columns)):
                    total = activate(f, self.activation, f.fadd(total, added))
                    at = f.at(here, f.mul(y_stride, column))
                    # a whole vector is stored without the mask, which some processors lack
                    for relation, some in (("sge", None), ("slt", mask)):
                        with f.when(f.compare(relation, left, width)):
                            store_narrow(f, number, total, at, some, rounds=self.numbers.rounds)
        return f

    def _totals(self, f: Function, stage: Value) -> list[Value]:
        """Add up the lanes of each sum and sort them: as many rows as lanes, of each column."""
        v, size = vector(self.lanes.width), 4 * self.lanes.width
        vectors = [f.load(v, f.at(stage, i * size), align=size) for i in range(self._together)]
        for _ in range(self.lanes.run.bit_length() - 1):
            vectors = [f.fadd(*_unzipped(f, a, b)) for a, b in _by_two(vectors)]
        sequences = [vectors]
        for _ in range(self.lanes.columns.bit_length() - 1):
            halves = [[_unzipped(f, a, b) for a, b in _by_two(s)] for s in sequences]
            # the last bit of a column is split off first: even ones before odd ones
            sequences = [[pair[odd] for pair in half] for odd in (0, 1) for half in halves]
        return [sequence[0] for sequence in sequences]


def _by_two(vectors: Sequence[Value]) -> list[tuple[Value, Value]]:
    return list(zip(vectors[::2], vectors[1::2], strict=True))


def _unzipped(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    """Split the lanes of two vectors into every other one and the rest."""
    both = 2 * int(a.type.split()[0][1:])
    return f.shuffle(a, b, range(0, both, 2)), f.shuffle(a, b, range(1, both, 2))
