"""Products with a pattern that changes under a plan made once."""

from sparsetile.plan.dynamic._decode import decode, decode_values, to_coo, to_csc, to_csr
from sparsetile.plan.dynamic._embedding import embedding_slice, embedding_update_add
from sparsetile.plan.dynamic._embedding_rows import PADDING
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._encoded import Encoded, steps
from sparsetile.plan.dynamic._plan import DynamicOptions, DynamicPlan
from sparsetile.plan.dynamic._planner import plan_dynamic
from sparsetile.plan.dynamic._propagate import propagation_steps
from sparsetile.plan.dynamic._run import dynamic_program, run_dynamic
from sparsetile.plan.dynamic._scan import Entries, scan
from sparsetile.plan.dynamic._scan_workers import (
    WorkerEntries,
    scan_grad_w_workers,
    scan_workers,
)

__all__ = [
    "PADDING",
    "DynamicOptions",
    "DynamicPlan",
    "Encoded",
    "Entries",
    "WorkerEntries",
    "decode",
    "decode_values",
    "dynamic_program",
    "embedding_slice",
    "embedding_update_add",
    "encode",
    "plan_dynamic",
    "propagation_steps",
    "run_dynamic",
    "scan",
    "scan_grad_w_workers",
    "scan_workers",
    "steps",
    "to_coo",
    "to_csc",
    "to_csr",
]
