"""A small plan made by hand and a matrix for it, for examples."""

from dataclasses import replace
from typing import Any

import torch

from sparsetile.machine import MachineSpec
from sparsetile.matrix import BSR
from sparsetile.plan.dynamic._plan import DynamicOptions, DynamicPlan


def small_plan(**changes: Any) -> DynamicPlan:
    """Plan an 8×8 matrix of single elements, times two columns, on four tiles of one worker.

    Args:
        **changes: Fields of the plan that shall differ.

    Returns:
        The plan, of 2×2 partitions.

    Examples:
        >>> small_plan().tiles
        4
    """
    machine = MachineSpec(
        name="small",
        tiles=4,
        memory_per_tile=4096,
        clock_hz=1e9,
        exchange_bytes_per_cycle=4,
        memory_bytes_per_cycle=16,
        flops_float16=64,
        flops_mixed=32,
        flops_float32=16,
    )
    plan = DynamicPlan(
        machine=machine,
        m=8,
        k=8,
        n=2,
        blocksize=(1, 1),
        kernel_block=(1, 1),
        max_blocks=16,
        dtype="float32",
        options=DynamicOptions(),
        x=2,
        y=2,
        z=1,
        x_size=4,
        y_size=4,
        z_size=2,
        methods=("Forward", "Transpose", "GradW"),
        exchange_buckets=True,
        bucket_values=8,
        bucket_meta=70,
        bucket_meta_grad_a=0,
    )
    return replace(plan, **changes)


def small_matrix() -> BSR:
    """A matrix that the small plan can hold: ones on the diagonal.

    Returns:
        The matrix, 8×8 in blocks of 1×1.

    Examples:
        >>> small_matrix().nnzb
        8
    """
    return BSR.from_dense(torch.eye(8), blocksize=1)
