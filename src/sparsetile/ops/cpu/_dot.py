"""The sampled dense-dense kernel for blocks of at most four numbers: dot products along the sum.

Vectors run along the sum. A slice of B's columns stays in the first cache, a chunk of A's rows in
the second; S rows and a few of their stored blocks give one vector's worth of dot products at once,
which a transposing reduction turns into consecutive numbers of the result. The blocks come in the
same sliced order as the product's.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._pack import Packing

LAYOUT = Layout(
    integers="tasks t m k k_block k_blocks chunk_rows a_stride b_stride panel_bytes stage_bytes "
    "accumulate",  # strides in bytes
    pointers="a b panels stages table lengths rows index packed",
)


@dataclass(frozen=True)
class DotKernel:
    """What distinguishes one compiled kernel from another."""

    lanes: int
    numbers: Numbers  # 16-bit ones are widened
    block: tuple[int, int]
    slice_rows: int  # S block rows
    vectors: int  # T vectors of the sum
    a_by_rows: bool  # A is stored [m, t] with t contiguous, else [t, m] with m contiguous
    b_by_rows: bool  # B is stored [k, t] with t contiguous, else [t, k] with k contiguous

    @property
    def terms(self) -> int:
        """Terms of the sum in a tile."""
        return self.lanes * self.vectors

    @property
    def row_bytes(self) -> int:
        """Bytes of a packed row of A or column of B."""
        return 4 * self.terms

    @property
    def steps(self) -> int:
        """Blocks of each row taken at once, so that the dot products fill a vector."""
        return max(1, self.lanes // (self.slice_rows * self.block[0] * self.block[1]))

    def stage_bytes(self, chunk_rows: int) -> int:
        """Bytes of a packed chunk of A, and of the rows that fill up its last slice."""
        return (chunk_rows + self.block[0] + self.lanes) * self.row_bytes

    def ir(self) -> str:
        """Write the module: functions ``pack`` and ``rows``."""
        # a packed row of A is a column of Aᵀ: what is contiguous changes its name
        pack = Packing(self.lanes, self.vectors, self.numbers.x, pairs=False)
        pack_a = (pack.columns if self.a_by_rows else pack.rows)("pack_a")
        pack_b = (pack.columns if self.b_by_rows else pack.rows)("pack_b")
        return module([pack_a, pack_b, self._core(), self._pack(), self._rows()])

    def _pack(self) -> Function:
        """Task = a k-block: pack its columns of B."""
        f, a = LAYOUT.function("pack")
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.mul(task, a["k_block"])
            b = f.at(
                a["b"], f.mul(first, a["b_stride"] if self.b_by_rows else i64(self.numbers.x.size))
            )
            panel = f.at(a["panels"], f.mul(task, a["panel_bytes"]))
            left = f.sub(a["k"], first)
            f.call("pack_b", b, a["b_stride"], a["t"], i64(0), a["k_block"], left, panel)
        return f

    def _rows(self) -> Function:
        """Task = a chunk: pack its rows of A, then all k-blocks."""
        f, a = LAYOUT.function("rows")
        stage = f.at(a["stages"], f.mul(f.take(a["ticket"]), a["stage_bytes"]))
        area = self.block[0] * self.block[1]
        with f.tasks(a["task"], a["tasks"]) as task:
            row = f.mul(task, a["chunk_rows"])
            here = f.at(
                a["a"], f.mul(row, a["a_stride"] if self.a_by_rows else i64(self.numbers.x.size))
            )
            height = f.add(a["chunk_rows"], self.lanes)
            height = f.mul(f.div(height, self.lanes), self.lanes)
            left = f.least(f.sub(a["m"], row), a["chunk_rows"])
            f.call("pack_a", here, a["a_stride"], a["t"], i64(0), height, left, stage)
            with f.loop(0, a["k_blocks"]) as blocks:
                entry = f.mul(f.add(f.mul(task, a["k_blocks"]), blocks.index), 3)
                first, last, slot = (
                    f.load_index(a["table"], f.add(entry, i), bits=64) for i in range(3)
                )
                f.call(
                    "core",
                    f.at(a["panels"], f.mul(blocks.index, a["panel_bytes"])),
                    stage,
                    first,
                    last,
                    a["lengths"],
                    a["rows"],
                    f.at(a["index"], f.mul(slot, 2)),
                    f.at(a["packed"], f.mul(slot, 4 * area)),
                    a["accumulate"],
                )
        return f

    def _core(self) -> Function:
        """Emit the walk over the slices of one (chunk, k-block)."""
        S, area = self.slice_rows, self.block[0] * self.block[1]
        args = [("panel", "ptr noalias readonly"), ("stage", "ptr noalias readonly")]
        args += [("first", "i64"), ("last", "i64"), ("lengths", "ptr noalias readonly")]
        args += [("rows", "ptr noalias readonly"), ("index", "ptr noalias readonly")]
        f = Function("core", [*args, ("out", "ptr noalias"), ("accumulate", "i64")], internal=True)
        panel, stage, first, last, lengths, rows, index, out, accumulate = f.args
        keep = f.compare("ne", accumulate, 0)
        with f.loop(first, last, carry=[index, out]) as slices:
            length = f.load_index(lengths, slices.index)
            mine = []
            for u in range(S):
                row = f.load_index(rows, f.add(f.mul(slices.index, S), u))
                mine.append(f.at(stage, f.mul(row, self.row_bytes)))
            at = slices.values
            done, steps = i64(0), self.steps
            while steps:
                stop = f.mul(f.div(length, steps), steps)
                with f.loop(done, stop, steps, carry=at) as loop:
                    index, out = loop.values
                    self._dots(f, panel, mine, index, out, keep, steps)
                    loop.carry([f.at(index, 2 * S * steps), f.at(out, 4 * S * area * steps)])
                at, done, steps = loop.results, stop, steps // 2
            slices.carry(at)
        return f

    def _dots(
        self,
        f: Function,
        panel: Value,
        mine: list[Value],
        index: Value,
        out: Value,
        keep: Value,
        steps: int,
    ) -> None:
        """Compute the blocks of ``steps`` steps of a slice, and store or add them."""
        (r, c), S, T, v = self.block, self.slice_rows, self.vectors, vector(self.lanes)
        sums: list[Value | None] = [None] * (steps * S * r * c)
        columns = [
            f.at(panel, f.mul(f.load_index(index, z, bits=16), self.row_bytes))
            for z in range(steps * S)
        ]
        for t in range(T):
            a = [
                [
                    f.load(v, f.at(mine[u], 4 * self.lanes * (i * T + t)), align=4 * self.lanes)
                    for i in range(r)
                ]
                for u in range(S)
            ]
            for z, column in enumerate(columns):
                for j in range(c):
                    b = f.load(v, f.at(column, 4 * self.lanes * (j * T + t)), align=4 * self.lanes)
                    for i in range(r):
                        s, before = (z * r + i) * c + j, sums[(z * r + i) * c + j]
                        sums[s] = (
                            f.fmul(b, a[z % S][i])
                            if before is None
                            else f.fma(b, a[z % S][i], before)
                        )
        total = _reduce(f, [s for s in sums if s is not None])
        old = f.load(total.type, out)
        old = f.let(total.type, f"select {keep}, {old}, {total.type} zeroinitializer")
        f.store(f.fadd(old, total), out)


def _reduce(f: Function, sums: list[Value]) -> Value:
    """Add up the lanes of each of P vectors: lane p of the result is the sum of vector p.

    Each step halves the vectors and the stretch of lanes that one of them takes: number p moves to
    the lanes that the bits of p name, highest bit first.
    """
    lanes = stretch = int(sums[0].type.split()[0].lstrip("<"))
    while len(sums) > 1:
        half, g = len(sums) // 2, stretch // 2
        starts = range(0, lanes, stretch)
        low = [q + i + side * lanes for q in starts for side in (0, 1) for i in range(g)]
        high = [lane + g for lane in low]
        sums = [
            f.fadd(f.shuffle(a, b, low), f.shuffle(a, b, high))
            for a, b in zip(sums[:half], sums[half:], strict=True)
        ]
        stretch = g
    total = sums[0]
    while stretch > 1:
        count, g = int(total.type.split()[0].lstrip("<")), stretch // 2
        low = [q + i for q in range(0, count, stretch) for i in range(g)]
        total = f.fadd(f.shuffle(total, None, low), f.shuffle(total, None, [i + g for i in low]))
        stretch = g
    return total
