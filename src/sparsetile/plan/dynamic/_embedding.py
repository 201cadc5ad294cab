"""An embedding whose table is the sparse weight of a layer: rows looked up, and added to."""

import numbers as kinds
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Shaped, UInt32
from torch import Tensor

from sparsetile.machine import Profile, run
from sparsetile.matrix._check import check_dense, describe, message
from sparsetile.plan.dynamic._check_operand import check_encoded
from sparsetile.plan.dynamic._embedding_program import (
    EmbeddingProgram,
    slice_program,
    update_program,
)
from sparsetile.plan.dynamic._embedding_rows import PADDING
from sparsetile.plan.dynamic._encoded import Encoded
from sparsetile.plan.dynamic._layout import overflow_words
from sparsetile.plan.dynamic._plan import DynamicPlan


def embedding_slice(
    plan: DynamicPlan, encoded: Encoded, indices: Shaped[Tensor, " count"]
) -> tuple[Shaped[Tensor, "count dim"], Profile]:
    """Look up rows of a sparse weight on the plan's machine.

    A layer that turns hidden states into scores for words may share its weight, a row for each
    word, with the embedding of these words, as in Graphcore's popsparse library (poplibs). The
    same buckets serve both. They travel past the tiles on which the rows are wanted, a number of
    steps that depends on the plan and on how far non-zeros spilled, not on the indices.

    Args:
        plan: The plan of the weight.
        encoded: The weight, encoded for that plan.
        indices: Rows wanted, in any order, of any integer dtype; `PADDING`, the largest unsigned
            32-bit number, selects nothing and gives zeros.

    Returns:
        The rows, dense, in the plan's dtype, and what it took. Its cycles are estimates of our own.

    Raises:
        TypeError: If indices are not a tensor of integers.
        ValueError: If there is no index, one is out of range, they are not of one dimension, or
            `encoded` is of another plan.
        OutOfTileMemory: If the program does not fit in the tiles' memory.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> plan = small_plan()
        >>> encoded = encode(plan, small_matrix())
        >>> rows, _ = embedding_slice(plan, encoded, torch.tensor([6, PADDING]))
        >>> rows.tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
    """
    wanted = _checked(plan, encoded, indices)
    made = slice_program(plan, len(wanted))
    data = {"indices": made.chunks.arrange_indices(wanted)}
    rows, profile = _run(plan, encoded, made, data)
    return torch.from_numpy(made.chunks.collect_rows(rows)), profile


def embedding_update_add(
    plan: DynamicPlan,
    encoded: Encoded,
    slices: Shaped[Tensor, "count2 dim"],
    indices: Shaped[Tensor, " count"],
    scale: float = 1.0,
) -> tuple[Shaped[Tensor, " values"], Profile]:
    """Add scaled rows to rows of a sparse weight, where it stores something.

    This is what the gradient of the looked-up rows does to the table. Rows of one index add up, in
    float32; the sums are scaled, added to the values and rounded once.

    Args:
        plan: The plan of the weight, made for the gradient of the weight too.
        encoded: The weight, encoded for that plan; it is left as it is.
        slices: A row for each index, in the plan's dtype.
        indices: Rows to add to; `PADDING` adds nothing.
        scale: Factor of what is added, such as the learning rate, negated.

    Returns:
        The new values, laid out like `encoded.values`, and what it took. Its cycles are estimates
        of our own.

    Raises:
        TypeError: If indices are not integers, slices of another dtype than the plan's, or the
            scale is no number.
        ValueError: If the plan is without the gradient of the weight, a size is wrong, an index is
            out of range, the scale is not finite in float32, or `encoded` is of another plan.
        OutOfTileMemory: If the program does not fit in the tiles' memory.

    Examples:
        >>> from sparsetile.plan.dynamic._encode import encode
        >>> from sparsetile.plan.dynamic._example import small_matrix, small_plan
        >>> from sparsetile.plan.dynamic._plan import DynamicOptions
        >>> plan = small_plan(options=DynamicOptions(grad_w=True), bucket_meta=200)
        >>> encoded = encode(plan, small_matrix())
        >>> values, _ = embedding_update_add(plan, encoded, torch.ones(2, 8), torch.tensor([2, 2]))
        >>> values.sum().item()  # of eight ones, one is 3 now
        10.0
    """
    wanted = _checked(plan, encoded, indices)
    if not plan.options.grad_w:
        raise ValueError(
            message(
                "embedding_update_add",
                got="a plan without the gradient of the weight",
                allowed="a plan with it, for workers share its rows as they do there",
                fix="plan with the option grad_w=True",
            )
        )
    _check_slices(plan, slices, len(wanted))
    _check_scale(scale)
    made = update_program(plan, len(wanted))
    data = {
        "indices": made.chunks.arrange_indices(wanted),
        "slices": made.chunks.arrange_rows(slices.numpy(force=True)),
        "scale": np.array([scale], np.float32),
    }
    values, profile = _run(plan, encoded, made, data)
    return torch.from_numpy(values), profile


def _run(
    plan: DynamicPlan,
    encoded: Encoded,
    made: EmbeddingProgram,
    data: Mapping[str, npt.NDArray[np.generic]],
) -> tuple[npt.NDArray[np.generic], Profile]:
    held: dict[str, npt.NDArray[np.generic]] = {
        "meta": np.ascontiguousarray(encoded.meta_buckets).reshape(-1),
        "values": encoded.values,
        "overflow": encoded.meta[: overflow_words(plan)],
        **data,
    }
    done = run(made.program, {variable: held[name] for name, variable in made.inputs.items()})
    return done.values[made.output], done.profile


def _checked(plan: DynamicPlan, encoded: Encoded, indices: Tensor) -> UInt32[np.ndarray, " count"]:
    """The indices as tiles hold them."""
    check_encoded(plan, encoded)
    integers = (
        isinstance(indices, Tensor)
        and not (indices.is_floating_point() or indices.is_complex())
        and indices.dtype != torch.bool
    )
    if not integers:
        raise TypeError(
            message(
                "indices",
                got=describe(indices),
                allowed="a tensor of integers",
                fix="convert them, as with torch.as_tensor and .long()",
            )
        )
    if indices.ndim != 1 or indices.layout != torch.strided or indices.is_meta:
        raise ValueError(
            message(
                "indices",
                got=describe(indices),
                allowed="a dense tensor of one dimension that holds data",
                fix="pass one index for each row, as with .flatten()",
            )
        )
    numbers = indices.numpy(force=True).astype(np.int64)
    if not len(numbers):
        raise ValueError(
            message("indices", got="none", allowed="1 or more", fix="ask for a row at least")
        )
    wrong = ((numbers < 0) | (numbers >= plan.m)) & (numbers != PADDING)
    if wrong.any():
        raise ValueError(
            message(
                "indices",
                got=f"{int(numbers[wrong][0])} at place {int(np.flatnonzero(wrong)[0])}",
                allowed=f"0 to {plan.m - 1}, or {PADDING} for none",
                fix="check where the indices come from",
            )
        )
    return numbers.astype(np.uint32)


def _check_slices(plan: DynamicPlan, slices: Tensor, count: int) -> None:
    check_dense("slices", slices, dtype=getattr(torch, plan.dtype))
    if tuple(slices.shape) != (count, plan.k):
        raise ValueError(
            message(
                "slices",
                got=f"shape {tuple(slices.shape)}",
                allowed=f"{(count, plan.k)}: a row for each index, as long as the table's",
                fix="pass as many rows as indices",
            )
        )


def _check_scale(scale: float) -> None:
    fix = "pass such a factor, as in scale=-0.1"
    if not isinstance(scale, kinds.Real) or isinstance(scale, bool):
        raise TypeError(message("scale", got=describe(scale), allowed="a number", fix=fix))
    most = float(np.finfo(np.float32).max)
    if not abs(scale) <= most:
        allowed = "a number that is finite in float32"
        raise ValueError(message("scale", got=describe(scale), allowed=allowed, fix=fix))
