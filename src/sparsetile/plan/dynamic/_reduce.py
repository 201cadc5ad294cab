"""Partial sums of several tiles become a result."""

import numpy as np
from jaxtyping import Int64

from sparsetile.machine import Codelet, Compute, Exchange, Memory, Step, Variable
from sparsetile.plan._units import Numbers
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._spread import Spread, runs, sibling, tile_variable
from sparsetile.plan.dynamic._vertex_sum import cast, reduce, zero_partials


def zero(plan: DynamicPlan, sums: Variable) -> Compute:
    """Set partial sums to zero."""

    def run(memory: Memory) -> None:
        memory[sums][:] = 0

    block = plan.kernel_block != (1, 1)
    cycles = zero_partials(sums.counts, sums.dtype.name, block, plan.machine.workers)
    return Compute("Zero partials", (Codelet("Zero partials", run, whole(cycles), (), (sums,)),))


def whole(cycles: Numbers) -> Int64[np.ndarray, " tiles"]:
    """Cycles as whole numbers."""
    return np.asarray(np.ceil(cycles), np.int64)


def cast_all(plan: DynamicPlan, sums: Variable, result: Variable) -> Compute:
    """Cast partial sums where they are."""

    def run(memory: Memory) -> None:
        with np.errstate(over="ignore"):
            memory[result][:] = memory[sums]

    cycles = cast(result.counts, sums.dtype.name, plan.dtype, plan.machine.workers)
    idle = result.counts == 0
    return Compute(
        "Reduction or cast",
        (Codelet("cast", run, whole(np.where(idle, 0, cycles)), (sums,), (result,)),),
    )


def reduce_all(plan: DynamicPlan, sums: Variable, spread: Spread, result: Variable) -> list[Step]:
    """Add up the partial sums of the tiles that share a part; each tile adds up its share."""
    depth = spread.sharers
    if depth == 1:
        return [cast_all(plan, sums, result)]
    share = spread.shares[spread.sharer]
    received = tile_variable(plan, "partial sums of others", sums.dtype.name, share * (depth - 1))
    tiles = np.arange(plan.tiles)[:, None]
    slot = np.arange(depth - 1)
    # The first slot is of the next sharer, and so on round.
    axis = "y" if spread.side == "x" else "x"
    family = sibling(plan, axis, np.arange(depth))
    origin = family[tiles, (spread.sharer[:, None] + 1 + slot) % depth]
    begin = spread.starts[spread.sharer][:, None]
    exchange = Exchange(
        "Exchange to reduce",
        (
            runs(
                sums,
                received,
                origin * spread.part + begin,
                received.offsets[tiles] + slot * share[:, None],
                share[:, None],
            ),
        ),
    )

    def run(memory: Memory) -> None:
        own, others, out = memory[sums], memory[received], memory[result]
        for at in range(depth):
            mine = np.flatnonzero(spread.sharer == at)
            size, first = int(spread.shares[at]), int(spread.starts[at])
            total = own.reshape(plan.tiles, -1)[mine, first : first + size].astype(np.float32)
            other = received.offsets[mine][:, None] + np.arange(size)
            for turn in range(depth - 1):
                total = total + others[other + turn * size].astype(np.float32)
            with np.errstate(over="ignore"):
                out[result.offsets[mine][:, None] + np.arange(size)] = total

    cycles = reduce(result.counts, depth, sums.dtype.name, plan.dtype, plan.machine.workers)
    codelet = Codelet(
        "reduce",
        run,
        whole(np.where(result.counts == 0, 0, cycles)),
        (sums, received),
        (result,),
    )
    return [exchange, Compute("Reduction or cast", (codelet,))]
