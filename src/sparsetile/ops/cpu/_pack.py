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

        ``k0`` and ``k1`` must be multiples of the lanes.
        """
        lanes = self.lanes
        f = _pack_function(name)
        x, stride, n, k0, k1, k, panel = f.args
        with f.loop(0, self.vectors) as tile:
            column = f.mul(tile.index, lanes)
            first = f.at(x, f.mul(column, stride))
            target = f.at(panel, f.mul(tile.index, 4 * lanes))
            left = f.sub(n, column)

            def turn(unit: Value, counts: list[Value] | None) -> None:
                offset = f.mul(unit, self.per_unit * self.number.size)
                loaded = [
                    self._load_line(f, line, counts[i] if counts else None)
                    for i, line in enumerate(f.lines(f.at(first, offset), stride, lanes))
                ]
                out = f.at(target, f.mul(unit, self.row_bytes))
                for j, packed in enumerate(transpose(f, loaded)):
                    f.store(packed, f.at(out, self.row_bytes * j), align=4 * lanes)

            whole = f.least(k1, f.div(f.greatest(k, 0), self.per_unit))
            whole = f.mul(f.div(f.greatest(whole, 0), lanes), lanes)
            whole = f.select(f.compare("sge", left, lanes), whole, i64(0))
            with f.loop(k0, whole, lanes) as loop:
                turn(loop.index, None)
            with f.loop(f.greatest(k0, whole), k1, lanes) as loop:
                some = f.sub(k, f.mul(loop.index, self.per_unit))
                exists = [f.compare("sgt", left, i) for i in range(lanes)]
                turn(loop.index, [f.select(e, some, i64(0)) for e in exists])
        return f

    def _load_line(self, f: Function, pointer: Value, left: Value | None) -> Value:
        """Load as many units as a vector has lanes; numbers from ``left`` on are zero."""
        if self.pairs:
            return load_pairs(f, self.lanes, pointer, left)
        mask = None if left is None else f.lanes_below(left, self.lanes)
        return load_wide(f, self.number, self.lanes, pointer, mask)

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
    first number in y, the bytes between lines of y, and the rows and columns to store.
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

            def turned(row: Value) -> list[Value]:
                start = f.at(source, f.mul(row, row_bytes))
                loaded = [
                    f.load(vector(lanes), f.at(start, row_bytes * i), align=4 * lanes)
                    for i in range(lanes)
                ]
                return transpose(f, loaded)

            with f.when(f.compare("sge", left, lanes)), f.loop(0, whole, lanes) as loop:
                out = f.at(target, f.mul(loop.index, size))
                for piece, line in zip(
                    turned(loop.index), f.lines(out, stride, lanes), strict=True
                ):
                    self._store(f, piece, line, None)
            first = f.select(f.compare("sge", left, lanes), whole, i64(0))
            with f.loop(first, rows, lanes) as loop:
                mask = f.lanes_below(f.sub(rows, loop.index), lanes)
                out = f.at(target, f.mul(loop.index, size))
                lines = f.lines(out, stride, lanes)
                for lane, piece in enumerate(turned(loop.index)):
                    with f.when(f.compare("sgt", left, lane)):
                        self._store(f, piece, lines[lane], mask)
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

        with f.loop(0, full) as loop:
            store(loop.index, None)
        with f.loop(full, rows) as loop:
            store(loop.index, masks)
        return f

    def _store(self, f: Function, value: Value, pointer: Value, mask: Value | None) -> None:
        if self.activation:
            value = activate(f, self.activation, value)
        store_narrow(f, self.number, value, pointer, mask, rounds=self.rounds)


def _pack_function(name: str) -> Function:
    args = [("x", "ptr noalias readonly"), ("stride", "i64"), ("n", "i64"), ("k0", "i64")]
    return Function(
        name, [*args, ("k1", "i64"), ("k", "i64"), ("panel", "ptr noalias")], internal=True
    )


def _unpack_function(name: str) -> Function:
    args = [("stage", "ptr noalias readonly"), ("y", "ptr noalias"), ("stride", "i64")]
    return Function(name, [*args, ("rows", "i64"), ("n", "i64")], internal=True)
