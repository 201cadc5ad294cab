"""How one product is cut into parts: over threads, and over a machine of tiles."""

from importlib import import_module
from typing import TYPE_CHECKING

from sparsetile.plan._bands import balanced_bands, imbalance

if TYPE_CHECKING:
    from sparsetile.plan._check import PlanError
    from sparsetile.plan._cost import Cost, Term
    from sparsetile.plan._predict import Prediction, predict
    from sparsetile.plan.dense import (
        DensePartition,
        dense_cycles,
        dense_grad_w_serial_splits,
        partition_dense,
        run_dense,
        run_dense_grad_w,
        run_top_blocks,
    )
    from sparsetile.plan.dynamic import (
        PADDING,
        DynamicOptions,
        DynamicPlan,
        Encoded,
        decode,
        decode_values,
        dynamic_program,
        embedding_slice,
        embedding_update_add,
        encode,
        plan_dynamic,
        propagation_steps,
        run_dynamic,
        steps,
    )
    from sparsetile.plan.masked import (
        MaskedPlan,
        SoftmaxPlan,
        masked_softmax,
        masked_softmax_grad,
        plan_dds,
        plan_dsd,
        plan_softmax,
        run_dds,
        run_dsd,
    )
    from sparsetile.plan.static import (
        StaticPartitioner,
        StaticPlan,
        partition,
        plan_static,
        run_static,
        run_static_dense_sparse,
        static_program,
        tile_of_block,
    )

__all__ = [
    "PADDING",
    "Cost",
    "DensePartition",
    "DynamicOptions",
    "DynamicPlan",
    "Encoded",
    "MaskedPlan",
    "PlanError",
    "Prediction",
    "SoftmaxPlan",
    "StaticPartitioner",
    "StaticPlan",
    "Term",
    "balanced_bands",
    "decode",
    "decode_values",
    "dense_cycles",
    "dense_grad_w_serial_splits",
    "dynamic_program",
    "embedding_slice",
    "embedding_update_add",
    "encode",
    "imbalance",
    "masked_softmax",
    "masked_softmax_grad",
    "partition",
    "partition_dense",
    "plan_dds",
    "plan_dsd",
    "plan_dynamic",
    "plan_softmax",
    "plan_static",
    "predict",
    "propagation_steps",
    "run_dds",
    "run_dense",
    "run_dense_grad_w",
    "run_dsd",
    "run_dynamic",
    "run_static",
    "run_static_dense_sparse",
    "run_top_blocks",
    "static_program",
    "steps",
    "tile_of_block",
]

# The planners are loaded when first asked for: kernels need the bands alone, and at once.
_ROOMS = ("_check", "_cost", "_predict", "dense", "dynamic", "masked", "static")


def __getattr__(name: str) -> object:
    if name in __all__:
        for room in _ROOMS:
            found: object = getattr(import_module(f"{__name__}.{room}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
