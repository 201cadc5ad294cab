"""Products with a pattern known when planning."""

from sparsetile.plan.static._partition import partition, tile_of_block
from sparsetile.plan.static._partitioner import StaticPartitioner
from sparsetile.plan.static._plan import StaticPlan
from sparsetile.plan.static._planner import plan_static
from sparsetile.plan.static._program import static_program
from sparsetile.plan.static._run import run_static, run_static_dense_sparse

__all__ = [
    "StaticPartitioner",
    "StaticPlan",
    "partition",
    "plan_static",
    "run_static",
    "run_static_dense_sparse",
    "static_program",
    "tile_of_block",
]
