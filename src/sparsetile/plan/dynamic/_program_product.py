"""The programs of the forward product and of the gradient of its dense operand."""

from functools import lru_cache

from sparsetile.machine import Codelet, Compute, Exchange, Memory, Program, Step
from sparsetile.plan.dynamic._accumulate import transposed
from sparsetile.plan.dynamic._arrange import rearrange
from sparsetile.plan.dynamic._multiply import Multiply
from sparsetile.plan.dynamic._plan import DynamicPlan
from sparsetile.plan.dynamic._program import (
    TRAVEL,
    Bucket,
    DynamicProgram,
    bucket,
    on_tile,
    share,
    shifting,
)
from sparsetile.plan.dynamic._propagate import control, propagate
from sparsetile.plan.dynamic._reduce import reduce_all, whole, zero
from sparsetile.plan.dynamic._spread import Spread, tile_variable
from sparsetile.plan.dynamic._vertex_block import transpose_blocks


@lru_cache(maxsize=16)
def product_program(plan: DynamicPlan, pass_: str) -> DynamicProgram:
    """The program of a plan that multiplies with W or its transpose.

    Args:
        plan: The plan.
        pass_: `"fwd"` for W·x, `"grad_a"` for Wᵀ·dy.

    Returns:
        A program that runs with every pattern that is encoded for the plan.

    Examples:
        >>> from sparsetile.plan.dynamic._example import small_plan
        >>> product_program(small_plan(), "grad_a").output.name
        'dx'
    """
    forward = pass_ == "fwd"
    multiply = Multiply(plan, pass_)
    source, target = Spread(plan, "y" if forward else "x"), Spread(plan, "x" if forward else "y")
    given = source.variable("x" if forward else "dy", plan.dtype)
    dense = tile_variable(plan, "dense operand", plan.dtype, source.part)
    sums = tile_variable(plan, "partial sums", plan.options.partials, target.part)
    result = target.variable("y" if forward else "dx", plan.dtype)
    meta = plan.bucket_meta if multiply.shared else plan.bucket_meta_grad_a
    stored = bucket(plan, "bucket", meta, plan.dtype, persistent=True)
    others = bucket(plan, "buckets of the same part", meta, plan.dtype, plan.z - 1)
    travelling = bucket(plan, "travelling bucket", meta, plan.dtype)
    steps: list[Step] = [rearrange(plan, given)]
    own = stored
    if not forward and plan.kernel_block != (1, 1):
        turned = tile_variable(plan, "transposed values", plan.dtype, plan.bucket_values)
        own = Bucket(stored.meta, turned)
        steps.append(_transpose(plan, stored, own))
    steps.append(
        Exchange(
            "Pre-distribution + distribution exchange",
            (source.broadcast(given, dense), *share(plan, own, others)),
        )
    )
    steps.append(zero(plan, sums))
    steps.append(multiply.distributed(own, others, dense, sums))
    steer = control(plan)
    steps += propagate(
        plan,
        steer,
        (
            Exchange(
                "Propagation begin",
                tuple(
                    on_tile(plan, a, b)
                    for a, b in zip(own.variables, travelling.variables, strict=True)
                ),
            ),
        ),
        multiply.propagated(travelling, dense, sums),
        lambda axis: shifting(plan, axis, "Propagation exchange", TRAVEL, travelling.variables),
    )
    steps += reduce_all(plan, sums, target, result)
    inputs = {"meta": stored.meta, "values": stored.values, given.name: given}
    if plan.x * plan.y > 1:
        inputs["overflow"] = steer.overflow
    program = Program(
        f"dynamic {pass_} {plan.m}×{plan.k}×{plan.n}",
        plan.machine,
        tuple(steps),
        tuple(inputs.values()),
        (result,),
    )
    return DynamicProgram(plan, program, inputs, result)


def _transpose(plan: DynamicPlan, stored: Bucket, own: Bucket) -> Step:
    """Every block of a bucket is transposed before it is sent."""

    def run(memory: Memory) -> None:
        memory[own.values][:] = transposed(memory[stored.values], plan.kernel_block)

    blocks = own.values.counts // (plan.kernel_block[0] * plan.kernel_block[1])
    cycles = transpose_blocks(blocks, plan.kernel_block, plan.dtype, plan.machine.workers)
    codelet = Codelet(
        "Transpose buckets", run, whole(cycles * (blocks > 0)), (stored.values,), (own.values,)
    )
    return Compute("Transpose buckets", (codelet,))
