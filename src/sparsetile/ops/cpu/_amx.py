"""The panel kernel on matrix tiles: bfloat16 blocks of 8 rows and more, where there is AMX.

A tile register holds 16 rows of 64 bytes. One instruction multiplies a tile of the matrix (rows of
a block as they are stored, numbers of a pair side by side) by a tile of the panel (rows of pairs,
16 columns) and adds to a tile of sums in float32. The panel, the stage and their ends are those of
the panel kernel.
"""

from dataclasses import dataclass

from sparsetile.ops.cpu._emit import Function, Value, i64
from sparsetile.ops.cpu._panel import BLOCKS_AHEAD, PanelKernel, core_function

MOST_VECTORS = 6  # tiles of sums; the other two registers hold the operands
Shape = tuple[int, int]

_A, _B = 6, 7  # registers of the operands
_MOST = 16  # rows of a tile, and 32-bit units of its rows
_UNROLLED = 4  # tiles along a block that are multiplied without a loop


@dataclass(frozen=True)
class AmxKernel(PanelKernel):
    """What distinguishes one compiled kernel from another; a tile has ``tile_rows`` rows."""

    @property
    def depth(self) -> int:
        """Units of the sum that one instruction multiplies."""
        return max(d for d in range(1, _MOST + 1) if self.block[1] % d == 0)

    def _core(self) -> Function:
        (r, c), R = self.block, self.tile_rows
        f, a = core_function()
        row_bytes = self.row_bytes
        configure(f, sums=(R, 64), a=(R, 4 * self.depth), b=(self.depth, 64))
        with f.loop(a["first"], a["last"]) as rows:
            start = f.load_index(a["crow"], rows.index)
            stop = f.load_index(a["crow"], f.add(rows.index, 1))
            with f.loop(0, r, R) as groups:
                strip = f.at(a["values"], f.mul(groups.index, 4 * c))
                row = f.add(f.mul(f.sub(rows.index, a["first"]), r), groups.index)
                target = f.at(a["stage"], f.mul(row, row_bytes))
                number = f.add(f.mul(rows.index, r), groups.index)
                self._write_biases(f, f.at(a["bias"], f.mul(number, 4)), target)
                self.prefetch_result(f, a["y"], a["y_stride"], row)
                for t in range(self.vectors):
                    tile(f, "tileloadd64", t, f.at(target, 64 * t), row_bytes)
                with f.loop(start, stop) as blocks:
                    here = f.load_index(a["position"], blocks.index)
                    ahead = f.load_index(a["position"], f.add(blocks.index, BLOCKS_AHEAD))
                    coming = f.at(strip, f.mul(ahead, 4 * r * c))
                    for line in range(0, 4 * R * c, 64):
                        f.prefetch(f.at(coming, line))
                    column = f.mul(f.load_index(a["col"], blocks.index), row_bytes * c)
                    block = f.at(strip, f.mul(here, 4 * r * c))
                    self._multiply(f, f.at(a["panel"], column), block)
                for t in range(self.vectors):
                    tile(f, "tilestored64", t, f.at(target, 64 * t), row_bytes)
        f.intrinsic("llvm.x86.tilerelease", "void")
        return f

    def _write_biases(self, f: Function, bias: Value, target: Value) -> None:
        for i in range(self.tile_rows):
            wide = f.splat(f.load("float", f.at(bias, 4 * i)), self.lanes)
            for t in range(self.vectors):
                f.store(wide, f.at(target, self.row_bytes * i + 64 * t), align=64)

    def _multiply(self, f: Function, x: Value, block: Value) -> None:
        """Multiply the rows of one block that a tile has with their rows of the panel."""
        c, depth = self.block[1], self.depth

        def step(x: Value, block: Value) -> None:
            tile(f, "tileloadd64", _A, block, 4 * c)
            for t in range(self.vectors):
                tile(f, "tileloadd64", _B, f.at(x, 64 * t), self.row_bytes)
                multiply_tiles(f, t, _A, _B)

        if c <= _UNROLLED * depth:
            for k in range(0, c, depth):
                step(f.at(x, self.row_bytes * k), f.at(block, 4 * k))
            return
        with f.loop(0, c, depth) as loop:
            step(f.at(x, f.mul(loop.index, self.row_bytes)), f.at(block, f.mul(loop.index, 4)))


def tile(f: Function, name: str, register: int, pointer: Value, stride: int) -> None:
    """Load or store a tile whose rows lie ``stride`` bytes apart."""
    f.intrinsic(f"llvm.x86.{name}", "void", Value(str(register), "i8"), pointer, i64(stride))


def multiply_tiles(f: Function, total: int, a: int, b: int) -> None:
    """Add the product of two tile registers to a third."""
    registers = [Value(str(register), "i8") for register in (total, a, b)]
    f.intrinsic("llvm.x86.tdpbf16ps", "void", *registers)


def configure(f: Function, *, sums: Shape, a: Shape, b: Shape) -> None:
    """Set the shapes of the tile registers, rows and bytes of a row: six of sums, a, and b."""
    config = bytearray(64)
    config[0] = 1  # the palette
    for register, (height, row_bytes) in enumerate([sums] * MOST_VECTORS + [a, b]):
        config[16 + 2 * register : 18 + 2 * register] = row_bytes.to_bytes(2, "little")
        config[48 + register] = height
    memory = f.scratch(64)
    for at in range(0, 64, 8):
        word = int.from_bytes(config[at : at + 8], "little")
        f.store(i64(word), f.at(memory, at), align=8)
    f.intrinsic("llvm.x86.ldtilecfg", "void", memory)
