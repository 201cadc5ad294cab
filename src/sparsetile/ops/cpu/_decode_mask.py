"""The walk along a row of single numbers by a bit mask, for one or two columns of a dense pattern.

One bit for each number of the row says whether it is stored; sixteen at a time, the stored ones are
spread over a vector. What that takes hardly depends on how many they are.
"""

import numpy as np
import torch
from torch import Tensor

from sparsetile.ops.cpu._emit import Function, Value, every, vector, zero
from sparsetile.ops.cpu._index import Index
from sparsetile.ops.cpu._number import F16, F32, Number, Numbers, load_wide, multiply_add

LANES = 16
_TOGETHER = 4  # vectors in one turn
_PADDED = 32  # numbers that rows of a mask are multiples of
_ROWS_AT_ONCE = 1024  # of a mask in the making


class MaskRow:
    """What emits the walk along one row.

    Args:
        f: The function.
        numbers: The formats of the operands; a vector holds sixteen units.
        columns: Columns of x, one or two, packed vector by vector: ``[k / 16, columns, 16]`` units.
        expands: Whether the processor spreads 16-bit numbers as it loads them.
        ahead: Bytes of values that are asked for ahead of their turn.
    """

    def __init__(
        self, f: Function, numbers: Numbers, columns: int, expands: bool, ahead: int
    ) -> None:
        self.f, self.numbers, self.columns = f, numbers, columns
        self.expands, self.ahead = expands, ahead
        self.many = LANES * numbers.per_unit  # numbers in a vector

    def sums(self, x: Value, mask: Value, values: Value, row: Value, k: Value) -> Value:
        """Multiply a row whose numbers begin at ``values``; return ``[columns, 16 / columns]``."""
        f, columns = self.f, self.columns
        chunks = f.div(f.add(k, self.many - 1), self.many)
        mask = f.at(mask, f.mul(row, f.mul(f.div(f.add(k, _PADDED - 1), _PADDED), _PADDED // 8)))
        whole = f.sub(chunks, f.rem(chunks, _TOGETHER))
        none = [zero(vector(LANES))] * (columns * _TOGETHER)
        with f.loop(0, whole, step=_TOGETHER, carry=[values, *none]) as loop:
            here, *sums = loop.values
            if self.ahead:
                f.prefetch(f.at(here, self.ahead), level=2)
                f.prefetch(f.at(here, self.ahead + 64), level=2)
            for u in range(_TOGETHER):
                mine = slice(u * columns, (u + 1) * columns)
                here, sums[mine] = self._add(x, mask, here, f.add(loop.index, u), sums[mine])
            loop.carry([here, *sums])
        here, *sums = loop.results
        with f.loop(whole, chunks, carry=[here, *sums[:columns]]) as loop:
            here, *first = loop.values
            here, first = self._add(x, mask, here, loop.index, first)
            loop.carry([here, *first])
        sums[:columns] = loop.results[1:]
        totals = sums[:columns]
        for i, more in enumerate(sums[columns:]):
            totals[i % columns] = f.fadd(totals[i % columns], more)
        if columns == 1:
            return totals[0]
        low, high = totals
        even, odd = (f.shuffle(low, high, range(i, 2 * LANES, 2)) for i in (0, 1))
        return f.fadd(even, odd)

    def _add(
        self, x: Value, mask: Value, values: Value, chunk: Value, sums: list[Value]
    ) -> tuple[Value, list[Value]]:
        """Multiply what is stored of a vector of numbers; return where more begin, and the sums."""
        f, many = self.f, self.many
        bits = f.load(f"i{many}", f.at(mask, f.mul(chunk, many // 8)), align=2)
        wide = bits if many == 32 else f.let("i32", f"zext {bits} to i32")
        count = f.intrinsic("llvm.ctpop.i32", "i32", wide)
        where = f.bits(bits, vector(many, "i1"))
        w = self._spread(values, where, count)
        after = []
        for column, total in enumerate(sums):
            at = f.add(f.mul(chunk, 4 * LANES * self.columns), 4 * LANES * column)
            # an infinity that meets no stored number must not be multiplied by zero
            kind = vector(many, "i16") if self.numbers.pairs else vector(LANES)
            xs = f.load_lanes(kind, f.at(x, at), where)
            xs = f.bits(xs, vector(LANES)) if self.numbers.pairs else xs
            after.append(multiply_add(f, self.numbers, w, xs, total))
        step = f.mul(f.let("i64", f"zext {count} to i64"), self.numbers.values.size)
        return f.at(values, step), after

    def _spread(self, values: Value, where: Value, count: Value) -> Value:
        """Load ``count`` numbers and put them where the mask has its bits; the others are zero."""
        f, v, stored = self.f, vector(LANES), self.numbers.values
        if stored is F32:
            return f.intrinsic("llvm.masked.expandload.v16f32", v, values, where, zero(v))
        if self.expands:
            short = vector(self.many, "i16")
            name = f"llvm.masked.expandload.v{self.many}i16"
            narrow = f.intrinsic(name, short, values, where, zero(short))
            return f.bits(narrow, v) if self.numbers.pairs else _widened(f, stored, narrow)
        low = f.let("i32", f"shl i32 1, {count.name}")
        first = f.let("i16", f"trunc {f.let('i32', f'sub {low}, 1')} to i16")
        some = load_wide(f, stored, LANES, values, f.bits(first, vector(LANES, "i1")))
        return f.intrinsic("llvm.x86.avx512.mask.expand.v16f32", v, some, zero(v), where)


def _widened(f: Function, number: Number, narrow: Value) -> Value:
    """Widen sixteen numbers that lie in a register."""
    if number is F16:
        return f.convert("fpext", f.bits(narrow, vector(LANES, "half")), vector(LANES))
    wide = f.convert("zext", narrow, vector(LANES, "i32"))
    return f.bits(f.binary("shl", wide, every(16, LANES)), vector(LANES))


def mask_of(index: Index, k: int) -> Tensor | None:
    """Make the bit mask of a pattern, ``[m, k / 8]`` bytes; None where columns do not rise."""
    crow, col = index.crow.numpy(), index.col.numpy()[: index.nnzb]
    rises = np.diff(col) > 0
    inner = crow[1:-1]
    rises[inner[(inner > 0) & (inner < len(col))] - 1] = True  # from one row to the next
    if not rises.all():
        return None
    rows = len(crow) - 1
    mask = np.zeros((rows, -(-k // _PADDED) * _PADDED // 8), np.uint8)
    for start in range(0, rows, _ROWS_AT_ONCE):
        stop = min(rows, start + _ROWS_AT_ONCE)
        stored = np.zeros((stop - start, mask.shape[1] * 8), bool)
        of_number = np.repeat(np.arange(stop - start), np.diff(crow[start : stop + 1]))
        stored[of_number, col[crow[start] : crow[stop]]] = True
        mask[start:stop] = np.packbits(stored, axis=1, bitorder="little")
    return torch.from_numpy(mask)
