"""The dense products that sparse ones are compared with, and the dense gradient of a weight."""

from sparsetile.plan.dense._cost import dense_cycles, dense_law
from sparsetile.plan.dense._grad_w import (
    dense_grad_w_serial_splits,
    run_dense_grad_w,
    run_top_blocks,
)
from sparsetile.plan.dense._partition import DensePartition, partition_dense
from sparsetile.plan.dense._program import run_dense

__all__ = [
    "DensePartition",
    "dense_cycles",
    "dense_grad_w_serial_splits",
    "dense_law",
    "partition_dense",
    "run_dense",
    "run_dense_grad_w",
    "run_top_blocks",
]
