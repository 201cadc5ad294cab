"""The short road from `linear` to its back end, taken where nothing would happen on the way.

torch's dispatcher costs a small product more than the product itself. Where no gradient, mode,
transform, trace or profiler wants to see the call, the back end is called at once. One check by
torch's own guard, in C++, tells that the operands are as they were in a call that went the ordinary
road with all its checks: their types, dtypes, sizes, strides and dispatch keys, and the thread's
dispatch state. What the guard does not see is asked beside it.
"""

import functools
from math import prod
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _len_torch_dispatch_stack, _len_torch_function_stack
from torch._C._autograd import _profiler_enabled
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from sparsetile.ops import _dispatch

# None in a torch that keeps it elsewhere: every call goes the ordinary road then.
_Guards: Any = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)
_MOST = 1024
_CPU = torch.device("cpu")


class _Known(NamedTuple):
    """A kind of call that went the ordinary road and may go straight to its back end."""

    guard: Any
    wanting: bool  # whether an operand requires grad, which matters where gradients are on
    shape: tuple[int, int]
    forced: str | None
    module: ModuleType


# By the identity of an index tensor, which only finds the entry: the guard decides.
_known: dict[tuple[int, int, bool], _Known] = {}


def at_once(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    shape: tuple[int, int],
    bias: Tensor | None,
    activation: str,
) -> Tensor | None:
    """Compute `linear` without torch's dispatcher; None where the call must go through it."""
    # `_observed`, spelled out: a call of it costs as much as what it asks.
    if (
        is_compiling()
        or type(x) is not Tensor
        or _len_torch_function_stack()
        or _len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
        or _profiler_enabled()
    ):
        return None
    known = _known.get((id(col), x.ndim, bias is None))
    if (
        known is None
        or known.shape != shape
        or known.forced != _dispatch.forced()
        or (known.wanting and is_grad_enabled())
    ):
        return None
    check = known.guard.check
    if not (check(x, values, crow, col, bias) if bias is not None else check(x, values, crow, col)):
        return None
    linear = known.module.linear
    if x.ndim == 2:
        return linear(x, values, crow, col, bias, shape, False, activation)
    lead = x.shape[:-1]
    y = linear(x.reshape(prod(lead), shape[1]), values, crow, col, bias, shape, False, activation)
    return y.view(*lead, shape[0])


def remember(
    x: Tensor,
    values: Tensor,
    crow: Tensor,
    col: Tensor,
    shape: tuple[int, int],
    bias: Tensor | None,
) -> None:
    """Note a product that went the ordinary road, if its like may be computed `at_once`."""
    tensors = (x, values, crow, col) if bias is None else (x, values, crow, col, bias)
    if _Guards is None or is_compiling() or type(x) is not Tensor or _observed():
        return
    if not _plain(tensors):
        return
    module = _dispatch.choose("linear", x.dtype, values.dtype, (*values.shape[1:],), _CPU)
    # Of x only the last size matters, and any strides will do.
    sizes = [[None] * (x.ndim - 1) + [x.shape[-1]], *(list(t.shape) for t in tensors[1:])]
    strides = [[None] * x.ndim, *(list(t.stride()) for t in tensors[1:])]
    guard = _Guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    if len(_known) >= _MOST:
        _known.clear()
    wanting = torch._C._any_requires_grad(*tensors)
    _known[id(col), x.ndim, bias is None] = _Known(
        guard, wanting, shape, _dispatch.forced(), module
    )


def _observed() -> bool:
    """Whether a mode, forward-mode derivatives or a profiler would see the call."""
    return bool(
        _len_torch_function_stack()
        or _len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
        or _profiler_enabled()
    )


def _plain(tensors: tuple[Tensor, ...]) -> bool:
    """Whether these are ordinary CPU tensors, and nothing on this thread transforms products."""
    if (
        (is_grad_enabled() and torch._C._any_requires_grad(*tensors))
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or torch.is_autocast_enabled("cpu")
    ):
        return False
    keys = _plain_keys()
    return all(
        type(t) in (Tensor, torch.nn.Parameter) and torch._C._dispatch_keys(t).raw_repr() in keys
        for t in tensors
    )


@functools.cache
def _plain_keys() -> tuple[int, ...]:
    """Dispatch keys of strided CPU tensors that are no view with a lazy sign or the like."""
    with torch.inference_mode(False):
        normal = torch.empty(0)
    with torch.inference_mode():
        inference = torch.empty(0)
    return tuple(torch._C._dispatch_keys(t).raw_repr() for t in (normal, inference))
