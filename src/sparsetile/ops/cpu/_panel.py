"""The block-row panel kernel: R rows of the matrix by T vectors of columns in registers.

A tile of columns of the dense operand is packed to a panel ``[k][T vectors]``; each group of R rows
then runs over the stored blocks of its block row, and its R·T sums leave the registers once, at the
end of the row. Blocks are read where they lie (row-major, in any order), so no copy of the values
is ever made. The same code multiplies by the transpose, reading blocks down their columns.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, module, vector
from sparsetile.ops.cpu._number import Numbers, multiply_add, widen
from sparsetile.ops.cpu._tiles import INTEGERS, POINTERS, Fields, TileKernel

LAYOUT = Layout(
    integers=INTEGERS + "height pack_step block_rows",
    pointers=POINTERS + "crow col position",
)
_BAND = 128  # rows of a stage: it shares the first cache with the panel and the blocks
_SHORT = 4  # rows of the panel that a block meets, up to which the processor foresees none
BLOCKS_AHEAD = 4  # far enough for the second cache, near enough for the first


@dataclass(frozen=True)
class PanelKernel(TileKernel):
    """What distinguishes one compiled panel kernel from another."""

    lanes: int
    numbers: Numbers
    block: tuple[int, int]  # (rows, inner units) of a block as it is multiplied
    tile_rows: int  # R
    vectors: int  # T
    transposed: bool  # blocks are stored (inner, rows)
    x_by_rows: bool
    y_by_rows: bool
    activation: str = ""

    @property
    def unroll(self) -> int:
        """Columns of a block multiplied in one straight run of code, at most."""
        return 16 if self.lanes == 16 else 8  # longer runs make LLVM spill where registers are few

    @property
    def band(self) -> int:
        """Block rows of a stage."""
        return max(1, _BAND // self.block[0])

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage, with the rows that the transposing store reads past its end."""
        return (self.band * self.block[0] + self.lanes) * self.row_bytes

    def ir(self) -> str:
        """Write the module: functions ``whole``, ``pack`` and ``rows``."""
        return module([*self.ends(), self._core(), *self.workers(LAYOUT)])

    def stretches(self, f: Function, a: Fields) -> Value:
        """Count the stretches that a panel is packed in."""
        return f.div(f.add(a["height"], f.sub(a["pack_step"], 1)), a["pack_step"])

    def pack_stretch(
        self, f: Function, a: Fields, x: Value, n: Value, panel: Value, stretch: Value
    ) -> None:
        """Emit the packing of one stretch of a tile's panel."""
        k0 = f.mul(stretch, a["pack_step"])
        k1 = f.least(f.add(k0, a["pack_step"]), a["height"])
        f.call("pack_tile", x, a["x_stride"], n, k0, k1, a["k"], panel)

    def row_parts(self, a: Fields) -> Value:
        """Count the block rows."""
        return a["block_rows"]

    def multiply_rows(
        self,
        f: Function,
        a: Fields,
        stage: Value,
        panels: Value,
        rows: tuple[Value, Value],
        tiles: tuple[Value, Value],
    ) -> None:
        """Emit the product of block rows with tiles: band by band into the stage, then out to y."""
        matrix = [a[name] for name in ("crow", "col", "position", "values", "bias")]
        with f.loop(*rows, self.band) as bands:
            stop = f.least(f.add(bands.index, self.band), rows[1])
            row = f.mul(bands.index, self.block[0])
            count = f.least(f.sub(f.mul(stop, self.block[0]), row), f.sub(a["m"], row))
            with f.loop(*tiles) as loop:
                _, y, n = self.tile(f, a, loop.index)
                panel = f.at(panels, f.mul(f.sub(loop.index, tiles[0]), a["panel_bytes"]))
                target = f.at(y, f.mul(row, self.row_step(a)))
                f.call("core", panel, bands.index, stop, stage, *matrix, target, a["y_stride"])
                f.call("unpack", stage, target, a["y_stride"], count, n)

    # --- the product ---------------------------------------------------------------------------

    def _core(self) -> Function:
        (r, c), R, T, unit = self.block, self.tile_rows, self.vectors, self.numbers.unit_bytes
        f, a = core_function()
        wide = f.scratch(4 * R * self.unroll) if self.numbers.widens else None
        with f.loop(a["first"], a["last"]) as rows:
            start, stop = (
                f.load_index(a["crow"], rows.index),
                f.load_index(a["crow"], f.add(rows.index, 1)),
            )
            with f.loop(0, r, R) as groups:
                strip = f.at(
                    a["values"], f.mul(groups.index, unit if self.transposed else unit * c)
                )
                biases = f.at(a["bias"], f.mul(f.add(f.mul(rows.index, r), groups.index), 4))
                sums = []
                for i in range(R):
                    sums += [f.splat(f.load("float", f.at(biases, 4 * i)), self.lanes)] * T
                row = f.add(f.mul(f.sub(rows.index, a["first"]), r), groups.index)
                self.prefetch_result(f, a["y"], a["y_stride"], row)
                with f.loop(start, stop, carry=sums) as blocks:
                    here = f.load_index(a["position"], blocks.index)
                    ahead = f.load_index(a["position"], f.add(blocks.index, BLOCKS_AHEAD))
                    block = f.at(strip, f.mul(here, unit * r * c))
                    coming = f.at(strip, f.mul(ahead, unit * r * c))
                    x = self._panel_rows(f, a, blocks.index)
                    if c <= _SHORT:
                        following = self._panel_rows(f, a, f.add(blocks.index, BLOCKS_AHEAD))
                        for line in range(0, c * self.row_bytes, 64):
                            f.prefetch(f.at(following, line))
                    blocks.carry(self._block(f, x, block, coming, wide, blocks.values))
                target = f.at(a["stage"], f.mul(row, 4 * self.columns))
                for i, value in enumerate(blocks.results):
                    f.store(value, f.at(target, 4 * self.lanes * i), align=4 * self.lanes)
        return f

    def _panel_rows(self, f: Function, a: Fields, block: Value) -> Value:
        """Find the rows of the panel that a block meets."""
        column = f.load_index(a["col"], block)
        return f.at(a["panel"], f.mul(column, self.row_bytes * self.block[1]))

    def prefetch_result(self, f: Function, y: Value, stride: Value, row: Value) -> None:
        """Ask for lines of y that the band will be stored to, a share for each group of rows."""
        if not self.y_by_rows:
            return
        a_line = 64 // self.numbers.y.size
        shares = max(1, a_line // self.tile_rows)  # groups of rows that share the lines
        share = self.columns // shares
        line = f.mul(f.div(row, a_line), 64)
        column = f.mul(f.rem(f.div(row, self.tile_rows), shares), share)
        target = f.at(f.at(y, line), f.mul(column, stride))
        for _ in range(share):
            f.prefetch(target, level=2)
            target = f.at(target, stride)

    def _block(
        self,
        f: Function,
        x: Value,
        block: Value,
        coming: Value,
        wide: Value | None,
        sums: list[Value],
    ) -> list[Value]:
        """Multiply R rows of one block, all its c columns, with c rows of the panel."""
        r, c = self.block
        step = next(s for s in range(min(c, self.unroll), 0, -1) if c % s == 0)
        if step == c:
            return self._columns(f, x, block, coming, wide, sums, c)
        with f.loop(0, c, step, carry=sums) as inner:
            # else LLVM would try, for long, to count up a register for each row
            unit = self.numbers.unit_bytes * (r if self.transposed else 1)
            offset, of_x = (f.opaque(f.mul(inner.index, size)) for size in (unit, self.row_bytes))
            x_row = f.at(x, of_x)
            block, coming = f.at(block, offset), f.at(coming, offset)
            inner.carry(self._columns(f, x_row, block, coming, wide, inner.values, step))
        return inner.results

    def _columns(
        self,
        f: Function,
        x: Value,
        block: Value,
        coming: Value,
        wide: Value | None,
        sums: list[Value],
        count: int,
    ) -> list[Value]:
        """Multiply ``count`` columns of R rows, asking for the same part of the block to come.

        Blocks in a 16-bit format are first widened to the small buffer ``wide``.
        """
        (r, c), R, T, sums = self.block, self.tile_rows, self.vectors, list(sums)
        unit = self.numbers.unit_bytes
        down, across = (1, r) if self.transposed else (c, 1)  # units between rows, and columns
        offset = {(i, j): unit * (i * down + j * across) for i in range(R) for j in range(count)}
        lines = sorted({64 * (byte // 64) for byte in offset.values()})
        if wide is not None:
            runs, length = (count, R) if self.transposed else (R, count)
            if (R, count) == (r, c):  # the whole block lies in a row
                runs, length = 1, r * c
            between = unit * (across if self.transposed else down)
            for run in range(runs):
                source, target = f.at(block, between * run), f.at(wide, 4 * length * run)
                widen(f, self.numbers.values, source, target, length)
            down, across = (1, R) if self.transposed else (count, 1)
            offset = {(i, j): 4 * (i * down + j * across) for i in range(R) for j in range(count)}
            block = wide
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
                    s = i * T + t
                    sums[s] = multiply_add(f, self.numbers, xs[t], w, sums[s])
        return sums


_CORE = {
    **dict.fromkeys(["panel"], "ptr noalias readonly"),
    **dict.fromkeys(["first", "last"], "i64"),
    "stage": "ptr noalias",
    **dict.fromkeys(["crow", "col", "position", "values", "bias"], "ptr noalias readonly"),
    "y": "ptr noalias",
    "y_stride": "i64",
}


def core_function() -> tuple[Function, Fields]:
    """Start the function that multiplies a band of block rows with one tile of columns."""
    f = Function("core", list(_CORE.items()), internal=True)
    return f, dict(zip(_CORE, f.args, strict=True))
