"""A dense product executed on the tiles."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32, Shaped
from torch import Tensor

from sparsetile.machine import (
    Codelet,
    Compute,
    Exchange,
    MachineSpec,
    Memory,
    Profile,
    Program,
    Step,
    Variable,
    load_machine,
    run,
)
from sparsetile.matrix._check import check_dense
from sparsetile.plan._check import check_share
from sparsetile.plan.dense._partition import (
    DensePartition,
    check_product,
    multiply_cycles,
    partition_dense,
)
from sparsetile.plan.dense._parts import Parts
from sparsetile.plan.dynamic._vertex_sum import cast, reduce

_AT_ONCE = 64  # tiles whose operands are widened at a time


@dataclass(frozen=True, eq=False)
class DenseSteps:
    """The variables and supersteps of a dense product A·B.

    B is kept as its transpose, n×k: the matrix units take both operands along the inner dimension.

    Attributes:
        cut: The partition.
    """

    cut: DensePartition

    @cached_property
    def a(self) -> Parts:
        """How A lies."""
        cut = self.cut
        tiles = cut.index.reshape(-1, cut.z)
        return self._operand((cut.m, cut.k), (cut.x_size, cut.y_size), tiles)

    @cached_property
    def b(self) -> Parts:
        """How the transpose of B lies."""
        cut = self.cut
        tiles = cut.index.transpose(2, 1, 0).reshape(-1, cut.x)
        return self._operand((cut.n, cut.k), (cut.z_size, cut.y_size), tiles)

    @cached_property
    def result(self) -> Parts:
        """How the result lies, in whole blocks."""
        cut = self.cut
        tiles = cut.index.transpose(0, 2, 1).reshape(-1, cut.y)
        size, area = (cut.x_size, cut.z_size), cut.block[0] * cut.block[1]
        # Two half numbers are moved at once.
        grain = area * 2 if area % 2 and cut.partials == "float16" else area
        return Parts(cut.machine, (cut.m, cut.n), size, cut.block, tiles, grain)

    @cached_property
    def a_whole(self) -> Variable:
        """The part of A that a tile multiplies."""
        return self.a.whole("part of the first operand", self.cut.dtype)

    @cached_property
    def b_whole(self) -> Variable:
        """The part of B that a tile multiplies."""
        return self.b.whole("part of the second operand", self.cut.dtype)

    @cached_property
    def partials(self) -> Variable:
        """Partial sums."""
        return self.result.whole("partial sums", self.cut.partials)

    @cached_property
    def gathered(self) -> Variable:
        """Partial sums of the same results; nothing has to move if there is only one."""
        if self.cut.y == 1:
            return self.partials
        return self.result.gathered("partial sums to add", self.cut.partials)

    def multiply(self) -> Compute:
        """The product of the parts on each tile."""
        cut = self.cut
        cycles = np.zeros(cut.machine.tiles, np.int64)
        rows, inner, columns = (
            np.minimum(size, whole - np.arange(parts) * size)
            for whole, size, parts in (
                (cut.m, cut.x_size, cut.x),
                (cut.k, cut.y_size, cut.y),
                (cut.n, cut.z_size, cut.z),
            )
        )
        cycles[cut.index] = np.ceil(
            multiply_cycles(
                rows[:, None, None],
                inner[:, None],
                columns,
                cut.dtype,
                cut.partials,
                cut.machine,
            )
        )
        reads, writes = (self.a_whole, self.b_whole), (self.partials,)
        return Compute("Multiply", (Codelet("Multiply", self._multiply, cycles, reads, writes),))

    def _multiply(self, memory: Memory) -> None:
        cut = self.cut
        a = memory[self.a_whole].reshape(cut.tiles, cut.x_size, cut.y_size)
        b = memory[self.b_whole].reshape(cut.tiles, cut.z_size, cut.y_size)
        sums = memory[self.partials].reshape(cut.tiles, -1)
        r, c = cut.block
        for at in range(0, cut.tiles, _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            product = a[some].astype(np.float32) @ b[some].astype(np.float32).transpose(0, 2, 1)
            blocks = product.reshape(-1, cut.x_size // r, r, cut.z_size // c, c)
            with np.errstate(over="ignore"):  # too large for half is infinite, as on tiles
                sums[some] = blocks.transpose(0, 1, 3, 2, 4).reshape(len(product), -1)

    def bring_together(self) -> tuple[Exchange, ...]:
        """The partial sums of the same results come together."""
        if self.cut.y == 1:
            return ()
        copy = self.result.bring_together(self.partials, self.gathered)
        return (Exchange("Exchange to reduce", (copy,)),)

    def sums(self, memory: Memory) -> Iterator[tuple[int, int, Float32[np.ndarray, "parts n"]]]:
        """Each share's begin and end in its part, and its results for all parts."""
        gathered, parts = memory[self.gathered], self.result
        for begin, end, where in parts.shares(self.gathered, parts.sharers):
            partial = gathered[where].reshape(len(where), parts.sharers, end - begin)
            yield begin, end, partial.sum(1, dtype=np.float32)

    def add_up(self, home: Variable) -> Compute:
        """The partial sums are added up and cast."""
        cut = self.cut

        def added(memory: Memory) -> None:
            places = self.result.shares(home)
            for (_, _, sums), (_, _, where) in zip(self.sums(memory), places, strict=True):
                with np.errstate(over="ignore"):
                    memory[home][where] = sums

        cycles = self.add_cycles(home.counts)
        codelet = Codelet("Reduction or cast", added, cycles, (self.gathered,), (home,))
        return Compute("Reduction or cast" if cut.y > 1 else "Cast", (codelet,))

    def add_cycles(self, outputs: Shaped[np.ndarray, " tiles"]) -> Shaped[np.ndarray, " tiles"]:
        """Cycles of adding up what is brought together."""
        cut, some = self.cut, outputs > 0
        workers = cut.machine.workers
        if cut.y > 1:
            cycles = reduce(outputs, cut.y, cut.partials, cut.dtype, workers)
        elif cut.partials != cut.dtype:
            cycles = cast(outputs, cut.partials, cut.dtype, workers)
        else:
            cycles = np.zeros(outputs.shape)
        return np.ceil(np.where(some, cycles, 0)).astype(np.int64)

    def _operand(
        self,
        shape: tuple[int, int],
        size: tuple[int, int],
        tiles: Shaped[np.ndarray, "parts sharers"],
    ) -> Parts:
        grain = 2 if self.cut.dtype == "float16" else 1
        return Parts(self.cut.machine, shape, size, (1, 1), tiles, grain)


def run_dense(
    machine: MachineSpec | str | Path,
    a: Shaped[Tensor, "m k"],
    b: Shaped[Tensor, "k2 n"],
    *,
    partials: str | None = None,
    memory: float = 1.0,
    cut: DensePartition | None = None,
) -> tuple[Shaped[Tensor, "m n"], Profile]:
    """Execute a dense product on a tile machine.

    This is what a sparse product is to beat, and what takes its place where nearly all is
    stored: pass the dense weight as `a` for the forward product, its transpose for the gradient
    of the input. Each operand begins on the tiles that use it, in equal shares. A product that
    does not fit in memory at once is computed some columns at a time.

    Args:
        machine: The machine, its name, or the path of a file that describes it.
        a: The left operand, float16 or float32.
        b: The right operand, of the same dtype.
        partials: Dtype of partial sums, `"float16"` or `"float32"`; that of the operands if None.
        memory: Share of a tile's memory that the planner may use.
        cut: How to cut the product, or so many of its columns; the cheapest way if None.

    Returns:
        The product in the operands' dtype, and what it took.

    Raises:
        TypeError: If an operand is no tensor, or the machine is none.
        ValueError: If operands do not fit each other, the machine or the partition.
        OutOfTileMemory: If the program needs more memory than there is.

    Examples:
        >>> from sparsetile.machine import preset
        >>> y, profile = run_dense(preset("bow-ipu"), torch.ones(8, 6), torch.ones(6, 4))
        >>> y[0, 0].item(), profile.cycles > 0
        (6.0, True)
    """
    spec, dtype = load_machine(machine), check_operands("run_dense", {"a": a, "b": b})
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"run_dense was given {list(a.shape)} and {list(b.shape)}; the columns of the first "
            f"must be as many as the rows of the second: transpose one, or check their order"
        )
    (m, k), n = a.shape, b.shape[1]
    if cut is None:
        cut = partition_columns(spec, m, k, n, dtype, partials=partials, memory=memory)
    if (cut.machine, cut.m, cut.k, cut.dtype) != (spec, m, k, dtype) or cut.n > n:
        raise ValueError(
            f"run_dense of m={m}, k={k}, n={n} in {dtype} was given a partition for m={cut.m}, "
            f"k={cut.k}, n={cut.n} in {cut.dtype} on {cut.machine.name!r}; all must agree, but n "
            f"may be less: make one with partition_dense, or leave it out"
        )
    steps = DenseSteps(cut)
    a_home = steps.a.home("first operand", dtype)
    data = {a_home: steps.a.arrange(a.numpy(force=True), a_home)}
    brings = [steps.a.share_out(a_home, steps.a_whole)]
    body: list[Step] = []
    results = []
    columns = b.numpy(force=True).T
    for at in range(0, n, cut.n):
        b_home = steps.b.home(f"second operand, from column {at}", dtype)
        results.append(steps.result.home(f"result, from column {at}", dtype))
        full = np.zeros((cut.n, k), columns.dtype)
        full[: n - at] = columns[at : at + cut.n]
        data[b_home] = steps.b.arrange(full, b_home)
        brings.append(steps.b.share_out(b_home, steps.b_whole))
        body.append(Exchange("Distribution exchange", tuple(brings)))
        brings = []  # the first operand stays
        body += [steps.multiply(), *steps.bring_together(), steps.add_up(results[-1])]
    program = Program("dense product", spec, tuple(body), tuple(data), tuple(results))
    done = run(program, data)
    parts = [steps.result.collect(done.values[result], result) for result in results]
    return torch.from_numpy(np.concatenate(parts, 1)[:, :n]), done.profile


def partition_columns(
    machine: MachineSpec,
    m: int,
    k: int,
    n: int,
    dtype: str,
    *,
    partials: str | None = None,
    memory: float = 1.0,
) -> DensePartition:
    """Cut a dense product over tiles, or as many of its columns as fit in memory at a time.

    Args:
        machine: The machine.
        m: Rows of A, 1 or more.
        k: Columns of A and rows of B, 1 or more.
        n: Columns of B, 1 or more.
        dtype: `"float16"` or `"float32"`, of operands and result.
        partials: The same, of partial sums; that of the operands if None.
        memory: Share of a tile's memory that the product may take.

    Returns:
        A partition for `n` columns, or for a half, a quarter and so on of them.

    Raises:
        ValueError: If a size or dtype is not possible, or not even one column fits.

    Examples:
        >>> from sparsetile.machine import preset
        >>> partition_columns(preset("bow-ipu"), 4096, 4096, 4096, "float16").n
        2048
    """
    check_share("a dense product", "memory", memory)
    check_product(m, k, n, dtype, dtype if partials is None else partials, (1, 1))
    number, columns = np.dtype(dtype).itemsize, n
    while True:
        # Of the columns that wait, operand and result take memory all the same.
        waiting = -(-(m + k) * (n - columns) * number // machine.tiles)
        try:
            return partition_dense(
                machine, m, k, columns, dtype, partials=partials, memory=memory, reserved=waiting
            )
        except ValueError as error:
            if columns <= 1:
                raise ValueError(
                    f"a dense product m={m}, k={k}, n={n} does not fit, not even a column at a "
                    f"time, the others waiting: {error}"
                ) from error
            columns = -(-columns // 2)


def check_operands(asked: str, operands: Mapping[str, Tensor]) -> str:
    """The dtype of two matrices; an error unless both are of one that tiles multiply."""
    for name, operand in operands.items():
        check_dense(name, operand)
    a, b = operands.values()
    if a.dtype != b.dtype or a.dtype not in (torch.float16, torch.float32):
        raise ValueError(
            f"{asked} was given {a.dtype} and {b.dtype}; tiles multiply float16 or float32, both "
            f"operands alike: convert them with .half() or .float()"
        )
    return str(a.dtype).removeprefix("torch.")
