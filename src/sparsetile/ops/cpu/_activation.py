"""Activations that a kernel applies to float32 vectors in registers: no branches, no calls.

All but relu rest on the exponential of numbers not above zero, so that nothing overflows. It is
kept 2^48 times as large until the last multiplication: processors take a hundred cycles where a
number too small for a normal float32 comes up on the way.
"""

import struct
from collections.abc import Callable, Sequence

from sparsetile.ops.cpu._emit import Function, Value, every, lanes_of, vector

# e^r for |r| <= ln(2) / 2, lowest power first; relative error 2e-8
_EXP = (1.0, 1.0, 0.4999999, 0.16666421, 0.04166836, 0.00837478, 0.001382941)
# e^(a²/2) · Φ(-a) for 0 <= a <= 15 in powers of (a - 5/2) / (a + 5/2); relative error 4e-8
_TAIL = (
    *(0.14133132994174957, -0.2280697375535965, 0.11313577741384506, -0.024550005793571472),
    *(-0.005124197807163, 0.0029556737281382084, 0.0008238517912104726, -0.0003645528631750494),
    *(-0.0001966000854736194, 2.8083693905500695e-05, 2.9295963031472638e-05),
)
_MAGIC = 12582912.0  # 1.5 · 2^23: added to a small number, it leaves its nearest integer below
_LARGER = 2.0**48
_LEAST = -110.0  # e to this, times 110, is zero in float32
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the first has few bits: its multiples are exact


def activate(f: Function, name: str, value: Value) -> Value:
    """Apply an activation of :mod:`sparsetile.ops` to each lane; none if the name is empty.

    Infinities and NaN give what torch gives.
    """
    return _KINDS[name](f, value) if name else value


def _relu(f: Function, x: Value) -> Value:
    return f.select(_below(f, x, 0.0), _all(0.0, x), x)


def _silu(f: Function, x: Value) -> Value:
    return _times_sigmoid(f, x, x)


def _gelu_tanh(f: Function, x: Value) -> Value:
    # (1 + tanh(u)) / 2 is the sigmoid of 2u = 2 · sqrt(2 / π) · (x + 0.044715 x³)
    cubic = f.fma(f.fmul(x, x), _all(2 * 0.7978845608028654 * 0.044715, x), _all(1.5957691216, x))
    return _times_sigmoid(f, x, f.fmul(x, cubic))


def _gelu(f: Function, x: Value) -> Value:
    """Multiply x by Φ(x), from the small one of the tails Φ(-|x|) and its complement."""
    size = _absolute(f, x)
    below = _below(f, x, 0.0)
    most = f.select(below, _all(15.0, x), _all(9.0, x))  # 1 - Φ(-9) is 1
    a = f.select(f.let(below.type, f"fcmp olt {size}, {most.name}"), size, most)
    t = f.binary("fdiv", f.fadd(a, _all(-2.5, x)), f.fadd(a, _all(2.5, x)))
    square = f.fmul(a, a)
    lost = f.fma(a, a, _negative(f, square))  # of the square by rounding; it counts in the tail
    half = _all(-0.5, x)
    tail = f.fmul(_exp(f, f.fmul(square, half), f.fmul(lost, half)), _polynomial(f, _TAIL, t))
    rest = f.fma(tail, _all(-1 / _LARGER, x), _all(1.0, x))
    return _as_it_is(f, f.fmul(x, f.select(below, tail, rest)), x, zero_below=-14.5)


def _times_sigmoid(f: Function, x: Value, u: Value) -> Value:
    """Divide x by 1 + e^-u, where u has the sign of x."""
    e = _exp(f, _negative(f, _absolute(f, u)), _all(0.0, x))
    top = f.select(_below(f, u, 0.0), e, _all(1.0, x))
    bottom = f.fma(e, _all(1 / _LARGER, x), _all(1.0, x))
    return _as_it_is(f, f.fmul(x, f.binary("fdiv", top, bottom)), u, zero_below=-109.0)


def _as_it_is(f: Function, y: Value, u: Value, *, zero_below: float) -> Value:
    """Divide by `_LARGER` where u is below zero; further down the quotient rounds to zero."""
    small = f.select(_below(f, u, zero_below), _all(0.0, u), _all(1 / _LARGER, u))
    return f.fmul(y, f.select(_below(f, u, 0.0), small, _all(1.0, u)))


def _exp(f: Function, x: Value, more: Value) -> Value:
    """Raise e to x + more, times `_LARGER`: 2^k · e^r with an integer k.

    For x <= 0 and a tiny ``more``; what is below `_LEAST` counts as that.
    """
    x = f.select(_below(f, x, _LEAST), _all(_LEAST, x), x)
    shifted = f.fma(x, _all(1.4426950408889634, x), _all(_MAGIC, x))
    k = f.fadd(shifted, _all(-_MAGIC, x))
    r = f.fma(k, _all(-_LN2_LOW, x), f.fadd(f.fma(k, _all(-_LN2_HIGH, x), x), more))
    lanes = lanes_of(x.type)
    bits = f.binary("shl", f.bits(shifted, vector(lanes, "i32")), every(23, lanes))
    power = f.bits(f.add(bits, every((127 + 48) << 23, lanes)), x.type)
    return f.fmul(_polynomial(f, _EXP, r), power)


def _polynomial(f: Function, coefficients: Sequence[float], x: Value) -> Value:
    total = _all(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = f.fma(total, x, _all(coefficient, x))
    return total


def _all(number: float, like: Value) -> Value:
    """Make a vector of one float32 constant; LLVM wants its digits as those of a float64."""
    rounded = struct.unpack("<f", struct.pack("<f", number))[0]
    digits = struct.pack(">d", rounded).hex().upper()
    lanes = lanes_of(like.type)
    return Value(f"<{', '.join([f'float 0x{digits}'] * lanes)}>", like.type)


def _below(f: Function, x: Value, limit: float) -> Value:
    """Whether each lane is less than a limit; a NaN is not."""
    return f.let(vector(lanes_of(x.type), "i1"), f"fcmp olt {x}, {_all(limit, x).name}")


def _absolute(f: Function, x: Value) -> Value:
    lanes = lanes_of(x.type)
    kept = f.binary("and", f.bits(x, vector(lanes, "i32")), every(0x7FFFFFFF, lanes))
    return f.bits(kept, x.type)


def _negative(f: Function, x: Value) -> Value:
    return f.let(x.type, f"fneg {x}")


_KINDS: dict[str, Callable[[Function, Value], Value]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}
