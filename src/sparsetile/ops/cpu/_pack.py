"""Between a user's layout and the kernels': panels in, tiles out.

A *panel* is a column tile of the dense operand in units, ``[k units][columns]``, every row of it
whole vectors. A *stage* is a band of result rows in float32, ``[rows][columns]``, small enough to
stay in the first cache.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._activation import activate
from sparsetile.ops.cpu._emit import Function, Value, i64, vector, zero
from sparsetile.ops.cpu._number import (
    Number,
    load_pairs,
    load_pairs_of_rows,
    load_wide,
    store_narrow,
)
from sparsetile.ops.cpu._transpose import transpose

_SIMPLE = ("", "relu")  # activations of no more than an instruction


@dataclass(frozen=True)
class Packing:
    """How a dense operand becomes panels.

    The functions emitted take ``x, stride, n, k0, k1, k, panel``: the address of the tile's first
    number, the bytes between lines of x (what is contiguous), the columns there are, the unit rows
    to write and the numbers in a column of x. Columns past n and units past k are zero.
    """

    lanes: int
    vectors: int
    number: Number
    pairs: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the panel."""
        return 4 * self.lanes * self.vectors

    @property
    def per_unit(self) -> int:
        """Numbers in a unit."""
        return 2 if self.pairs else 1

    def rows(self, name: str) -> Function:
        """Emit the packing of ``x[n, k]`` with k contiguous: a transpose in registers.

        ``k0`` and ``k1`` must be multiples of the lanes. Where x ends, its numbers go to the panel
        as they are first, filled up with zeros, and are transposed there.
        """
        lanes = self.lanes
        f = _pack_function(name)
        x, stride, n, k0, k1, k, panel = f.args
        whole = f.least(k1, f.div(f.greatest(k, 0), self.per_unit))
        whole = f.mul(f.div(f.greatest(whole, 0), lanes), lanes)
        with f.loop(0, self.vectors) as tile:
            column = f.mul(tile.index, lanes)
            first = f.at(x, f.mul(column, stride))
            target = f.at(panel, f.mul(tile.index, 4 * lanes))
            left = f.sub(n, column)
            full = f.select(f.compare("sge", left, lanes), whole, i64(0))
            with f.loop(k0, k1, lanes) as loop:
                source = f.at(first, f.mul(loop.index, self.per_unit * self.number.size))
                out = f.at(target, f.mul(loop.index, self.row_bytes))
                ends = f.compare("sge", loop.index, full)
                with f.when(ends):
                    some = f.sub(k, f.mul(loop.index, self.per_unit))
                    self._copy_what_exists(f, source, stride, left, some, out)
                source = f.select(ends, out, source)
                between = f.select(ends, i64(self.row_bytes), stride)
                loaded = [self._load_line(f, line) for line in f.lines(source, between, lanes)]
                for j, packed in enumerate(transpose(f, loaded)):
                    f.store(packed, f.at(out, self.row_bytes * j), align=4 * lanes)
        return f

    def _copy_what_exists(
        self, f: Function, source: Value, stride: Value, lines: Value, some: Value, target: Value
    ) -> None:
        """Copy ``some`` numbers of so many lines to the rows of the panel; the rest is zeros."""
        numbers = self.lanes * self.per_unit
        type_ = vector(numbers, "float" if self.number.size == 4 else "i16")
        with f.loop(0, self.lanes) as loop:
            there = f.select(f.compare("slt", loop.index, lines), some, i64(0))
            line = f.at(source, f.mul(loop.index, stride))
            copied = f.load_lanes(type_, line, f.lanes_below(there, numbers))
            f.store(copied, f.at(target, f.mul(loop.index, self.row_bytes)))

    def _load_line(self, f: Function, pointer: Value) -> Value:
        """Load as many units as a vector has lanes."""
        if self.pairs:
            return load_pairs(f, self.lanes, pointer)
        return load_wide(f, self.number, self.lanes, pointer)

    def columns(self, name: str) -> Function:
        """Emit the packing of ``x[k, n]`` with n contiguous: a copy."""
        lanes = self.lanes
        f = _pack_function(name)
        x, stride, n, k0, k1, k, panel = f.args
        k = f.greatest(k, 0)
        whole = f.least(k1, f.div(k, self.per_unit))
        some = f.least(k1, f.div(f.add(k, self.per_unit - 1), self.per_unit))
        full = f.select(f.compare("sge", n, lanes * self.vectors), whole, i64(0))
        masks = [f.lanes_below(f.sub(n, t * lanes), lanes) for t in range(self.vectors)]

        def copy(unit: Value, masks: list[Value] | None, *, odd: bool = False) -> None:
            row = f.at(x, f.mul(f.mul(unit, self.per_unit), stride))
            out = f.at(panel, f.mul(unit, self.row_bytes))
            following = f.at(row, stride) if self.pairs and not odd else None
            for t in range(self.vectors):
                mask, at = masks[t] if masks else None, self.number.size * lanes * t
                if self.pairs:
                    high = None if following is None else f.at(following, at)
                    value = load_pairs_of_rows(f, lanes, f.at(row, at), high, mask)
                else:
                    value = load_wide(f, self.number, lanes, f.at(row, at), mask)
                f.store(value, f.at(out, 4 * lanes * t), align=4 * lanes)

        with f.loop(k0, full) as loop:
            copy(loop.index, None)
        with f.loop(f.greatest(k0, full), whole) as loop:
            copy(loop.index, masks)
        if self.pairs:
            with f.loop(f.greatest(k0, whole), some) as loop:
                copy(loop.index, masks, odd=True)
        with f.loop(f.greatest(k0, some), k1) as loop:
            out = f.at(panel, f.mul(loop.index, self.row_bytes))
            for t in range(self.vectors):
                f.store(zero(vector(lanes)), f.at(out, 4 * lanes * t), align=4 * lanes)
        return f


@dataclass(frozen=True)
class Unpacking:
    """How a stage becomes rows of the result.

    The functions emitted take ``stage, y, stride, rows, n``: the address of the stage, that of its
    first number in y, the bytes between lines of y, and the rows and columns to store. What the
    stage holds is lost.
    """

    lanes: int
    vectors: int
    number: Number
    rounds: bool  # the processor rounds to bfloat16 itself
    activation: str

    def rows(self, name: str) -> Function:
        """Emit the transposing store of a stage into ``y[n, m]`` with m contiguous."""
        lanes, size = self.lanes, self.number.size
        f = _unpack_function(name)
        stage, y, stride, rows, n = f.args
        row_bytes = 4 * lanes * self.vectors
        whole = f.mul(f.div(rows, lanes), lanes)
        with f.loop(0, self.vectors) as tile:
            column = f.mul(tile.index, lanes)
            left = f.sub(n, column)
            source, target = f.at(stage, f.mul(column, 4)), f.at(y, f.mul(column, stride))
            full = f.select(f.compare("sge", left, lanes), whole, i64(0))
            with f.loop(0, rows, lanes) as loop:
                start = f.at(source, f.mul(loop.index, row_bytes))
                out = f.at(target, f.mul(loop.index, size))
                self._activate(f, start, lanes, row_bytes)
                loaded = [
                    f.load(vector(lanes), f.at(start, row_bytes * i), align=4 * lanes)
                    for i in range(lanes)
                ]
                ends = f.compare("sge", loop.index, full)
                first, between = f.select(ends, start, out), f.select(ends, i64(row_bytes), stride)
                lines = f.lines(first, between, lanes)
                for piece, line in zip(transpose(f, loaded), lines, strict=True):
                    self._store(f, piece, line, None)
                with f.when(ends):
                    mask = f.lanes_below(f.sub(rows, loop.index), lanes)
                    with f.loop(0, f.least(left, lanes)) as lane:
                        ready = f.load_lanes(
                            vector(lanes, "float" if size == 4 else "i16"),
                            f.at(start, f.mul(lane.index, row_bytes)),
                            None,
                        )
                        f.store_lanes(ready, f.at(out, f.mul(lane.index, stride)), mask)
        return f

    def columns(self, name: str) -> Function:
        """Emit the store of a stage into ``y[m, n]`` with n contiguous."""
        lanes = self.lanes
        f = _unpack_function(name)
        stage, y, stride, rows, n = f.args
        masks = [f.lanes_below(f.sub(n, t * lanes), lanes) for t in range(self.vectors)]
        full = f.select(f.compare("sge", n, lanes * self.vectors), rows, i64(0))

        def store(row: Value, masks: list[Value] | None) -> None:
            source = f.at(stage, f.mul(row, 4 * lanes * self.vectors))
            target = f.at(y, f.mul(row, stride))
            for t in range(self.vectors):
                value = f.load(vector(lanes), f.at(source, 4 * lanes * t), align=4 * lanes)
                out = f.at(target, self.number.size * lanes * t)
                self._store(f, value, out, masks[t] if masks else None)

        if self.activation not in _SIMPLE:
            with f.loop(0, rows) as loop:
                start = f.at(stage, f.mul(loop.index, 4 * lanes * self.vectors))
                self._activate(f, start, self.vectors, 4 * lanes)
        with f.loop(0, full) as loop:
            store(loop.index, None)
        with f.loop(full, rows) as loop:
            store(loop.index, masks)
        return f

    def _activate(self, f: Function, start: Value, count: int, stride: int) -> None:
        """Apply the activation to vectors of the stage, where they lie, in a loop: it is long."""
        if self.activation in _SIMPLE:
            return
        with f.loop(0, count) as loop:
            place = f.at(start, f.mul(loop.index, stride))
            value = f.load(vector(self.lanes), place, align=4 * self.lanes)
            f.store(activate(f, self.activation, value), place, align=4 * self.lanes)

    def _store(self, f: Function, value: Value, pointer: Value, mask: Value | None) -> None:
        """Store numbers of the result; a simple activation is applied here."""
        if self.activation in _SIMPLE:
            value = activate(f, self.activation, value)
        store_narrow(f, self.number, value, pointer, mask, rounds=self.rounds)


def _pack_function(name: str) -> Function:
    args = [("x", "ptr noalias readonly"), ("stride", "i64"), ("n", "i64"), ("k0", "i64")]
    return Function(
        name, [*args, ("k1", "i64"), ("k", "i64"), ("panel", "ptr noalias")], internal=True
    )


def _unpack_function(name: str) -> Function:
    args = [("stage", "ptr noalias"), ("y", "ptr noalias"), ("stride", "i64")]
    return Function(name, [*args, ("rows", "i64"), ("n", "i64")], internal=True)
