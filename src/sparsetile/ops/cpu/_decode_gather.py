"""The walk along a row of single numbers, for one or two columns: what they meet is gathered."""

from sparsetile.ops.cpu._emit import Function, Value, vector, zero
from sparsetile.ops.cpu._number import Number, load_wide

_LANES = 16
_TOGETHER = 4  # vectors of numbers in one turn
_EVERY = Value(f"<{', '.join(['i1 true'] * _LANES)}>", vector(_LANES, "i1"))


class GatherRow:
    """What emits the walk along one row.

    Args:
        f: The function.
        values: Format of the stored numbers.
        columns: Columns of x, one or two, packed side by side: ``[k, columns]``.
        index_bits: Bits of a column index.
        ahead: Bytes of values that are asked for ahead of their turn.
    """

    def __init__(
        self, f: Function, values: Number, columns: int, index_bits: int, ahead: int
    ) -> None:
        self.f, self.values, self.columns = f, values, columns
        self.index_bits, self.ahead = index_bits, ahead

    def sums(self, x: Value, col: Value, values: Value, start: Value, end: Value) -> Value:
        """Multiply numbers start…end; return sums ``[columns, lanes / columns]``."""
        f = self.f
        turn = _LANES * _TOGETHER
        whole = f.sub(end, f.rem(f.sub(end, start), turn))
        none = [zero(vector(_LANES))] * (self.columns * _TOGETHER)
        with f.loop(start, whole, step=turn, carry=none) as loop:
            after = []
            for u in range(_TOGETHER):
                at = f.add(loop.index, u * _LANES)
                mine = loop.values[u * self.columns : (u + 1) * self.columns]
                after += self._add(x, col, values, at, mine, None)
            loop.carry(after)
        sums = loop.results
        with f.loop(whole, end, step=_LANES, carry=sums[: self.columns]) as loop:
            mask = f.lanes_below(f.sub(end, loop.index), _LANES)
            loop.carry(self._add(x, col, values, loop.index, loop.values, mask))
        sums[: self.columns] = loop.results
        total = sums[0]
        for more in sums[1:]:
            total = f.fadd(total, more)
        if self.columns == 1:
            return total
        return f.shuffle(total, None, [*range(0, _LANES, 2), *range(1, _LANES, 2)])

    def _add(
        self,
        x: Value,
        col: Value,
        values: Value,
        at: Value,
        sums: list[Value],
        mask: Value | None,
    ) -> list[Value]:
        """Multiply as many numbers as a vector has lanes, or those of the mask."""
        f, size = self.f, self.values.size
        source = f.at(values, f.mul(at, size))
        if self.ahead and mask is None:
            f.prefetch(f.at(source, self.ahead), level=2)
        w = load_wide(f, self.values, _LANES, source, mask)
        short = vector(_LANES, f"i{self.index_bits}")
        places = f.load(short, f.at(col, f.mul(at, self.index_bits // 8)), align=2)
        if self.index_bits < 32:
            places = f.convert("zext", places, vector(_LANES, "i32"))
        if self.columns == 1:
            return [f.fma(w, self._gather("float", x, places, mask or _EVERY), sums[0])]
        after = []
        for half, total in enumerate(sums):
            lanes = range(8 * half, 8 * half + 8)
            some = f.shuffle(mask or _EVERY, None, lanes)
            both = self._gather("double", x, f.shuffle(places, None, lanes), some)
            twice = f.shuffle(w, None, [lane for lane in lanes for _ in range(2)])
            after.append(f.fma(twice, f.bits(both, vector(_LANES)), total))
        return after

    def _gather(self, element: str, x: Value, places: Value, mask: Value) -> Value:
        f = self.f
        lanes = int(places.type.split()[0][1:])
        type_, size = vector(lanes, element), 4 if element == "float" else 8
        pointers = f.let(vector(lanes, "ptr"), f"getelementptr {element}, {x}, {places}")
        name = f"llvm.masked.gather.v{lanes}f{8 * size}.v{lanes}p0"
        return f.intrinsic(name, type_, pointers, Value(str(size), "i32"), mask, zero(type_))
