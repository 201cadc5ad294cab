"""The sampled dense-dense kernel on matrix tiles, for blocks of bfloat16.

All of A is packed once, by groups of rows: ``[steps][rows][32 numbers of the sum]``. B is packed a
band of block columns at a time, in pairs along the sum: ``[pairs][columns]``, so that the band
stays in the second cache. A few blocks of a row then share each tile of A, and every block is
summed to its end in a register.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._amx import configure, multiply_tiles, tile
from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module
from sparsetile.ops.cpu._number import BF16, load_pairs, load_pairs_of_rows
from sparsetile.ops.cpu._pack import Packing
from sparsetile.ops.cpu._transpose import transpose

LAYOUT = Layout(
    integers="tasks m k t height accumulate a_stride b_stride group_bytes panel_bytes first_block "
    "band",
    pointers="a b groups panels col starts stops values bounds",  # strides in bytes
)
STEP = 16  # units of the sum that one instruction multiplies
_TOGETHER = (5, 2, 1)  # blocks that share a tile of A
_A, _B = 6, 7


@dataclass(frozen=True)
class AmxOuterKernel:
    """What distinguishes one compiled kernel from another."""

    block: tuple[int, int]
    a_by_rows: bool  # A is stored [m, t] with t contiguous, else [t, m] with m contiguous
    b_by_rows: bool  # B is stored [k, t] with t contiguous, else [t, k] with k contiguous

    @property
    def group_rows(self) -> int:
        """Rows of a tile of A."""
        return max(d for d in range(1, 17) if self.block[0] % d == 0)

    @property
    def tile_columns(self) -> int:
        """Columns of a tile of B."""
        return 16 if self.block[1] % 16 == 0 else 8

    def ir(self) -> str:
        """Write the module: functions ``pack_a``, ``pack_b`` and ``rows``."""
        N = self.tile_columns
        pack = Packing(N, self.block[1] // N, BF16, pairs=True)
        pack_column = (pack.rows if self.b_by_rows else pack.columns)("pack_column")
        return module([pack_column, self._pack_a(), self._pack_b(), self._rows()])

    def _pack_a(self) -> Function:
        """Task = a group of rows of A."""
        f, a = LAYOUT.function("pack_a")
        R = self.group_rows
        with f.tasks(a["task"], a["tasks"]) as task:
            row = f.mul(task, R)
            group = f.at(a["groups"], f.mul(task, a["group_bytes"]))
            source = f.at(a["a"], f.mul(row, a["a_stride"] if self.a_by_rows else i64(2)))
            rows = f.greatest(f.least(f.sub(a["m"], row), R), 0)
            with f.loop(0, f.div(a["height"], STEP)) as steps:
                done = f.mul(steps.index, 2 * STEP)
                left = f.sub(a["t"], done)
                target = f.at(group, f.mul(steps.index, 4 * STEP * R))
                if self.a_by_rows:
                    for i in range(R):
                        some = f.select(f.compare("sgt", rows, i), left, i64(0))
                        line = f.at(f.at(source, f.mul(a["a_stride"], i)), f.mul(done, 2))
                        f.store(load_pairs(f, STEP, line, some), f.at(target, 64 * i), align=64)
                else:
                    line = f.at(source, f.mul(done, a["a_stride"]))
                    self._turn(f, a["a_stride"], line, rows, left, target)
        return f

    def _turn(
        self, f: Function, stride: Value, line: Value, rows: Value, left: Value, target: Value
    ) -> None:
        """Pack 32 terms of the sum, each a line of A, for the rows of a group."""
        masks = [
            f.lanes_below(f.select(f.compare("sgt", left, term), rows, i64(0)), STEP)
            for term in range(2 * STEP)
        ]
        units = []
        for u in range(STEP):
            low, high = f.at(line, f.mul(stride, 2 * u)), f.at(line, f.mul(stride, 2 * u + 1))
            units.append(load_pairs_of_rows(f, STEP, low, high, masks[2 * u], masks[2 * u + 1]))
        for i, turned in enumerate(transpose(f, units)[: self.group_rows]):
            f.store(turned, f.at(target, 64 * i), align=64)

    def _pack_b(self) -> Function:
        """Task = a block column of the band."""
        f, a = LAYOUT.function("pack_b")
        c = self.block[1]
        with f.tasks(a["task"], a["tasks"]) as task:
            column = f.mul(f.add(task, a["first_block"]), c)
            b = f.at(a["b"], f.mul(column, a["b_stride"] if self.b_by_rows else i64(2)))
            n = f.least(f.sub(a["k"], column), c)
            panel = f.at(a["panels"], f.mul(task, a["panel_bytes"]))
            f.call("pack_column", b, a["b_stride"], n, i64(0), a["height"], a["t"], panel)
        return f

    def _rows(self) -> Function:
        """Task = a part of the block rows: their blocks in the band."""
        f, a = LAYOUT.function("rows")
        (r, c), R, N = self.block, self.group_rows, self.tile_columns
        configure(f, sums=(R, 4 * N), a=(R, 64), b=(STEP, 4 * N))
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.load_index(a["bounds"], task, bits=64)
            last = f.load_index(a["bounds"], f.add(task, 1), bits=64)
            with f.loop(first, last) as rows:
                start = f.load_index(a["starts"], rows.index)
                stop = f.load_index(a["stops"], rows.index)
                for g in range(r // R):
                    number = f.add(f.mul(rows.index, r // R), g)
                    group = f.at(a["groups"], f.mul(number, a["group_bytes"]))
                    done = start
                    for count in _TOGETHER:
                        end = f.add(done, f.mul(f.div(f.sub(stop, done), count), count))
                        with f.loop(done, end, count) as blocks, f.loop(0, c, N) as columns:
                            at = f.add(columns.index, R * c * g)
                            self._blocks(f, a, group, blocks.index, at, columns.index, count)
                        done = end
        f.intrinsic("llvm.x86.tilerelease", "void")
        return f

    def _blocks(
        self,
        f: Function,
        a: dict[str, Value],
        group: Value,
        block: Value,
        place: Value,
        column: Value,
        count: int,
    ) -> None:
        """Sum one tile of each of ``count`` blocks, ``place`` numbers into them."""
        (r, c), R = self.block, self.group_rows
        panels, outs = [], []
        for u in range(count):
            position = f.add(block, u)
            number = f.sub(f.load_index(a["col"], position), a["first_block"])
            panel = f.at(a["panels"], f.mul(number, a["panel_bytes"]))
            panels.append(f.at(panel, f.mul(column, 4)))
            outs.append(f.at(a["values"], f.mul(f.add(f.mul(position, r * c), place), 4)))
            for i in range(R):
                f.prefetch(f.at(outs[-1], 4 * c * i), write=True)
        keep = f.compare("ne", a["accumulate"], 0)
        with f.when(keep):
            for u, out in enumerate(outs):
                tile(f, "tileloadd64", u, out, 4 * c)
        with f.when(f.compare("eq", a["accumulate"], 0)):
            for u in range(count):
                f.intrinsic("llvm.x86.tilezero", "void", Value(str(u), "i8"))
        with f.loop(0, a["height"], STEP) as steps:
            tile(f, "tileloadd64", _A, f.at(group, f.mul(steps.index, 4 * R)), 64)
            for u, panel in enumerate(panels):
                tile(f, "tileloadd64", _B, f.at(panel, f.mul(steps.index, 4 * c)), 4 * c)
                multiply_tiles(f, u, _A, _B)
        for u, out in enumerate(outs):
            tile(f, "tilestored64", u, out, 4 * c)
