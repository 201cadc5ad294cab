"""Products with a pattern that changes under a plan made once."""

from sparsetile.plan.dynamic._encode import encode
from sparsetile.plan.dynamic._encoded import Encoded, steps
from sparsetile.plan.dynamic._scan import Entries, scan

__all__ = ["Encoded", "Entries", "encode", "scan", "steps"]
