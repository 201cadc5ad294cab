"""The sampled dense-dense kernel: stored blocks of A · B as sums of outer products in registers.

For a stretch of the sum, in units, B is packed by block column to panels ``[t][c]``; a group of
rows of A is packed to ``[t][rows]`` in the first cache. Several stored blocks of a block row are
then summed at once. A wide block (c over half a vector) multiplies vectors of B by broadcast
numbers of A. A narrow one puts several of its rows into one vector: numbers of A are spread over c
lanes each, and c numbers of B are repeated; both cost loads alone, no shuffles in the loop.
"""

from dataclasses import dataclass
from itertools import pairwise

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector, zero
from sparsetile.ops.cpu._number import Numbers, multiply_add
from sparsetile.ops.cpu._pack import Packing

LAYOUT = Layout(
    integers="tasks m k t height accumulate a_stride b_stride panel_bytes stage_bytes first_block "
    "band",
    pointers="a b panels stages col starts stops values bounds",  # strides in bytes
)
_GROUP = 32  # rows of A packed together: two cache lines of each of its rows
_UNROLL = 2


@dataclass(frozen=True)
class OuterKernel:
    """What distinguishes one compiled kernel from another."""

    lanes: int
    numbers: Numbers
    sums: int  # registers for sums
    block: tuple[int, int]
    spread: bool  # narrow blocks: rows of A are spread once for all blocks of a row, not for each
    a_by_rows: bool  # A is stored [m, t] with t contiguous, else [t, m] with m contiguous
    b_by_rows: bool  # B is stored [k, t] with t contiguous, else [t, k] with k contiguous

    @property
    def wide(self) -> bool:
        """Whether a vector holds (part of) one row of a block."""
        return 2 * self.block[1] > self.lanes

    @property
    def width(self) -> int:
        """Numbers in a row of a packed block: c padded to vectors, or to a power of two."""
        c = self.block[1]
        return -(-c // self.lanes) * self.lanes if self.wide else 1 << (c - 1).bit_length()

    @property
    def vectors(self) -> int:
        """Vectors that a stored block takes: for one of its rows (wide), or for all (narrow)."""
        r = self.block[0]
        return self.width // self.lanes if self.wide else -(-r * self.width // self.lanes)

    @property
    def padded(self) -> tuple[int, int]:
        """Shape in which blocks are written."""
        r = self.block[0]
        return (r if self.wide else self.vectors * self.lanes // self.width), self.width

    @property
    def group(self) -> int:
        """Block rows whose part of A is packed together."""
        return max(1, _GROUP // self.block[0])

    @property
    def row_vectors(self) -> int:
        """Vectors of a packed row of A: a group, and what spreading its end reads on."""
        rows = (self.group - 1) * self.block[0] + self.padded[0]
        return -(-rows // self.lanes)

    def stage_bytes(self, height: int) -> int:
        """Scratch of one thread for sums of the given (padded) length."""
        vectors = self.row_vectors + (self.vectors if self.spread else 0)
        return 4 * self.lanes * height * vectors + 64

    def _shape(self) -> tuple[int, list[int]]:
        """Choose rows (wide) or row vectors (narrow) at once, and the numbers of blocks at once."""
        if self.wide:
            rows = max(d for d in range(1, 9) if self.block[0] % d == 0)
            most = max(1, self.sums // (rows * self.vectors))
            while rows > 1 and rows * self.vectors > self.sums:
                rows = max(d for d in range(1, rows) if self.block[0] % d == 0)
            return rows, list(range(min(most, 4), 0, -1))
        rows = next(d for d in range(min(self.vectors, 8), 0, -1) if self.vectors % d == 0)
        most = max(1, min(16, self.sums // rows))
        counts = {most, 3 * most // 4, most // 2, most // 4, most // 8}
        return rows, sorted(counts - {0} | {1}, reverse=True)

    def ir(self) -> str:
        """Write the module: functions ``whole``, ``pack`` and ``rows``."""
        lanes = self.lanes if self.wide else self.width
        number, pairs = self.numbers.x, self.numbers.pairs
        a = Packing(self.lanes, self.row_vectors, number, pairs)
        b = Packing(lanes, self.width // lanes, number, pairs)
        pack_a = (a.rows if self.a_by_rows else a.columns)("pack_a")
        pack_b = (b.rows if self.b_by_rows else b.columns)("pack_b")
        spread = [self._spread()] if self.spread else []
        workers = [self._whole(), self._pack(), self._rows()]
        return module([pack_a, pack_b, *spread, self._part(), *workers])

    def _pack(self) -> Function:
        """Task = a block column: pack its panel of B, for all threads."""
        f, a = LAYOUT.function("pack")
        with f.tasks(a["task"], a["tasks"]) as task:
            self._pack_column(f, a, a["panels"], task)
        return f

    def _rows(self) -> Function:
        """Task = a part of the block rows, with the panels that all threads packed."""
        f, a = LAYOUT.function("rows")
        stage = f.at(a["stages"], f.mul(f.take(a["ticket"]), a["stage_bytes"]))
        with f.tasks(a["task"], a["tasks"]) as task:
            f.call("part", f.args[0], a["panels"], stage, task)
        return f

    def _whole(self) -> Function:
        """Task = a part of the block rows, with panels of its own."""
        f, a = LAYOUT.function("whole")
        ticket = f.take(a["ticket"])
        stage = f.at(a["stages"], f.mul(ticket, a["stage_bytes"]))
        panels = f.at(a["panels"], f.mul(f.mul(ticket, a["band"]), a["panel_bytes"]))
        with f.tasks(a["task"], a["tasks"]) as task:
            with f.loop(0, a["band"]) as columns:
                self._pack_column(f, a, panels, columns.index)
            f.call("part", f.args[0], panels, stage, task)
        return f

    def _pack_column(self, f: Function, a: dict[str, Value], panels: Value, number: Value) -> None:
        column = f.mul(f.add(number, a["first_block"]), self.block[1])
        b = f.at(
            a["b"], f.mul(column, a["b_stride"] if self.b_by_rows else i64(self.numbers.x.size))
        )
        n = f.least(f.sub(a["k"], column), self.block[1])
        panel = f.at(panels, f.mul(number, a["panel_bytes"]))
        f.call("pack_b", b, a["b_stride"], n, i64(0), a["height"], a["t"], panel)

    def _part(self) -> Function:
        """Emit the sums of one part of the block rows."""
        own = [("own_panels", "ptr"), ("stage", "ptr"), ("part", "i64")]
        f, a = LAYOUT.function("part", own)
        _, a["panels"], stage, part = f.args
        r = self.block[0]
        spread = f.at(stage, f.mul(a["height"], 4 * self.lanes * self.row_vectors))
        first = f.load_index(a["bounds"], part, bits=64)
        last = f.load_index(a["bounds"], f.add(part, 1), bits=64)
        with f.loop(first, last, self.group) as groups:
            row = f.mul(groups.index, r)
            here = f.at(
                a["a"], f.mul(row, a["a_stride"] if self.a_by_rows else i64(self.numbers.x.size))
            )
            n = f.least(f.sub(a["m"], row), self.lanes * self.row_vectors)
            f.call("pack_a", here, a["a_stride"], n, i64(0), a["height"], a["t"], stage)
            with f.loop(groups.index, f.least(f.add(groups.index, self.group), last)) as rows:
                mine = f.at(stage, f.mul(f.sub(rows.index, groups.index), 4 * r))
                if self.spread:
                    f.call("spread", mine, spread, a["height"])
                    mine = spread
                start = f.load_index(a["starts"], rows.index)
                stop = f.load_index(a["stops"], rows.index)
                self._block_row(f, a, mine, start, stop)
        return f

    def _block_row(
        self, f: Function, a: dict[str, Value], mine: Value, start: Value, stop: Value
    ) -> None:
        """Sum all stored blocks of one block row, as many at once as fit, then the rest."""
        rows, counts = self._shape()
        total = self.padded[0] if self.wide else self.vectors
        with f.loop(0, total, rows) as groups:
            # more than the next smaller number are summed as if they were all
            fewer = counts[1] if len(counts) > 1 else 0
            turns = f.div(f.add(f.sub(stop, start), counts[0] - 1 - fewer), counts[0])
            end = f.add(start, f.mul(turns, counts[0]))
            with f.loop(start, end, counts[0]) as blocks:
                self._blocks(f, a, mine, groups.index, rows, blocks.index, stop, counts[0])
            left = f.sub(stop, end)
            for count, fewer in pairwise([*counts[1:], 0]):
                some = f.compare("sgt", left, fewer)
                fits = f.compare("sle", left, count)
                with f.when(f.let("i1", f"and {some}, {fits.name}")):
                    self._blocks(f, a, mine, groups.index, rows, end, stop, count)

    def _blocks(
        self,
        f: Function,
        a: dict[str, Value],
        mine: Value,
        row: Value,
        rows: int,
        block: Value,
        stop: Value,
        count: int,
    ) -> None:
        """Sum ``count`` blocks from ``block`` on; those at or past ``stop`` repeat the last one."""
        v, size = vector(self.lanes), 4 * self.padded[0] * self.padded[1]
        per = self.vectors if self.wide else 1  # vectors of B a block
        panels, outs = [], []
        last = f.sub(stop, 1)
        offset = f.mul(row, 4 * (self.width if self.wide else self.lanes))
        for u in range(count):
            position = f.least(f.add(block, u), last)
            column = f.sub(f.load_index(a["col"], position), a["first_block"])
            panels.append(f.at(a["panels"], f.mul(column, a["panel_bytes"])))
            outs.append(f.at(f.at(a["values"], f.mul(position, size)), offset))
            for line in range(0, 4 * rows * (self.width if self.wide else self.lanes), 64):
                f.prefetch(f.at(outs[-1], line), write=True)
        a_row = 4 * self.lanes * (self.vectors if self.spread else self.row_vectors)
        mine = f.at(mine, f.mul(row, self._a_step))
        phases = 2 if rows * count * per < 8 else 1  # enough sums to hide the latency of an FMA
        each = rows * count * per
        with f.loop(0, a["height"], _UNROLL, carry=[zero(v)] * (each * phases)) as terms:
            sums = list(terms.values)
            # else LLVM would try, for long, to count up a register for each panel
            of_a, of_b = (f.opaque(f.mul(terms.index, size)) for size in (a_row, 4 * self.width))
            row, columns = f.at(mine, of_a), [f.at(panel, of_b) for panel in panels]
            for step in range(_UNROLL):
                numbers = [f.at(column, 4 * self.width * step) for column in columns]
                at = f.at(row, a_row * step)
                self._outer_product(f, at, numbers, rows, sums, step % phases)
            terms.carry(sums)
        sums = terms.results
        if phases == 2:
            sums = [f.fadd(x, y) for x, y in zip(sums[:each], sums[each:], strict=True)]
        # all loads before all stores: a repeated block is then written twice with the same sum
        keep = f.compare("ne", a["accumulate"], 0)
        targets = []
        for u in range(count):
            for q in range(per):
                for i in range(rows):
                    at_row = i * self.width + q * self.lanes if self.wide else i * self.lanes
                    target = f.at(outs[u], 4 * at_row)
                    old = f.select(keep, f.load(v, target), zero(v))
                    targets.append((f.fadd(old, sums[(u * per + q) * rows + i]), target))
        for value, target in targets:
            f.store(value, target)

    def _outer_product(
        self,
        f: Function,
        mine: Value,
        numbers: list[Value],
        rows: int,
        sums: list[Value],
        phase: int,
    ) -> None:
        """Add one term to the sums of one phase: rows of A by the numbers of B of each block."""
        per = self.vectors if self.wide else 1
        columns = [(at, q) for at in numbers for q in range(per)]

        def of_a(i: int) -> Value:
            if self.wide:
                return f.splat(f.load("float", f.at(mine, 4 * i)), self.lanes)
            if self.spread:
                return f.load(
                    vector(self.lanes), f.at(mine, self._a_step * i), align=4 * self.lanes
                )
            return self._spread_vector(f, f.at(mine, self._a_step * i))

        def of_b(at: Value, q: int) -> Value:
            if self.wide:
                return f.load(
                    vector(self.lanes), f.at(at, 4 * self.lanes * q), align=4 * self.lanes
                )
            few = f.load(vector(self.width), at, align=4 * self.width)
            return f.shuffle(few, None, [lane % self.width for lane in range(self.lanes)])

        def add(i: int, j: int, x: Value, y: Value) -> None:
            s = (phase * len(columns) + j) * rows + i
            sums[s] = multiply_add(f, self.numbers, x, y, sums[s])

        # the shorter side stays in registers while the longer passes through one
        if rows <= len(columns):
            held = [of_a(i) for i in range(rows)]
            for j, column in enumerate(columns):
                passing = of_b(*column)
                for i in range(rows):
                    add(i, j, passing, held[i])
        else:
            held = [of_b(*column) for column in columns]
            for i in range(rows):
                passing = of_a(i)
                for j in range(len(columns)):
                    add(i, j, held[j], passing)

    def _spread(self) -> Function:
        """Emit the spreading of packed A: each number over as many lanes as a block has columns."""
        args = [("packed", "ptr noalias readonly"), ("spread", "ptr noalias"), ("height", "i64")]
        f = Function("spread", args, internal=True)
        packed, spread, height = f.args
        together = self.lanes // self.width
        with f.loop(0, height) as loop:
            source = f.at(packed, f.mul(loop.index, 4 * self.lanes * self.row_vectors))
            target = f.at(spread, f.mul(loop.index, 4 * self.lanes * self.vectors))
            for i in range(self.vectors):
                wide = self._spread_vector(f, f.at(source, 4 * together * i))
                f.store(wide, f.at(target, 4 * self.lanes * i), align=4 * self.lanes)
        return f

    def _spread_vector(self, f: Function, packed: Value) -> Value:
        """Load the numbers of A that make one vector, each spread over a row of the block."""
        few = f.load(vector(self.lanes // self.width), packed)
        return f.shuffle(few, None, [lane // self.width for lane in range(self.lanes)])

    @property
    def _a_step(self) -> int:
        """Bytes of A from one row (wide) or row vector (narrow) to the next."""
        if self.wide:
            return 4
        return 4 * self.lanes if self.spread else 4 * (self.lanes // self.width)
