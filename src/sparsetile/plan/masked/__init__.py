"""Products and softmax with a mask of blocks, for sparse attention."""

from sparsetile.plan.masked._plan import MaskedPlan
from sparsetile.plan.masked._planner import plan_dds, plan_dsd
from sparsetile.plan.masked._program import masked_program
from sparsetile.plan.masked._run import run_dds, run_dsd
from sparsetile.plan.masked._softmax import (
    masked_softmax,
    masked_softmax_grad,
    softmax_program,
)
from sparsetile.plan.masked._softmax_plan import SoftmaxPlan, plan_softmax

__all__ = [
    "MaskedPlan",
    "SoftmaxPlan",
    "masked_program",
    "masked_softmax",
    "masked_softmax_grad",
    "plan_dds",
    "plan_dsd",
    "plan_softmax",
    "run_dds",
    "run_dsd",
    "softmax_program",
]
