"""What the product kernels share: tiles of columns, groups of tiles, and the workers that run them.

A *tile* is as many columns of the dense operand as a kernel multiplies at once. A *group* is as
many tiles as have their panels in the second cache together: a part of the matrix is read from
memory once for all tiles of a group.
"""

from abc import ABC, abstractmethod

from sparsetile.ops.cpu._call import Layout
from sparsetile.ops.cpu._emit import Function, Value, i64
from sparsetile.ops.cpu._number import Numbers
from sparsetile.ops.cpu._pack import Packing, Unpacking

INTEGERS = (
    "tasks column_tiles group n k m x_stride x_batch y_stride y_batch panel_bytes stage_bytes "
)
POINTERS = "x y panels stages values bias bounds "  # strides in bytes

Fields = dict[str, Value]

_STRETCH = (("panel", "ptr"), ("tile", "i64"), ("number", "i64"))
_MULTIPLY = (
    *(("stage", "ptr"), ("own_panels", "ptr"), ("first_row", "i64"), ("last_row", "i64")),
    *(("first_tile", "i64"), ("last_tile", "i64")),
)


class TileKernel(ABC):
    """A kernel that multiplies column tile by column tile.

    Workers draw tasks from a shared counter. ``whole`` packs and multiplies a group of tiles; where
    there are too few of those for all threads, ``pack`` packs a stretch of one tile and ``rows``
    multiplies a part of the rows by all tiles.
    """

    lanes: int
    numbers: Numbers
    vectors: int
    x_by_rows: bool  # x is [n, k] with k contiguous, else [k, n] with n contiguous
    y_by_rows: bool  # the same of y: [n, m], else [m, n]
    activation: str  # what becomes of the sums; nothing where empty

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.lanes * self.vectors

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of a panel or stage."""
        return 4 * self.columns

    @abstractmethod
    def stretches(self, f: Function, a: Fields) -> Value:
        """Count the stretches that a panel is packed in."""

    @abstractmethod
    def pack_stretch(
        self, f: Function, a: Fields, x: Value, n: Value, panel: Value, stretch: Value
    ) -> None:
        """Emit the packing of one stretch of a tile's panel."""

    @abstractmethod
    def row_parts(self, a: Fields) -> Value:
        """Count the units of rows (block rows, chunks) in which ``multiply_rows`` counts."""

    @abstractmethod
    def multiply_rows(
        self,
        f: Function,
        a: Fields,
        stage: Value,
        panels: Value,
        rows: tuple[Value, Value],
        tiles: tuple[Value, Value],
    ) -> None:
        """Emit the product of rows first…last with tiles first…last, whose panels lie in a row."""

    def ends(self) -> list[Function]:
        """Write the functions ``pack_tile`` and ``unpack``."""
        numbers = self.numbers
        pack = Packing(self.lanes, self.vectors, numbers.x, numbers.pairs)
        unpack = Unpacking(self.lanes, self.vectors, numbers.y, numbers.rounds, self.activation)
        return [
            (pack.rows if self.x_by_rows else pack.columns)("pack_tile"),
            (unpack.rows if self.y_by_rows else unpack.columns)("unpack"),
        ]

    def tile(self, f: Function, a: Fields, tile: Value) -> tuple[Value, Value, Value]:
        """Find where a column tile lies: x, y, and how many columns of it exist."""
        per_batch = f.div(f.add(a["n"], self.columns - 1), self.columns)
        batch, column = f.div(tile, per_batch), f.mul(f.rem(tile, per_batch), self.columns)
        x_step = a["x_stride"] if self.x_by_rows else i64(self.numbers.x.size)
        y_step = a["y_stride"] if self.y_by_rows else i64(self.numbers.y.size)
        x = f.at(f.at(a["x"], f.mul(batch, a["x_batch"])), f.mul(column, x_step))
        y = f.at(f.at(a["y"], f.mul(batch, a["y_batch"])), f.mul(column, y_step))
        return x, y, f.least(f.sub(a["n"], column), self.columns)

    def row_step(self, a: Fields) -> Value:
        """Bytes from one row of the result to the next."""
        return i64(self.numbers.y.size) if self.y_by_rows else a["y_stride"]

    def workers(self, layout: Layout) -> list[Function]:
        """Write the functions that threads run, and what they share: it is compiled once."""
        functions = []
        for name, own, body in (
            ("stretch", _STRETCH, self._one_stretch),
            ("multiply", _MULTIPLY, self._some_rows),
            ("whole", (), self._whole),
            ("pack", (), self._pack),
            ("rows", (), self._rows),
        ):
            f, fields = layout.function(name, own)
            body(f, fields)
            functions.append(f)
        return functions

    def _one_stretch(self, f: Function, a: Fields) -> None:
        """Pack one stretch of the panel of a tile."""
        _, panel, tile, stretch = f.args
        x, _, n = self.tile(f, a, tile)
        self.pack_stretch(f, a, x, n, panel, stretch)

    def _some_rows(self, f: Function, a: Fields) -> None:
        """Multiply some rows by some tiles."""
        _, stage, panels, *ends = f.args
        self.multiply_rows(f, a, stage, panels, (ends[0], ends[1]), (ends[2], ends[3]))

    def _whole(self, f: Function, a: Fields) -> None:
        """Task = a group of column tiles: pack them, then multiply all rows."""
        ticket = f.take(a["ticket"])
        stage = f.at(a["stages"], f.mul(f.mul(ticket, a["group"]), a["stage_bytes"]))
        panels = f.at(a["panels"], f.mul(f.mul(ticket, a["group"]), a["panel_bytes"]))
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.mul(task, a["group"])
            last = f.least(f.add(first, a["group"]), a["column_tiles"])
            with f.loop(first, last) as tiles:
                panel = f.at(panels, f.mul(f.sub(tiles.index, first), a["panel_bytes"]))
                with f.loop(0, self.stretches(f, a)) as stretches:
                    f.call("stretch", f.args[0], panel, tiles.index, stretches.index)
            rows = (i64(0), self.row_parts(a))
            f.call("multiply", f.args[0], stage, panels, *rows, first, last)

    def _pack(self, f: Function, a: Fields) -> None:
        """Task = a stretch of the panel of a column tile."""
        with f.tasks(a["task"], a["tasks"]) as task:
            count = self.stretches(f, a)
            tile, stretch = f.div(task, count), f.rem(task, count)
            panel = f.at(a["panels"], f.mul(tile, a["panel_bytes"]))
            f.call("stretch", f.args[0], panel, tile, stretch)

    def _rows(self, f: Function, a: Fields) -> None:
        """Task = a part of the rows, for all column tiles."""
        ticket = f.mul(f.take(a["ticket"]), a["column_tiles"])
        stage = f.at(a["stages"], f.mul(ticket, a["stage_bytes"]))
        with f.tasks(a["task"], a["tasks"]) as task:
            first = f.load_index(a["bounds"], task, bits=64)
            last = f.load_index(a["bounds"], f.add(task, 1), bits=64)
            tiles = (i64(0), a["column_tiles"])
            f.call("multiply", f.args[0], stage, a["panels"], first, last, *tiles)
