"""A small structured emitter of LLVM IR text: typed values, loops that carry registers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

# LLVM tunes some CPUs to 256-bit vectors; these attributes keep 512-bit code whole.
ATTRIBUTES = (
    'attributes #0 = { nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" }'
)


@dataclass(frozen=True)
class Value:
    """A name of the IR and its type, such as ``%v3`` of ``<16 x float>`` or ``7`` of ``i64``."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def i64(number: int) -> Value:
    """Make a 64-bit integer constant."""
    return Value(str(number), "i64")


def vector(lanes: int, element: str = "float") -> str:
    """Spell the type of a vector: ``vector(16)`` is ``<16 x float>``."""
    return f"<{lanes} x {element}>"


def zero(type_: str) -> Value:
    """Make the zero of a vector type."""
    return Value("zeroinitializer", type_)


def lanes_of(type_: str) -> int:
    """Count the lanes of a vector type."""
    return int(type_.split()[0].lstrip("<"))


def short(type_: str) -> str:
    """Spell a vector type as names of intrinsics do: ``v16f32``."""
    element = type_.split(" x ")[1].rstrip(">")
    return f"v{lanes_of(type_)}{_SHORT.get(element, element)}"


def element_bytes(type_: str) -> int:
    """Bytes of one element of a vector type."""
    return {"float": 4, "i32": 4, "i64": 8, "i8": 1}.get(type_.split(" x ")[1].rstrip(">"), 2)


_SHORT = {"float": "f32", "half": "f16", "bfloat": "bf16"}


def every(number: int, lanes: int) -> Value:
    """Make a vector of 32-bit integers that are all the same constant."""
    return Value(f"<{', '.join([f'i32 {number}'] * lanes)}>", vector(lanes, "i32"))


@dataclass
class Loop:
    """An open loop: its index, the values it carries round, and, once closed, what they end as."""

    index: Value
    values: list[Value]
    carried: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)

    def carry(self, values: Sequence[Value]) -> None:
        """Set what the carried values are in the next iteration."""
        self.carried = list(values)


class Function:
    """One function of the module under construction.

    Methods that compute return the :class:`Value` that holds the result. Integers given in place
    of values become 64-bit constants.
    """

    def __init__(
        self, name: str, args: Sequence[tuple[str, str]], *, internal: bool = False
    ) -> None:
        self.name = name
        self.args = [Value(f"%{arg}", type_.split()[0]) for arg, type_ in args]
        linkage = "internal " if internal else ""
        signature = ", ".join(f"{type_} %{arg}" for arg, type_ in args)
        self._lines = [f"define {linkage}void @{name}({signature}) #0 {{", "entry:"]
        self._block = "entry"
        self._count = 0
        self.declared: set[str] = set()

    def text(self) -> str:
        """Return the IR of the whole function."""
        return "\n".join([*self._lines, "  ret void", "}"])

    # --- plumbing -------------------------------------------------------------------------------

    def _fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _line(self, text: str) -> None:
        self._lines.append("  " + text)

    def _label(self, name: str) -> None:
        self._lines.append(f"{name}:")
        self._block = name

    def let(self, type_: str, expression: str) -> Value:
        """Emit ``%fresh = expression`` and return the value, of the given type."""
        value = Value(f"%{self._fresh()}", type_)
        self._line(f"{value.name} = {expression}")
        return value

    def call(self, function: str, *args: Value) -> None:
        """Call a function that returns nothing."""
        self._line(f"call void @{function}({', '.join(map(str, args))})")

    def intrinsic(self, name: str, type_: str, *args: Value, constants: str = "") -> Value:
        """Call an intrinsic of LLVM, such as ``llvm.fma.v16f32``; ``constants`` follow the args."""
        kinds = [a.type for a in args] + [c.split()[0] for c in constants.split(", ") if c]
        self.declared.add(f"declare {type_} @{name}({', '.join(kinds)})")
        given = ", ".join([*map(str, args), *([constants] if constants else [])])
        call = f"call {type_} @{name}({given})"
        if type_ != "void":
            return self.let(type_, call)
        self._line(call)
        return Value("", "void")

    def scratch(self, size: int) -> Value:
        """Reserve bytes of the stack, aligned to a cache line, for the whole function."""
        name = f"%{self._fresh('scratch')}"
        self._lines.insert(2, f"  {name} = alloca [{size} x i8], align 64")
        return Value(name, "ptr")

    # --- integers and addresses -----------------------------------------------------------------

    def binary(self, op: str, a: Value | int, b: Value | int) -> Value:
        """Apply an LLVM operation to two values of one type."""
        a, b = (i64(x) if isinstance(x, int) else x for x in (a, b))
        return self.let(a.type, f"{op} {a}, {b.name}")

    def add(self, a: Value | int, b: Value | int) -> Value:
        """Integer sum."""
        return self.binary("add", a, b)

    def sub(self, a: Value | int, b: Value | int) -> Value:
        """Integer difference."""
        return self.binary("sub", a, b)

    def mul(self, a: Value | int, b: Value | int) -> Value:
        """Integer product."""
        return self.binary("mul", a, b)

    def div(self, a: Value | int, b: Value | int) -> Value:
        """Unsigned integer quotient."""
        return self.binary("udiv", a, b)

    def rem(self, a: Value | int, b: Value | int) -> Value:
        """Unsigned integer remainder."""
        return self.binary("urem", a, b)

    def compare(self, relation: str, a: Value | int, b: Value | int) -> Value:
        """Compare integers by an LLVM relation such as ``slt``."""
        a, b = (i64(x) if isinstance(x, int) else x for x in (a, b))
        return self.let("i1", f"icmp {relation} {a}, {b.name}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """Choose ``a`` where the condition holds, else ``b``."""
        return self.let(a.type, f"select {condition}, {a}, {b}")

    def least(self, a: Value | int, b: Value | int) -> Value:
        """Smaller of two signed integers."""
        a, b = (i64(x) if isinstance(x, int) else x for x in (a, b))
        return self.select(self.compare("slt", a, b), a, b)

    def greatest(self, a: Value | int, b: Value | int) -> Value:
        """Larger of two signed integers."""
        a, b = (i64(x) if isinstance(x, int) else x for x in (a, b))
        return self.select(self.compare("sgt", a, b), a, b)

    def opaque(self, number: Value) -> Value:
        """Return the same integer; the passes that rework loops do not see where it comes from."""
        return self.let(number.type, f"freeze {number}")

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """Address ``offset`` bytes after the pointer."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        offset = i64(offset) if isinstance(offset, int) else offset
        return self.let("ptr", f"getelementptr i8, {pointer}, {offset}")

    def lines(self, base: Value, stride: Value, count: int) -> list[Value]:
        """Addresses of lines a stride apart, from ``base`` on: few registers hold them all.

        LLVM is kept from seeing where the base comes from. In a loop it would else try, for long,
        to count up a register for each line.
        """
        base = self.intrinsic("llvm.launder.invariant.group.p0", "ptr", base)
        steps = [i64(0), stride, self.mul(stride, 2), self.mul(stride, 3)]
        found: list[Value] = []
        while len(found) < count:
            found += [self.at(base, step) for step in steps]
            base = self.at(base, self.mul(stride, 4))
        return found[:count]

    # --- memory ---------------------------------------------------------------------------------

    def load(self, type_: str, pointer: Value, align: int = 4) -> Value:
        """Load a value of the given type."""
        return self.let(type_, f"load {type_}, {pointer}, align {align}")

    def load_index(self, pointer: Value, position: Value | int, bits: int = 32) -> Value:
        """Load entry ``position`` of an array of unsigned integers, widened to 64 bits."""
        address = self.at(pointer, self.mul(position, bits // 8))
        narrow = self.load(f"i{bits}", address, align=bits // 8)
        return narrow if bits == 64 else self.let("i64", f"zext {narrow} to i64")

    def load_signed(self, pointer: Value) -> Value:
        """Load a signed 32-bit integer, widened to 64 bits."""
        return self.let("i64", f"sext {self.load('i32', pointer)} to i64")

    def store(self, value: Value, pointer: Value, align: int = 4) -> None:
        """Store a value."""
        self._line(f"store {value}, {pointer}, align {align}")

    def prefetch(self, pointer: Value, *, write: bool = False, level: int = 1) -> None:
        """Ask for the cache line at the address, into the given cache level, to be used soon."""
        kind = f"i32 {int(write)}, i32 {4 - level}, i32 1"
        self.intrinsic("llvm.prefetch.p0", "void", pointer, constants=kind)

    def copy(self, target: Value, source: Value, size: int) -> None:
        """Copy a constant number of bytes."""
        rest = f"i64 {size}, i1 false"
        self.intrinsic("llvm.memcpy.p0.p0.i64", "void", target, source, constants=rest)

    def take(self, counter: Value) -> Value:
        """Add one to a shared counter and return what it was: how tasks are handed to threads."""
        return self.let("i64", f"atomicrmw add {counter}, i64 1 monotonic")

    # --- vectors --------------------------------------------------------------------------------

    def splat(self, scalar: Value, lanes: int) -> Value:
        """Repeat a scalar in every lane."""
        type_ = vector(lanes, scalar.type)
        first = self.let(type_, f"insertelement {type_} poison, {scalar}, i32 0")
        return self.shuffle(first, None, [0] * lanes)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        """Pick lanes of ``a`` followed by ``b``."""
        element = a.type.split(" x ")[1].rstrip(">")
        type_ = vector(len(lanes), element)
        other = f"{a.type} poison" if b is None else str(b)
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.let(type_, f"shufflevector {a}, {other}, <{len(lanes)} x i32> <{mask}>")

    def fence(self, value: Value) -> Value:
        """Return the same floats as a vector whose making LLVM does not look into."""
        return self.intrinsic(f"llvm.arithmetic.fence.{short(value.type)}", value.type, value)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c``, rounded once."""
        return self.intrinsic(f"llvm.fma.{short(c.type)}", c.type, a, b, c)

    def bits(self, value: Value, type_: str) -> Value:
        """Take the same bits as another type."""
        return self.let(type_, f"bitcast {value} to {type_}")

    def convert(self, how: str, value: Value, type_: str) -> Value:
        """Convert lane by lane, by an LLVM conversion such as ``zext`` or ``fpext``."""
        return self.let(type_, f"{how} {value} to {type_}")

    def fmul(self, a: Value, b: Value) -> Value:
        """Product of two vectors."""
        return self.let(a.type, f"fmul {a}, {b.name}")

    def fadd(self, a: Value, b: Value) -> Value:
        """Sum of two vectors."""
        return self.let(a.type, f"fadd {a}, {b.name}")

    def lanes_below(self, count: Value, lanes: int) -> Value:
        """Mask of the lanes whose number is less than ``count``, which may be negative."""
        many = self.splat(count, lanes)
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        return self.let(vector(lanes, "i1"), f"icmp sgt {many}, <{numbers}>")

    def load_lanes(self, type_: str, pointer: Value, mask: Value | None) -> Value:
        """Load the lanes of the mask; the others are zero and their memory is not touched."""
        if mask is None:
            return self.load(type_, pointer, align=element_bytes(type_))
        name = f"llvm.masked.load.{short(type_)}.p0"
        align = Value(str(element_bytes(type_)), "i32")
        return self.intrinsic(name, type_, pointer, align, mask, zero(type_))

    def store_lanes(self, value: Value, pointer: Value, mask: Value | None) -> None:
        """Store the lanes of the mask; memory of the others is not touched."""
        if mask is None:
            self.store(value, pointer, align=element_bytes(value.type))
            return
        name = f"llvm.masked.store.{short(value.type)}.p0"
        align = Value(str(element_bytes(value.type)), "i32")
        self.intrinsic(name, "void", value, pointer, align, mask)

    # --- control --------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: int = 1,
        carry: Sequence[Value] = (),
    ) -> Iterator[Loop]:
        """Run the body for ``index`` from start to below stop; not at all when there is none.

        The loop tests at its bottom, so a hot body is one straight run of instructions. Values
        given in ``carry`` live in registers from one iteration to the next: read them from
        ``loop.values``, set them by ``loop.carry`` and read their end from ``loop.results``.
        """
        start = i64(start) if isinstance(start, int) else start
        name = self._fresh("loop")
        before, body, after = self._block, f"{name}.body", f"{name}.end"
        some = self.compare("slt", start, stop)
        self._line(f"br {some}, label %{body}, label %{after}")
        self._label(body)
        index = Value(f"%{name}.i", "i64")
        values = [Value(f"%{name}.c{n}", value.type) for n, value in enumerate(carry)]
        loop = Loop(index, values, carried=values)
        phis = len(self._lines)
        yield loop
        following = self.add(index, step)
        last = self._block
        more = self.compare("slt", following, stop)
        self._line(f"br {more}, label %{body}, label %{after}")
        self._lines[phis:phis] = [
            f"  {v.name} = phi {v.type} [{first.name}, %{before}], [{then.name}, %{last}]"
            for v, first, then in zip(
                [index, *values], [start, *carry], [following, *loop.carried], strict=True
            )
        ]
        self._label(after)
        loop.results = [
            self.let(v.type, f"phi {v.type} [{first.name}, %{before}], [{then.name}, %{last}]")
            for v, first, then in zip(values, carry, loop.carried, strict=True)
        ]

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Run the body only where the condition holds."""
        name = self._fresh("if")
        self._line(f"br {condition}, label %{name}.then, label %{name}.end")
        self._label(f"{name}.then")
        yield
        self._line(f"br label %{name}.end")
        self._label(f"{name}.end")

    @contextmanager
    def tasks(self, counter: Value, count: Value) -> Iterator[Value]:
        """Run the body for each task this thread draws from the shared counter."""
        name = self._fresh("tasks")
        self._line(f"br label %{name}.next")
        self._label(f"{name}.next")
        task = self.take(counter)
        some = self.compare("slt", task, count)
        self._line(f"br {some}, label %{name}.body, label %{name}.end")
        self._label(f"{name}.body")
        yield task
        self._line(f"br label %{name}.next")
        self._label(f"{name}.end")


def module(functions: Sequence[Function]) -> str:
    """Join functions into one module, with the intrinsics they use declared."""
    declared = sorted({line for f in functions for line in f.declared})
    return "\n".join([*declared, *(f.text() for f in functions), ATTRIBUTES]) + "\n"
