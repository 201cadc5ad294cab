"""The program of the gradient of the weight at the stored blocks."""

from functools import lru_cache

import numpy as np

from sparsetile.machine import Codelet, Compute, Exchange, Memory, Program, Repeat, Step, Variable
from sparsetile.plan.dynamic._arrange import rearrange
from sparsetile.plan.dynamic._multiply_grad_w import MultiplyGradW, Operands
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._program import (
    TRAVEL,
    Bucket,
    DynamicProgram,
    on_tile,
    shifting,
)
from sparsetile.plan.dynamic._propagate import control, propagate
from sparsetile.plan.dynamic._reduce import cast_all, whole, zero
from sparsetile.plan.dynamic._spread import Spread, coordinates, tile_variable
from sparsetile.plan.dynamic._vertex_block import block_transpose_grad_w, kernel_side


@lru_cache(maxsize=16)
def grad_w_program(plan: DynamicPlan) -> DynamicProgram:
    """The program of a plan that computes dy·xᵀ at the stored blocks.

    The result lies as the values do. Either the buckets' meta-information and sums travel past the
    dense operands, and come back, or the operands travel past the buckets.

    Args:
        plan: The plan.

    Returns:
        A program that runs with every pattern that is encoded for the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> grad_w_program(small_plan()).output.name
        'gradient of values'
    """
    dy, x = Spread(plan, "x"), Spread(plan, "y")
    given = (dy.variable("dy", plan.dtype), x.variable("x", plan.dtype))
    parts = (
        tile_variable(plan, "part of dy", plan.dtype, dy.part),
        tile_variable(plan, "part of x", plan.dtype, x.part),
    )
    meta = tile_variable(
        plan, "bucket: meta-information", "uint16", plan.bucket_meta, persistent=True
    )
    sums = tile_variable(plan, "partial sums", plan.options.partials, plan.bucket_values)
    result = tile_variable(plan, "gradient of values", plan.dtype, plan.bucket_values)
    own_id = tile_variable(plan, "subgroup id", "uint16", 1)
    copies = (dy.broadcast(given[0], parts[0]), x.broadcast(given[1], parts[1]))
    steps: list[Step] = [rearrange(plan, *given), Exchange("Pre-distribution exchange", copies)]
    amp = plan.methods[2] == "GradWAMPBlock"
    if amp:
        turned = (
            tile_variable(plan, "part of dy, transposed", plan.dtype, dy.part),
            tile_variable(plan, "part of x, transposed", plan.dtype, x.part),
        )
        steps.append(_transposed(plan, parts, turned))
        parts = turned
    steps.append(Compute("Zero partials", (*zero(plan, sums).codelets, _ids(plan, own_id))))
    multiply, operands = MultiplyGradW(plan), Operands(*parts, amp, own_id)
    steer = control(plan)
    if plan.exchange_buckets:
        travelling = Bucket(
            tile_variable(plan, "travelling words", "uint16", plan.bucket_meta), sums
        )

        def shift(axis: str, name: str = "Propagation exchange") -> Exchange:
            return shifting(plan, axis, name, TRAVEL, travelling.variables)

        steps.append(Exchange("Distribution begin", (on_tile(plan, meta, travelling.meta),)))
    else:
        travelling = Bucket(meta, sums)
        moving = {
            # What is the same on all tiles of an axis need not move along it.
            "x": (parts[0], own_id),
            "y": (parts[1], own_id),
            "z": parts,
        }

        def shift(axis: str, name: str = "Propagation exchange") -> Exchange:
            return shifting(plan, axis, name, -TRAVEL, moving[axis])

    turn: tuple[Step, ...] = (multiply.compute("Distribution compute", travelling, operands),)
    if plan.z > 1:
        turn = (Repeat(plan.z, (*turn, shift("z", "Distribution exchange"))),)
    steps += turn
    steps += propagate(
        plan,
        steer,
        (),
        multiply.compute("Propagation compute", travelling, operands),
        shift,
        come_back=plan.exchange_buckets,
    )
    steps.append(cast_all(plan, sums, result))
    inputs = {"meta": meta, "dy": given[0], "x": given[1]}
    if plan.x * plan.y > 1:
        inputs["overflow"] = steer.overflow
    program = Program(
        f"dynamic grad_w {plan.m}×{plan.k}×{plan.n}",
        plan.machine,
        tuple(steps),
        tuple(inputs.values()),
        (result,),
    )
    return DynamicProgram(plan, program, inputs, result)


def _ids(plan: DynamicPlan, own_id: Variable) -> Codelet:
    """Each tile notes which subgroup's rows and columns its operands are."""
    ix, iy, _ = coordinates(plan)

    def run(memory: Memory) -> None:
        memory[own_id][:] = ix * plan.y + iy + 1

    cycles = own_id.counts * plan.machine.workers  # a worker issues once in as many cycles
    return Codelet("subgroup ids", run, cycles, (), (own_id,))


def _transposed(
    plan: DynamicPlan, parts: tuple[Variable, Variable], turned: tuple[Variable, Variable]
) -> Compute:
    """Both operands are stored column by column for the multiplying unit."""
    side, _ = kernel_side(plan.kernel_block)
    codelets = []
    for part, out in zip(parts, turned, strict=True):

        def run(memory: Memory, part: Variable = part, out: Variable = out) -> None:
            rows = memory[part].reshape(plan.tiles, -1, plan.z_size)
            memory[out][:] = rows.transpose(0, 2, 1).reshape(-1)

        strips = np.ceil(part.counts / (plan.z_size * side))
        cycles = block_transpose_grad_w(strips, plan.z_size, side, plan.dtype, plan.machine.workers)
        codelets.append(Codelet(part.name, run, whole(cycles * (strips > 0)), (part,), (out,)))
    return Compute("Q-grad/S transpose", tuple(codelets))
