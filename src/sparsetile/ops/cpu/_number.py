"""How numbers lie in memory, and how kernels take them in and give them out.

Kernels add up in float32. What they multiply is a *unit* of 32 bits: one float32 number (16-bit
ones are widened on the way in), or, where the processor has the instruction, a *pair* of bfloat16
numbers that follow each other along the sum and are multiplied and added at once.
"""

from dataclasses import dataclass

import torch

from sparsetile.ops.cpu._emit import Function, Value, every, lanes_of, vector
from sparsetile.ops.cpu._isa import Isa


@dataclass(frozen=True)
class Number:
    """A format of numbers in memory."""

    name: str
    size: int  # bytes


F32, BF16, F16 = Number("f32", 4), Number("bf16", 2), Number("f16", 2)
_OF_DTYPE = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}


@dataclass(frozen=True)
class Numbers:
    """The formats of one product, and the units it is computed in."""

    x: Number  # of the dense operands
    values: Number
    y: Number
    pairs: bool = False  # units are pairs of bfloat16
    rounds: bool = False  # the processor rounds to bfloat16 itself

    @property
    def per_unit(self) -> int:
        """Numbers in a unit."""
        return 2 if self.pairs else 1

    @property
    def unit_bytes(self) -> int:
        """Bytes of a unit of the stored blocks."""
        return self.values.size * self.per_unit

    @property
    def widens(self) -> bool:
        """Whether stored values become float32 only in the kernel."""
        return not self.pairs and self.values.size == 2

    @property
    def name(self) -> str:
        """Name the formats as :func:`sparsetile.ops.last_kernel` does: ``f32``, ``f32*bf16``."""
        mixed = self.values.size != self.x.size
        return f"{self.x.name}*{self.values.name}" if mixed else self.x.name


def numbers_of(
    isa: Isa, x: torch.dtype, values: torch.dtype, *, inner: int, tiles: bool = False
) -> Numbers:
    """Say how a product is computed.

    Processors with matrix tiles have the instruction for pairs too, at a quarter of the rate that
    others have: half of what float32 does (measured on Emerald Rapids: 84 against 177 GFLOP/s a
    core). There, only tiles multiply pairs.

    Args:
        isa: The instruction set.
        x: Format of the dense operand and of the result.
        values: Format of the blocks.
        inner: Numbers of a block along the sum: pairs need an even one.
        tiles: Whether matrix tiles compute it.
    """
    pairs = isa.has_bf16_dot and x == values == torch.bfloat16 and inner % 2 == 0
    pairs = pairs and (tiles or not isa.has_amx)
    dense = _OF_DTYPE[x]
    return Numbers(dense, _OF_DTYPE[values], dense, pairs, isa.has_bf16_dot and dense is BF16)


def load_wide(
    f: Function, number: Number, lanes: int, pointer: Value, mask: Value | None = None
) -> Value:
    """Load numbers as float32; those outside the mask are zero."""
    wide = vector(lanes)
    if number is F32 or number.size == 4:
        return f.load_lanes(wide, pointer, mask)
    narrow = f.load_lanes(vector(lanes, "i16"), pointer, mask)
    if number.name == "f16":
        return f.convert("fpext", f.bits(narrow, vector(lanes, "half")), wide)
    return f.bits(_shift_up(f, narrow), wide)


def store_narrow(
    f: Function,
    number: Number,
    value: Value,
    pointer: Value,
    mask: Value | None = None,
    *,
    rounds: bool = False,
) -> None:
    """Store float32 numbers in a format, rounded to nearest even."""
    if number.size == 2:
        value = _narrow(f, number, value, rounds=rounds)
    f.store_lanes(value, pointer, mask)


def _narrow(f: Function, number: Number, value: Value, *, rounds: bool) -> Value:
    lanes = lanes_of(value.type)
    short = vector(lanes, "i16")
    if number.name == "f16":
        return f.bits(f.convert("fptrunc", value, vector(lanes, "half")), short)
    if rounds:
        return f.bits(f.convert("fptrunc", value, vector(lanes, "bfloat")), short)
    # add half of the last place kept, less a tie that is already even; a NaN must stay one
    bits = f.bits(value, vector(lanes, "i32"))
    odd = f.binary("and", f.binary("lshr", bits, every(16, lanes)), every(1, lanes))
    near = f.add(f.add(bits, odd), every(0x7FFF, lanes))
    nan = f.let(vector(lanes, "i1"), f"fcmp uno {value}, {value.name}")
    chosen = f.select(nan, f.binary("or", bits, every(0x400000, lanes)), near)
    return f.convert("trunc", f.binary("lshr", chosen, every(16, lanes)), short)


def widen(f: Function, number: Number, source: Value, target: Value, count: int) -> None:
    """Store ``count`` numbers of a format as float32; nothing past them is touched."""
    done = 0
    while done < count:
        lanes = min(16, 1 << ((count - done).bit_length() - 1))
        wide = load_wide(f, number, lanes, f.at(source, number.size * done))
        f.store(wide, f.at(target, 4 * done))
        done += lanes


def load_pairs(f: Function, lanes: int, pointer: Value, left: Value | None = None) -> Value:
    """Load pairs that lie side by side, as bits in float lanes; numbers from ``left`` on are zero.

    The bits are only moved, never computed with.
    """
    if left is None:
        return f.load(vector(lanes), pointer, align=2)
    mask = f.lanes_below(left, 2 * lanes)
    return f.bits(f.load_lanes(vector(2 * lanes, "i16"), pointer, mask), vector(lanes))


def load_pairs_of_rows(
    f: Function,
    lanes: int,
    low: Value,
    high: Value | None,
    mask: Value | None = None,
    mask_of_high: Value | None = None,
) -> Value:
    """Load two rows of bfloat16 and pair their numbers lane by lane, as bits in float lanes.

    The mask is for both rows, unless the second has its own.
    """
    short, integer = vector(lanes, "i16"), vector(lanes, "i32")
    first = f.convert("zext", f.load_lanes(short, low, mask), integer)
    if high is not None:
        second = _shift_up(f, f.load_lanes(short, high, mask_of_high or mask))
        first = f.binary("or", first, second)
    return f.bits(first, vector(lanes))


def _shift_up(f: Function, narrow: Value) -> Value:
    """Put 16-bit integers into the upper halves of 32-bit ones."""
    lanes = lanes_of(narrow.type)
    wide = f.convert("zext", narrow, vector(lanes, "i32"))
    return f.binary("shl", wide, every(16, lanes))


def multiply_add(f: Function, numbers: Numbers, a: Value, b: Value, total: Value) -> Value:
    """Add the product of two vectors of units to sums in float32."""
    if not numbers.pairs:
        return f.fma(a, b, total)
    lanes = lanes_of(total.type)
    pairs = vector(2 * lanes, "bfloat")
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    return f.intrinsic(name, total.type, total, f.bits(a, pairs), f.bits(b, pairs))
