"""The block-row panel kernel: R rows of the matrix by T vectors of columns in registers.

A tile of columns of the dense operand is packed to a panel ``[k][T vectors]``; each group of R rows
then runs over the stored blocks of its block row, and its R·T sums leave the registers once, at the
end of the row. Blocks are read where they lie (row-major, in any order), so no copy of the values
is ever made. The same code multiplies by the transpose, reading blocks down their columns.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64, module, vector
from sparsetile.ops.cpu._pack import pack_columns, pack_rows, unpack_columns, unpack_rows

LAYOUT = Layout(
    integers="tasks column_tiles n k m height x_stride x_batch y_stride y_batch block_rows "
    "panel_bytes stage_bytes pack_step",  # strides in bytes
    pointers="x y panels stages crow col position values bias bounds",
)
_BAND = 128  # rows of a stage: it shares the first cache with the panel and the blocks


@dataclass(frozen=True)
class PanelKernel:
    """What distinguishes one compiled panel kernel from another."""

    lanes: int
    block: tuple[int, int]  # (rows, inner) of a block as it is multiplied
    tile: tuple[int, int]  # R rows, T vectors
    transposed: bool  # blocks are stored (inner, rows)
    x_by_rows: bool  # x is [n, k] with k contiguous, else [k, n] with n contiguous
    y_by_rows: bool  # the same of y: [n, m], else [m, n]

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.tile[1]

    @property
    def unroll(self) -> int:
        """Columns of a block multiplied in one straight run of code, at most."""
        return 16 if self.lanes == 16 else 8  # longer runs make LLVM spill where registers are few

    @property
    def band(self) -> int:
        """Block rows of a stage."""
        return max(1, _BAND // self.block[0])

    @property
    def stage_rows(self) -> int:
        """Rows of a stage, with those that the transposing store reads past its end."""
        return self.band * self.block[0] + self.lanes

    def ir(self) -> str:
        """Write the module: functions ``whole``, ``pack`` and ``rows``."""
        pack = pack_rows if self.x_by_rows else pack_columns
        unpack = unpack_rows if self.y_by_rows else unpack_columns
        ends = [
            pack("pack_tile", self.lanes, self.tile[1]),
            unpack("unpack", self.lanes, self.tile[1]),
        ]
        return module(
            [*ends, self._core(), self._bands(), self._whole(), self._pack(), self._rows()]
        )

    # --- workers: each thread runs one of these and draws tasks ----------------------------------

    def _whole(self) -> Function:
        """Task = a column tile: pack it, then multiply all rows."""
        f, a = LAYOUT.function("whole")
        ticket = f.take(a["ticket"])
        panel = f.at(a["panels"], f.mul(ticket, a["panel_bytes"]))
        with f.tasks(a["task"], a["tasks"]) as task:
            x, y, n = self._tile(f, a, task)
            f.call("pack_tile", x, a["x_stride"], n, i64(0), a["height"], a["k"], panel)
            self._multiply(f, a, ticket, panel, y, n, i64(0), a["block_rows"])
        return f

    def _pack(self) -> Function:
        """Task = a stretch of the panel of a column tile."""
        f, a = LAYOUT.function("pack")
        with f.tasks(a["task"], a["tasks"]) as task:
            stretches = f.div(f.add(a["height"], f.sub(a["pack_step"], 1)), a["pack_step"])
            tile, stretch = f.div(task, stretches), f.rem(task, stretches)
            x, _, n = self._tile(f, a, tile)
            k0 = f.mul(stretch, a["pack_step"])
            k1 = f.least(f.add(k0, a["pack_step"]), a["height"])
            panel = f.at(a["panels"], f.mul(tile, a["panel_bytes"]))
            f.call("pack_tile", x, a["x_stride"], n, k0, k1, a["k"], panel)
        return f

    def _rows(self) -> Function:
        """Task = a part of the block rows for one packed column tile; tiles of a part in turn."""
        f, a = LAYOUT.function("rows")
        ticket = f.take(a["ticket"])
        with f.tasks(a["task"], a["tasks"]) as task:
            part, tile = f.div(task, a["column_tiles"]), f.rem(task, a["column_tiles"])
            _, y, n = self._tile(f, a, tile)
            first = f.load_index(a["bounds"], part, bits=64)
            last = f.load_index(a["bounds"], f.add(part, 1), bits=64)
            panel = f.at(a["panels"], f.mul(tile, a["panel_bytes"]))
            self._multiply(f, a, ticket, panel, y, n, first, last)
        return f

    def _tile(self, f: Function, a: dict[str, Value], tile: Value) -> tuple[Value, Value, Value]:
        """Find where a column tile lies: x, y, and how many columns of it exist."""
        per_batch = f.div(f.add(a["n"], self.columns - 1), self.columns)
        batch, column = f.div(tile, per_batch), f.mul(f.rem(tile, per_batch), self.columns)
        x_step = a["x_stride"] if self.x_by_rows else i64(4)
        y_step = a["y_stride"] if self.y_by_rows else i64(4)
        x = f.at(f.at(a["x"], f.mul(batch, a["x_batch"])), f.mul(column, x_step))
        y = f.at(f.at(a["y"], f.mul(batch, a["y_batch"])), f.mul(column, y_step))
        return x, y, f.least(f.sub(a["n"], column), self.columns)

    def _multiply(self, f: Function, a: dict[str, Value], ticket: Value, *own: Value) -> None:
        stage = f.at(a["stages"], f.mul(ticket, a["stage_bytes"]))
        shared = [
            a[name] for name in ("crow", "col", "position", "values", "bias", "y_stride", "m")
        ]
        f.call("bands", *own, stage, *shared)

    # --- the product ---------------------------------------------------------------------------

    def _bands(self) -> Function:
        """Multiply block rows first…last, a band at a time: into the stage, then out to y."""
        names = ["panel", "y", "n", "first", "last", "stage", "crow", "col", "position", "values"]
        f = _function("bands", [*names, "bias", "y_stride", "m"])
        panel, y, n, first, last, stage, crow, col, position, values, bias, stride, m = f.args
        with f.loop(first, last, self.band) as bands:
            stop = f.least(f.add(bands.index, self.band), last)
            row = f.mul(bands.index, self.block[0])
            coming = f.at(y, f.mul(row, 4))
            shared = [stage, crow, col, position, values, bias]
            f.call("core", panel, bands.index, stop, *shared, coming, stride)
            rows = f.least(f.sub(f.mul(stop, self.block[0]), row), f.sub(m, row))
            step = i64(4) if self.y_by_rows else stride
            f.call("unpack", stage, f.at(y, f.mul(row, step)), stride, rows, n)
        return f

    def _core(self) -> Function:
        (r, c), (R, T) = self.block, self.tile
        names = ["panel", "first", "last", "stage", "crow", "col", "position", "values", "bias"]
        f = _function("core", [*names, "y", "y_stride"])
        panel, first, last, stage, crow, col, position, values, bias, y, y_stride = f.args
        with f.loop(first, last) as rows:
            start, stop = f.load_index(crow, rows.index), f.load_index(crow, f.add(rows.index, 1))
            with f.loop(0, r, R) as groups:
                strip = f.at(values, f.mul(groups.index, 4 if self.transposed else 4 * c))
                biases = f.at(bias, f.mul(f.add(f.mul(rows.index, r), groups.index), 4))
                sums = []
                for i in range(R):
                    sums += [f.splat(f.load("float", f.at(biases, 4 * i)), self.lanes)] * T
                row = f.add(f.mul(f.sub(rows.index, first), r), groups.index)
                self._prefetch_result(f, y, y_stride, row)
                with f.loop(start, stop, carry=sums) as blocks:
                    here = f.load_index(position, blocks.index)
                    ahead = f.load_index(position, f.add(blocks.index, 1))
                    block = f.at(strip, f.mul(here, 4 * r * c))
                    coming = f.at(strip, f.mul(ahead, 4 * r * c))
                    x = f.at(panel, f.mul(f.load_index(col, blocks.index), 4 * self.columns * c))
                    blocks.carry(self._block(f, x, block, coming, blocks.values))
                target = f.at(stage, f.mul(row, 4 * self.columns))
                for i, value in enumerate(blocks.results):
                    f.store(value, f.at(target, 4 * self.lanes * i), align=4 * self.lanes)
        return f

    def _prefetch_result(self, f: Function, y: Value, stride: Value, row: Value) -> None:
        """Ask for lines of y that the band will be stored to, a share for each group of rows."""
        if not self.y_by_rows:
            return
        a_line = 64 // 4
        shares = max(1, a_line // self.tile[0])  # groups of rows that share the lines
        share = self.columns // shares
        line = f.mul(f.div(row, a_line), 64)
        column = f.mul(f.rem(f.div(row, self.tile[0]), shares), share)
        target = f.at(f.at(y, line), f.mul(column, stride))
        for _ in range(share):
            f.prefetch(target, write=True)
            target = f.at(target, stride)

    def _block(
        self, f: Function, x: Value, block: Value, coming: Value, sums: list[Value]
    ) -> list[Value]:
        """Multiply R rows of one block, all its c columns, with c rows of the panel."""
        r, c = self.block
        step = next(s for s in range(min(c, self.unroll), 0, -1) if c % s == 0)
        if step == c:
            return self._columns(f, x, block, coming, sums, c)
        with f.loop(0, c, step, carry=sums) as inner:
            offset = f.mul(inner.index, 4 * (r if self.transposed else 1))
            x_row = f.at(x, f.mul(inner.index, 4 * self.columns))
            block, coming = f.at(block, offset), f.at(coming, offset)
            inner.carry(self._columns(f, x_row, block, coming, inner.values, step))
        return inner.results

    def _columns(
        self, f: Function, x: Value, block: Value, coming: Value, sums: list[Value], count: int
    ) -> list[Value]:
        """Multiply ``count`` columns of R rows, asking for the same part of the block to come."""
        (r, c), (R, T), sums = self.block, self.tile, list(sums)
        offset = {
            (i, j): 4 * (j * r + i if self.transposed else i * c + j)
            for i in range(R)
            for j in range(count)
        }
        lines = sorted({64 * (byte // 64) for byte in offset.values()})
        for j in range(count):
            for line in lines[j::count]:
                f.prefetch(f.at(coming, line))
            xs = []
            for t in range(T):
                address = f.at(x, 4 * self.lanes * (j * T + t))
                xs.append(f.load(vector(self.lanes), address, align=4 * self.lanes))
            for i in range(R):
                w = f.splat(f.load("float", f.at(block, offset[i, j])), self.lanes)
                for t in range(T):
                    sums[i * T + t] = f.fma(xs[t], w, sums[i * T + t])
        return sums


_KINDS = {
    **dict.fromkeys(["n", "first", "last", "y_stride", "m"], "i64"),
    **dict.fromkeys(["y", "stage"], "ptr noalias"),
}


def _function(name: str, args: list[str]) -> Function:
    return Function(
        name, [(arg, _KINDS.get(arg, "ptr noalias readonly")) for arg in args], internal=True
    )
