"""Products with a pattern that changes under a plan made once."""

from sparsetile.plan.dynamic._decode import decode, decode_values, to_coo, to_csc, to_csr
from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._encoded import Encoded, steps
from sparsetile.plan.dynamic._scan import Entries, scan
from sparsetile.plan.dynamic._scan_workers import (
    WorkerEntries,
    scan_grad_w_workers,
    scan_workers,
)

__all__ = [
    "Encoded",
    "Entries",
    "WorkerEntries",
    "decode",
    "decode_values",
    "encode",
    "scan",
    "scan_grad_w_workers",
    "scan_workers",
    "steps",
    "to_coo",
    "to_csc",
    "to_csr",
]
