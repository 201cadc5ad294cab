"""scipy's sparse arrays; they use one thread whatever is asked."""

from typing import Any

import torch
from torch import Tensor

from sparsetile.bench._bench_case import CannotError, Operands
from sparsetile.bench._peers import Call


def prepare(name: str, given: Operands) -> Call:
    """Make scipy's call of a case."""
    layout = name.removeprefix("scipy-")
    refuse_others(given)
    if layout == "bsr" and given.pattern.ragged:
        raise CannotError("no ragged blocks")
    w, dense = given.sparse().to_scipy(layout), given.dense().numpy()
    return Call(lambda: w @ dense, from_numpy, "scipy", f"{layout}_array @ dense")


def refuse_others(given: Operands) -> None:
    """Stop a peer that multiplies in float32 alone and has neither gradients nor samples."""
    if given.x.dtype != torch.float32:
        raise CannotError(f"no {str(given.x.dtype).removeprefix('torch.')}")
    if given.case.op in ("dvalues", "sddmm"):
        raise CannotError("no sampled product")
    if given.case.op in ("linear+grad", "train-step"):
        raise CannotError("no gradients")


def from_numpy(found: Any) -> tuple[Tensor, ...]:
    """Take a numpy array as the one result."""
    return (torch.from_numpy(found),)
