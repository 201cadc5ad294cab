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

    # --- integers and addresses -----------------------------------------------------------------

    def _binary(self, op: str, a: Value | int, b: Value | int) -> Value:
        a, b = (i64(x) if isinstance(x, int) else x for x in (a, b))
        return self.let(a.type, f"{op} {a}, {b.name}")

    def add(self, a: Value | int, b: Value | int) -> Value:
        """Integer sum."""
        return self._binary("add", a, b)

    def sub(self, a: Value | int, b: Value | int) -> Value:
        """Integer difference."""
        return self._binary("sub", a, b)

    def mul(self, a: Value | int, b: Value | int) -> Value:
        """Integer product."""
        return self._binary("mul", a, b)

    def div(self, a: Value | int, b: Value | int) -> Value:
        """Unsigned integer quotient."""
        return self._binary("udiv", a, b)

    def rem(self, a: Value | int, b: Value | int) -> Value:
        """Unsigned integer remainder."""
        return self._binary("urem", a, b)

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

    def at(self, pointer: Value, offset: Value | int) -> Value:
        """Address ``offset`` bytes after the pointer."""
        if isinstance(offset, int) and offset == 0:
            return pointer
        offset = i64(offset) if isinstance(offset, int) else offset
        return self.let("ptr", f"getelementptr i8, {pointer}, {offset}")

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
        self._line(
            f"call void @llvm.prefetch.p0({pointer}, i32 {int(write)}, i32 {4 - level}, i32 1)"
        )

    def copy(self, target: Value, source: Value, size: int) -> None:
        """Copy a constant number of bytes."""
        self._line(f"call void @llvm.memcpy.p0.p0.i64({target}, {source}, i64 {size}, i1 false)")

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

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """``a * b + c``, rounded once."""
        lanes = a.type.split()[0].lstrip("<")
        return self.let(c.type, f"call {c.type} @llvm.fma.v{lanes}f32({a}, {b}, {c})")

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
            return self.load(type_, pointer)
        lanes = type_.split()[0].lstrip("<")
        return self.let(
            type_,
            f"call {type_} @llvm.masked.load.v{lanes}f32.p0({pointer}, i32 4, {mask}, "
            f"{type_} zeroinitializer)",
        )

    def store_lanes(self, value: Value, pointer: Value, mask: Value) -> None:
        """Store the lanes of the mask; memory of the others is not touched."""
        lanes = value.type.split()[0].lstrip("<")
        self._line(
            f"call void @llvm.masked.store.v{lanes}f32.p0({value}, {pointer}, i32 4, {mask})"
        )

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


def transpose(f: Function, rows: Sequence[Value]) -> list[Value]:
    """Transpose as many vectors as each has lanes, in registers.

    Only shuffles that processors have are used: within 128-bit lanes first, then of whole ones.
    """
    lanes = len(rows)
    if lanes == 1:
        return list(rows)
    if lanes == 2:
        return [f.shuffle(rows[0], rows[1], [i, i + 2]) for i in (0, 1)]
    quads = range(0, lanes, 4)  # first numbers of the 128-bit lanes

    def within(a: Value, b: Value, order: Sequence[int]) -> Value:
        """Shuffle 4 of the 8 numbers that a and b have in a 128-bit lane, alike in all lanes."""
        return f.shuffle(a, b, [q + (i if i < 4 else i - 4 + lanes) for q in quads for i in order])

    columns: list[list[Value]] = [[] for _ in range(4)]
    for q in quads:
        r0, r1, r2, r3 = rows[q : q + 4]
        low = within(r0, r1, (0, 4, 1, 5)), within(r2, r3, (0, 4, 1, 5))
        high = within(r0, r1, (2, 6, 3, 7)), within(r2, r3, (2, 6, 3, 7))
        # vector c: in lane l, four rows' numbers of column 4·l + c
        columns[0].append(within(*low, (0, 1, 4, 5)))
        columns[1].append(within(*low, (2, 3, 6, 7)))
        columns[2].append(within(*high, (0, 1, 4, 5)))
        columns[3].append(within(*high, (2, 3, 6, 7)))
    turned = [_transpose_quads(f, vectors) for vectors in columns]
    return [turned[c][lane] for lane in range(lanes // 4) for c in range(4)]


def _transpose_quads(f: Function, vectors: Sequence[Value]) -> list[Value]:
    """Transpose 1, 2 or 4 vectors of as many 128-bit lanes."""

    def pick(a: Value, b: Value, order: Sequence[int]) -> Value:
        return f.shuffle(a, b, [4 * quad + i for quad in order for i in range(4)])

    if len(vectors) == 1:
        return list(vectors)
    if len(vectors) == 2:
        a, b = vectors
        return [pick(a, b, (lane, lane + 2)) for lane in (0, 1)]
    a, b, c, d = vectors
    low = pick(a, b, (0, 1, 4, 5)), pick(c, d, (0, 1, 4, 5))
    high = pick(a, b, (2, 3, 6, 7)), pick(c, d, (2, 3, 6, 7))
    orders = ((0, 2, 4, 6), (1, 3, 5, 7))
    return [pick(x, y, order) for x, y in (low, high) for order in orders]


def module(functions: Sequence[Function]) -> str:
    """Join functions into one module, with the intrinsics they use declared."""
    declarations = [
        "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    ]
    for lanes in (1, 2, 4, 8, 16):
        v = vector(lanes)
        declarations += [
            f"declare {v} @llvm.fma.v{lanes}f32({v}, {v}, {v})",
            f"declare {v} @llvm.masked.load.v{lanes}f32.p0(ptr, i32, <{lanes} x i1>, {v})",
            f"declare void @llvm.masked.store.v{lanes}f32.p0({v}, ptr, i32, <{lanes} x i1>)",
        ]
    return "\n".join([*declarations, *(f.text() for f in functions), ATTRIBUTES]) + "\n"
