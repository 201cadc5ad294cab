"""Times a layer dense and sparse, in turns."""

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from sparsetile.matrix import Pattern
from sparsetile.nn._advise_inputs import Call
from sparsetile.nn._dense import layout, plain_type
from sparsetile.nn._linear import Linear

Name = TypeVar("Name", bound=Hashable)
#: Fewest and most timed calls of each case.
ROUNDS = (3, 50)


def alike(layer: nn.Module, call: Call) -> Hashable:
    """What decides how long a layer takes: layers of equal keys are measured once.

    Args:
        layer: A dense linear layer.
        call: What it is given.

    Returns:
        A key.

    Examples:
        >>> call = Call((8, 4), torch.float32, torch.device("cpu"), None)
        >>> alike(nn.Linear(4, 2), call) == alike(nn.Linear(4, 2), call)
        True
        >>> alike(nn.Linear(4, 2), call) == alike(nn.Linear(4, 2, bias=False), call)
        False
    """
    weight, bias = layer._parameters["weight"], layer._parameters.get("bias")
    assert weight is not None
    return plain_type(layer), tuple(weight.shape), weight.dtype, bias is not None, call


def products(
    layer: nn.Module, patterns: Mapping[Name, Pattern], call: Call
) -> dict[Name | None, Callable[[], object]]:
    """Make the calls to be timed: the layer itself, and a sparse twin at each pattern.

    Hooks of the layer are left out; they take as long in both.

    Args:
        layer: A dense linear layer.
        patterns: Which blocks a twin stores, by a name for it.
        call: What the layer is given.

    Returns:
        Functions by name; the dense one under None.

    Examples:
        >>> call = Call((8, 4), torch.float32, torch.device("cpu"), None)
        >>> found = products(nn.Linear(4, 2), {"half": Pattern((2, 4), 2, [0, 1], [0])}, call)
        >>> list(found)
        [None, 'half']
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(call.shape, generator=generator).to(call.device, call.dtype)
    cases: dict[Name | None, Callable[[], object]] = {None: _product(layer, x, call)}
    for name, pattern in patterns.items():
        twin = Linear.from_linear(layer, pattern=pattern, blocksize=pattern.blocksize)
        cases[name] = _product(twin, x, call)
    return cases


def fastest(
    cases: Mapping[Name, Callable[[], object]],
    *,
    seconds: float,
    clock: Callable[[], float] | None = None,
) -> dict[Name, float]:
    """Time several calls in turns, so that a busy neighbour slows all of them alike.

    Args:
        cases: What to call, by name; each is called once untimed, which makes its kernels.
        seconds: Time to spend on all of them; each is timed three times at least.
        clock: Gives the seconds. By default the time of this thread's CPU where torch uses one
            thread, which a neighbour does not change, and else what a wall clock shows.

    Returns:
        The shortest time of each, in seconds.

    Examples:
        >>> ticks = iter(range(100))
        >>> fastest({"a": int, "b": int}, seconds=0.0, clock=lambda: next(ticks))
        {'a': 1, 'b': 1}
    """
    if clock is None:
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        if _has_accelerator():
            clock = time.perf_counter
    for call in cases.values():
        call()
    times: dict[Name, list[float]] = {name: [] for name in cases}
    start = time.perf_counter()
    for done in range(ROUNDS[1]):
        if done >= ROUNDS[0] and time.perf_counter() - start > seconds:
            break
        for name, call in cases.items():
            # As in a loop: no case pays for caches that the one before it filled.
            call()
            before = clock()
            call()
            times[name].append(clock() - before)
    return {name: min(seen) for name, seen in times.items()}


def stored_bytes(pattern: Pattern, dtype: torch.dtype) -> int:
    """Bytes of the blocks of a pattern with their int32 indices.

    Examples:
        >>> stored_bytes(Pattern((4, 4), 2, [0, 1, 1], [0]), torch.float32)
        32
    """
    r, c = pattern.blocksize
    indices: Sequence[Tensor] = (pattern.crow_indices, pattern.col_indices)
    return pattern.nnzb * r * c * dtype.itemsize + 4 * sum(len(index) for index in indices)


def shape_of(layer: nn.Module) -> tuple[int, int]:
    """Outputs and inputs of a dense linear layer.

    Examples:
        >>> shape_of(nn.Linear(4, 2))
        (2, 4)
    """
    weight = layer._parameters["weight"]
    assert weight is not None
    m, k = weight.shape
    return (m, k) if layout(layer) == "linear" else (k, m)


def _product(layer: nn.Module, x: Tensor, call: Call) -> Callable[[], object]:
    # The class's own forward: hooks, and modules that a hook would reach, stay out of it.
    forward = plain_type(layer).forward
    away = x.device.type != "cpu"
    wait: Callable[[], Any] | None = None
    if away:
        wait = torch.get_device_module(x.device).synchronize

    def run() -> None:
        cast = (
            nullcontext() if call.autocast is None else torch.autocast(x.device.type, call.autocast)
        )
        with torch.no_grad(), cast:
            forward(layer, x)
        if wait is not None:
            wait()

    return run


def _has_accelerator() -> bool:
    return torch.accelerator.is_available()
