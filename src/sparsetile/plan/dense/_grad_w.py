"""The dense gradient of a sparse weight, in so many passes that it fits in memory.

Methods that regrow weights where the gradient is largest need it where nothing is stored as well.
It is as large as the dense weight, so it is computed piece by piece, and each piece may be pooled
to one score for each block before the next is begun, as Graphcore's sparse training examples did.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Int64, Shaped
from torch import Tensor

from sparsetile.machine import (
    Codelet,
    Compute,
    Exchange,
    Memory,
    Profile,
    Program,
    Step,
    Variable,
    run,
)
from sparsetile.plan._check import check_share
from sparsetile.plan.dense._partition import DensePartition, partition_dense
from sparsetile.plan.dense._parts import Parts
from sparsetile.plan.dense._program import DenseSteps, check_operands
from sparsetile.plan.dense._top import Candidates, best_of_all
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._spread import Spread

POOLINGS = ("none", "sum", "avg", "max")


def dense_grad_w_serial_splits(
    plan: DynamicPlan, *, memory: float | None = None
) -> tuple[int, int, int]:
    """Into how many passes the dense gradient of the weight has to be cut.

    Args:
        plan: The plan of the sparse products.
        memory: Share of a tile's memory that a pass may take; the plan's own if None.

    Returns:
        Splits of the groups (always 1), of the columns of W (the layer's inputs) and of its rows
        (the outputs): the fewest passes that fit, and of these the cheapest. A pass has whole
        blocks, and all passes are of one size.

    Raises:
        ValueError: If even the smallest pass does not fit.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan.dynamic._plan import DynamicOptions
        >>> from dataclasses import replace
        >>> eight = replace(preset("bow-ipu"), tiles=8)
        >>> plan = DynamicPlan(
        ...     machine=eight, m=64, k=64, n=16, blocksize=(4, 4), kernel_block=(4, 4),
        ...     max_blocks=64, dtype="float16", options=DynamicOptions(), x=2, y=2, z=2, x_size=32,
        ...     y_size=32, z_size=8, methods=("ForwardAMPBlock", "TransposeAMPBlock", "GradWBlock"),
        ...     exchange_buckets=True, bucket_values=256, bucket_meta=200, bucket_meta_grad_a=0,
        ... )
        >>> dense_grad_w_serial_splits(plan)
        (1, 1, 1)
        >>> dense_grad_w_serial_splits(plan, memory=0.005)
        (1, 1, 2)
    """
    inputs, outputs, _ = _passes(plan, memory)
    return 1, inputs, outputs


def run_dense_grad_w(
    plan: DynamicPlan,
    dy: Shaped[Tensor, "m n"],
    x: Shaped[Tensor, "k n2"],
    *,
    pooling: str = "none",
    memory: float | None = None,
) -> tuple[Shaped[Tensor, "rows columns"], Profile]:
    """Compute the dense gradient of the weight on the tiles, `dy @ x.T`, or scores of its blocks.

    Sums are kept in float32. The operands lie as the sparse products of the plan leave them.

    Args:
        plan: The plan of the sparse products.
        dy: Gradient of the result, in the plan's dtype.
        x: Dense operand of the forward product, the same.
        pooling: `"none"` for the gradient itself; `"sum"`, `"avg"` or `"max"` of the magnitudes of
            each block for scores.
        memory: Share of a tile's memory that a pass may take; the plan's own if None.

    Returns:
        The gradient m×k in the plan's dtype, or the scores of all blocks in float32; and what it
        took.

    Raises:
        ValueError: If operands do not fit the plan, the pooling is unknown, or nothing fits.
        OutOfTileMemory: If the program needs more memory than there is.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan.dynamic._plan import DynamicOptions
        >>> plan = DynamicPlan(
        ...     machine=preset("bow-ipu"), m=8, k=8, n=4, blocksize=(4, 4), kernel_block=(4, 4),
        ...     max_blocks=2, dtype="float32", options=DynamicOptions(), x=2, y=2, z=1, x_size=4,
        ...     y_size=4, z_size=4, methods=("ForwardAMPBlock", "TransposeAMPBlock", "GradWBlock"),
        ...     exchange_buckets=True, bucket_values=32, bucket_meta=200, bucket_meta_grad_a=0,
        ... )
        >>> scores, _ = run_dense_grad_w(plan, torch.ones(8, 4), torch.ones(8, 4), pooling="sum")
        >>> scores.tolist()
        [[64.0, 64.0], [64.0, 64.0]]
    """
    passes = _Passes(plan, pooling, memory)
    data = passes.data(dy, x)
    outputs = tuple(home for row in passes.homes for home in row)
    program = Program("dense gradient", plan.machine, passes.steps(), tuple(data), outputs)
    done = run(program, data)
    rows = [
        np.concatenate([passes.placed.collect(done.values[home], home) for home in row], 1)
        for row in passes.homes
    ]
    return torch.from_numpy(np.concatenate(rows)), done.profile


def run_top_blocks(
    plan: DynamicPlan,
    dy: Shaped[Tensor, "m n"],
    x: Shaped[Tensor, "k n2"],
    count: int,
    *,
    pooling: str = "sum",
    memory: float | None = None,
) -> tuple[Int64[Tensor, " count"], Profile]:
    """Find on the tiles the blocks of the weight whose dense gradient is largest.

    Every tile keeps the best of its own scores; tiles then send each other the best that they
    have seen, several to one, until one tile has the best of all.

    Args:
        plan: The plan of the sparse products.
        dy: Gradient of the result, in the plan's dtype.
        x: Dense operand of the forward product, the same.
        count: Blocks wanted, at most as many as W has.
        pooling: `"sum"`, `"avg"` or `"max"` of the magnitudes of a block.
        memory: Share of a tile's memory that a pass may take; the plan's own if None.

    Returns:
        The blocks, counted row by row, best first; of equal ones the first ones. And what it took.

    Raises:
        ValueError: If operands do not fit the plan or are not finite, the pooling or count is
            impossible, or nothing fits.
        OutOfTileMemory: If the program needs more memory than there is.

    Examples:
        >>> from sparsetile.machine import preset
        >>> from sparsetile.plan.dynamic._plan import DynamicOptions
        >>> plan = DynamicPlan(
        ...     machine=preset("bow-ipu"), m=8, k=8, n=4, blocksize=(4, 4), kernel_block=(4, 4),
        ...     max_blocks=2, dtype="float32", options=DynamicOptions(), x=2, y=2, z=1, x_size=4,
        ...     y_size=4, z_size=4, methods=("ForwardAMPBlock", "TransposeAMPBlock", "GradWBlock"),
        ...     exchange_buckets=True, bucket_values=32, bucket_meta=200, bucket_meta_grad_a=0,
        ... )
        >>> grad, x = torch.arange(32.0).reshape(8, 4), torch.ones(8, 4)
        >>> blocks, _ = run_top_blocks(plan, grad, x, 3)
        >>> blocks.tolist()
        [2, 3, 0]
    """
    r, c = plan.blocksize
    blocks = (plan.m // r) * (plan.k // c)
    if pooling == "none":
        raise ValueError(
            "run_top_blocks was asked for pooling='none'; blocks are compared by one score each: "
            "pass pooling='sum', 'avg' or 'max'"
        )
    if not 1 <= count <= blocks:
        raise ValueError(
            f"run_top_blocks was asked for {count} blocks; there are {blocks} of {r}×{c}: "
            f"ask for 1 to {blocks}"
        )
    passes = _Passes(plan, pooling, memory)
    data = passes.data(dy, x)
    if not all(bool(operand.isfinite().all()) for operand in (dy, x)):
        raise ValueError(
            "run_top_blocks was given operands with NaN or infinity; gradients of finite ones can "
            "be put in order: skip this step, or clean the operands as with torch.nan_to_num"
        )
    best, steps = best_of_all(plan.machine, passes.candidates(), count)
    body = (*passes.steps(), *steps)
    program = Program("blocks of the largest gradient", plan.machine, body, tuple(data), (best,))
    done = run(program, data)
    return torch.from_numpy(done.values[best].astype(np.int64)), done.profile


@dataclass(frozen=True, eq=False)
class _Passes:
    """The passes of one gradient: `splits` rows by columns, all of one size."""

    plan: DynamicPlan
    pooling: str
    memory: float | None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"the dense gradient was asked for with pooling {self.pooling!r}; it can be "
                f"pooled by {', '.join(POOLINGS)}: choose one of these"
            )

    @cached_property
    def _cut(self) -> tuple[int, int, DensePartition]:
        return _passes(self.plan, self.memory)

    @cached_property
    def product(self) -> DenseSteps:
        """The steps of one pass."""
        return DenseSteps(self._cut[2])

    @cached_property
    def placed(self) -> Parts:
        """How the results of a pass lie: the gradient, or a score for each block."""
        result, cut = self.product.result, self._cut[2]
        if self.pooling == "none":
            return result
        (r, c), (high, wide) = cut.block, result.size
        shape, size = (cut.m // r, cut.n // c), (high // r, wide // c)
        return Parts(cut.machine, shape, size, (1, 1), result.tiles, result.grain // (r * c))

    @cached_property
    def homes(self) -> list[list[Variable]]:
        """Results of each pass, rows of passes outermost."""
        inputs, outputs, _ = self._cut
        dtype = self.plan.dtype if self.pooling == "none" else "float32"
        names = "gradient" if self.pooling == "none" else "scores"
        return [
            [self.placed.home(f"{names} ({i}, {j})", dtype) for j in range(inputs)]
            for i in range(outputs)
        ]

    @cached_property
    def _operands(self) -> tuple[tuple[Spread, Variable], tuple[Spread, Variable]]:
        of_dy, of_x = Spread(self.plan, "x"), Spread(self.plan, "y")
        dtype = self.plan.dtype
        return (of_dy, of_dy.variable("dy", dtype)), (of_x, of_x.variable("x", dtype))

    def data(self, dy: Tensor, x: Tensor) -> dict[Variable, np.ndarray]:
        """The operands as they lie on the tiles."""
        plan = self.plan
        dtype = check_operands("the dense gradient", {"dy": dy, "x": x})
        if (*dy.shape, *x.shape, dtype) != (plan.m, plan.n, plan.k, plan.n, plan.dtype):
            raise ValueError(
                f"the dense gradient was given dy {list(dy.shape)} and x {list(x.shape)} in "
                f"{dtype}; the plan takes {[plan.m, plan.n]} and {[plan.k, plan.n]} in "
                f"{plan.dtype}: pass such operands, or plan for these"
            )
        matrices = (dy.numpy(force=True), x.numpy(force=True))
        return {
            variable: spread.arrange(matrix)
            for (spread, variable), matrix in zip(self._operands, matrices, strict=True)
        }

    def steps(self) -> tuple[Step, ...]:
        """All passes."""
        inputs, outputs, cut = self._cut
        product = self.product
        (of_dy, dy), (of_x, x) = self._operands
        dy_at, x_at = _places(of_dy, self.plan.m), _places(of_x, self.plan.k)
        steps: list[Step] = list(self._zero_edges())
        for i in range(outputs):
            rows = dy_at[i * cut.m : (i + 1) * cut.m]
            brings = [product.a.deliver(dy, rows, product.a_whole)]
            for j in range(inputs):
                columns = x_at[j * cut.n : (j + 1) * cut.n]
                brings.append(product.b.deliver(x, columns, product.b_whole))
                steps.append(Exchange("Distribution exchange", tuple(brings)))
                brings = []  # the rows stay while the columns change
                steps += [product.multiply(), *product.bring_together()]
                home = self.homes[i][j]
                pooled = self.pooling != "none"
                steps.append(self._pool(home) if pooled else product.add_up(home))
        return tuple(steps)

    def _zero_edges(self) -> tuple[Step, ...]:
        """What fills up short parts is zero; it stays so in all passes."""
        product = self.product
        codelets = []
        for parts, whole in ((product.a, product.a_whole), (product.b, product.b_whole)):
            missing = parts.missing()
            if missing.any():
                vector = 8 // whole.dtype.itemsize
                cycles = np.where(missing > 0, 20 + -(-missing // vector), 0)

                def zero(memory: Memory, whole: Variable = whole) -> None:
                    memory[whole][:] = 0

                codelets.append(Codelet("Zero the edges", zero, cycles, (), (whole,)))
        return (Compute("Zero the edges", tuple(codelets)),) if codelets else ()

    def _pool(self, home: Variable) -> Compute:
        product = self.product
        area = self._cut[2].block[0] * self._cut[2].block[1]

        def pooled(memory: Memory) -> None:
            places = self.placed.shares(home)
            for (_, _, sums), (_, _, where) in zip(product.sums(memory), places, strict=True):
                blocks = np.abs(sums).reshape(len(sums), -1, area)
                memory[home][where] = _pooled(blocks, self.pooling)

        # A vector of two magnitudes is taken and folded in three cycles, a score stored in four.
        each = -(-area // 2) * 3 + 4
        counts = home.counts
        cycles = product.add_cycles(counts * area) + np.where(counts > 0, 30 + counts * each, 0)
        codelet = Codelet("Reduce and pool", pooled, cycles, (product.gathered,), (home,))
        return Compute("Reduce and pool", (codelet,))

    def candidates(self) -> tuple[Candidates, ...]:
        """The scores of all passes, with the block of each."""
        inputs, outputs, cut = self._cut
        r, c = cut.block
        rows, columns = cut.m // r, cut.n // c
        numbers = np.arange(rows * outputs * columns * inputs).reshape(rows * outputs, -1)
        return tuple(
            Candidates(
                home,
                self.placed.arrange(
                    numbers[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns] + 1, home
                )
                - 1,
            )
            for i, row in enumerate(self.homes)
            for j, home in enumerate(row)
        )


def _pooled(
    blocks: Float32[np.ndarray, "parts blocks area"], pooling: str
) -> Float32[np.ndarray, "parts blocks"]:
    """The score of each block from the magnitudes in it."""
    if pooling == "max":
        return np.asarray(blocks.max(2, initial=0))
    return np.asarray(blocks.mean(2) if pooling == "avg" else blocks.sum(2))


def _places(spread: Spread, rows: int) -> Int64[np.ndarray, "rows n"]:
    """Where each element of a matrix that is spread lies."""
    shape = (rows, spread.plan.n)
    number = spread.arrange(np.arange(1, rows * spread.plan.n + 1).reshape(shape))
    where = np.zeros(rows * spread.plan.n + 1, np.int64)
    where[number] = np.arange(number.size)
    return where[1:].reshape(shape)


def _passes(plan: DynamicPlan, memory: float | None) -> tuple[int, int, DensePartition]:
    """Splits of columns and rows of W, and how a pass is cut."""
    share = plan.options.memory if memory is None else memory
    check_share("the dense gradient", "memory", share)
    r, c = plan.blocksize
    rows, columns = plan.m // r, plan.k // c
    if plan.m % r or plan.k % c:
        raise ValueError(
            f"the dense gradient of a weight of {plan.m}×{plan.k} was asked for in blocks of "
            f"{r}×{c}; sides must divide rows and columns: choose such a block"
        )
    splits = sorted(
        ((i, o) for i in _divisors(columns) for o in _divisors(rows)), key=lambda s: s[0] * s[1]
    )
    best: tuple[int, int, DensePartition] | None = None
    failure: ValueError | None = None
    for inputs, outputs in splits:
        if best is not None and inputs * outputs > best[0] * best[1]:
            break
        try:
            cut = partition_dense(
                plan.machine,
                plan.m // outputs,
                plan.n,
                plan.k // inputs,
                plan.dtype,
                partials="float32",
                block=plan.blocksize,
                memory=share,
            )
        except ValueError as error:
            failure = error
            continue
        if best is None or cut.cost.cycles < best[2].cost.cycles:
            best = inputs, outputs, cut
    if best is None:
        raise ValueError(f"no pass of the dense gradient fits: {failure}") from failure
    return best


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
