"""A masked product as a program of the tile machine."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from jaxtyping import Shaped

from sparsetile.machine import (
    Codelet,
    Compute,
    Copy,
    Exchange,
    Memory,
    Program,
    Step,
    Variable,
    even_counts,
)
from sparsetile.plan.masked._load import mask_cycles, multiply_cycles, sum_cycles
from sparsetile.plan.masked._place import Held, Placement, placements
from sparsetile.plan.masked._plan import Indices, MaskedPlan, crossed, kept

_AT_ONCE = 8192  # products whose operands are widened at a time


@dataclass(frozen=True, eq=False)
class Lowered:
    """A program, and how its result lies.

    Attributes:
        program: Its inputs are the left and the right operand, block by block in order, in equal
            shares on all tiles.
        place: Where each block of the result is in the output, `[blocks]`.
    """

    program: Program
    place: Indices


def masked_program(plan: MaskedPlan) -> Program:
    """Lower a plan to supersteps.

    For each pass, tiles are sent the blocks that they multiply, multiply them, are sent partial
    sums of the blocks of the result that they add up, and add them; where every sum is alone on
    a tile it stays there and is cast. Products are computed and added in float32 and rounded once
    to the dtype of partial sums; sums of these are added in float32 and rounded to the result's.

    Args:
        plan: From `plan_dsd` or `plan_dds`.

    Returns:
        The program. Its inputs are the operands as flat arrays, block by block; `run_dsd` and
        `run_dds` arrange tensors so.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.matrix import causal_pattern
        >>> from sparsetile.plan.masked import plan_dds
        >>> plan = plan_dds(preset("bow-ipu"), causal_pattern(64, 64, blocksize=16), 32)
        >>> [step.name for step in masked_program(plan).steps]
        ['Distribution exchange', 'Multiply', 'Reduction or cast']
    """
    return lower(plan).program


@lru_cache(maxsize=8)
def lower(plan: MaskedPlan) -> Lowered:
    """The program of a plan and how its result lies."""
    parts, tiles = placements(plan), plan.machine.tiles
    counts, sizes = plan.counts, plan.sizes
    home = np.zeros(counts[2], np.int64)
    for part in parts:
        home[part.outs] = part.home
    place = np.empty(counts[2], np.int64)
    place[np.argsort(home, kind="stable")] = np.arange(counts[2])
    dtype = np.dtype(plan.dtype)
    left, right = (
        Variable(name, dtype, even_counts(count * size, tiles, size))
        for name, count, size in zip(
            ("left operand", "right operand"), counts[:2], sizes[:2], strict=True
        )
    )
    result = Variable("result", dtype, np.bincount(home, minlength=tiles) * sizes[2])
    steps: list[Step] = []
    for part in parts:
        steps += _Pass(plan, part, place, left, right, result).steps()
    program = Program(
        f"masked product ({plan.kind})", plan.machine, tuple(steps), (left, right), (result,)
    )
    return Lowered(program, place)


class _Pass:
    """The steps of one pass."""

    def __init__(
        self,
        plan: MaskedPlan,
        part: Placement,
        place: Indices,
        left: Variable,
        right: Variable,
        result: Variable,
    ) -> None:
        self.plan = plan
        self.part = part
        self.place = place
        self.home = (left, right)
        self.result = result
        self.load = part.load(plan.machine.tiles)
        dtype, (left_size, right_size, out_size) = np.dtype(plan.dtype), plan.sizes
        self.left = Variable("left blocks", dtype, self.load.left * left_size)
        self.right = Variable("right blocks", dtype, self.load.right * right_size)
        sums = np.dtype(plan.partials)
        self.partial = Variable("partial sums", sums, self.load.partial * out_size)
        self.received = Variable("partial sums to add", sums, self.load.received * out_size)

    def steps(self) -> list[Step]:
        part, (left, right, _) = self.part, self.plan.sizes
        brought = (
            _fetch(self.home[0], self.left, part.left, left),
            _fetch(self.home[1], self.right, part.right, right),
        )
        reduce = self.reduce()
        return [Exchange("Distribution exchange", brought), self.multiply(), *reduce]

    def multiply(self) -> Compute:
        plan, load = self.plan, self.load
        cycles = multiply_cycles(
            load.products, load.right, plan.block, plan.dtype, plan.partials, plan.machine
        )
        reads, writes = (self.left, self.right), (self.partial,)
        return Compute("Multiply", (Codelet("Multiply", self._multiply, cycles, reads, writes),))

    def _multiply(self, memory: Memory) -> None:
        (bm, bk, bn), part = self.plan.block, self.part
        left = memory[self.left].reshape(-1, bm, bk)
        if self.plan.transposed:
            right = memory[self.right].reshape(-1, bn, bk).transpose(0, 2, 1)
        else:
            right = memory[self.right].reshape(-1, bk, bn)
        sums = np.zeros((len(part.partial.block), bm, bn), np.float32)
        for at in range(0, len(part.tile), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            a = left[part.left.use[some]].astype(np.float32)
            b = right[part.right.use[some]].astype(np.float32)
            product = np.matmul(a, b)
            # Products of one sum follow each other, so a chunk meets each sum in one run.
            begin = np.flatnonzero(np.diff(part.partial.use[some], prepend=-1))
            sums[part.partial.use[some][begin]] += np.add.reduceat(product, begin)
        with np.errstate(over="ignore"):  # too large for half is infinite, as on tiles
            memory[self.partial][:] = sums.reshape(-1)

    def reduce(self) -> list[Step]:
        plan, part, load, size = self.plan, self.part, self.load, self.plan.sizes[2]
        at = np.searchsorted(part.outs, part.partial.block)
        home, place = part.home[at], self.place[part.partial.block]
        away = np.flatnonzero(home != part.partial.tile)
        away = away[np.lexsort((away, place[away]))]  # by place is by tile
        steps: list[Step] = []
        if len(away):
            copy = _copy(self.partial, self.received, away, np.arange(len(away)), size)
            steps.append(Exchange("Exchange to reduce", (copy,)))
        source = np.arange(len(place))
        source[away] = len(place) + np.arange(len(away))
        order = np.lexsort((part.partial.tile, place))
        source, place = source[order], place[order]
        begin = np.flatnonzero(np.diff(place, prepend=-1))
        empty = self.place[part.outs]

        def added(memory: Memory) -> None:
            pool = np.concatenate((memory[self.partial], memory[self.received])).reshape(-1, size)
            result = memory[self.result].reshape(-1, size)
            result[empty] = 0
            if len(begin):
                with np.errstate(over="ignore"):
                    result[place[begin]] = np.add.reduceat(pool[source].astype(np.float32), begin)

        cycles, reads = sum_cycles(load, plan), (self.partial, self.received)
        codelets = [Codelet("Reduction or cast", added, cycles, reads, (self.result,))]
        if plan.sub_block != "none":
            codelets.append(self.mask())
        return [*steps, Compute("Reduction or cast", tuple(codelets))]

    def mask(self) -> Codelet:
        plan, part = self.plan, self.part
        (bm, _, bn) = plan.block
        row, column = plan.stored.row[part.outs], plan.stored.column[part.outs]
        diagonal = np.flatnonzero(crossed(row, column, (bm, bn)))
        keep = kept(row[diagonal] * bm, column[diagonal] * bn, (bm, bn), plan.sub_block)
        place = self.place[part.outs[diagonal]]

        def masked(memory: Memory) -> None:
            result = memory[self.result].reshape(-1, bm, bn)
            result[place] = np.where(keep, result[place], 0)

        blocks = np.bincount(part.home[diagonal], minlength=plan.machine.tiles)
        cycles = mask_cycles(blocks, bm * bn, plan.dtype, plan.machine)
        return Codelet("Sub-block mask", masked, cycles, (self.result,), (self.result,))


def _fetch(home: Variable, target: Variable, held: Held, size: int) -> Copy:
    return _copy(home, target, held.block, np.arange(len(held.block)), size)


def _copy(source: Variable, target: Variable, read: Indices, write: Indices, size: int) -> Copy:
    return Copy(source, target, read * size, write * size, np.full(len(read), size))


def blocks_of(
    matrix: Shaped[np.ndarray, "rows columns"], block: tuple[int, int]
) -> npt.NDArray[np.generic]:
    """A dense matrix block by block, flat."""
    (rows, columns), (r, c) = matrix.shape, block
    cut = matrix.reshape(rows // r, r, columns // c, c)
    return cut.transpose(0, 2, 1, 3).reshape(-1)


def matrix_of(
    blocks: Shaped[np.ndarray, "blocks area"], shape: tuple[int, int], block: tuple[int, int]
) -> Shaped[np.ndarray, "rows columns"]:
    """The dense matrix that has these blocks."""
    (rows, columns), (r, c) = shape, block
    cut = blocks.reshape(rows // r, columns // c, r, c)
    return cut.transpose(0, 2, 1, 3).reshape(rows, columns)
