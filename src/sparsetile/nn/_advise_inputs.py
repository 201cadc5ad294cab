"""What the linear layers of a model are given when it runs on example inputs."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Call:
    """The input of one call of a layer, without its data.

    Attributes:
        shape: Its shape, features last.
        dtype: Its type.
        device: Where it was.
        autocast: The type that autocast was set to; None if it was off.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    autocast: torch.dtype | None

    @property
    def rows(self) -> int:
        """Vectors of features in it."""
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        return rows


def calls_of(
    model: nn.Module, layers: Mapping[str, nn.Module], example_inputs: Any
) -> dict[str, list[Call]]:
    """Run a model once and note what some of its layers are given.

    The model runs in evaluation mode, without gradients; then it is in its own mode again.

    Args:
        model: The model.
        layers: Linear layers of it, by name.
        example_inputs: A tensor, a tuple of arguments, or a mapping of keyword arguments.

    Returns:
        The calls of each layer in order; none of a layer that was not reached.

    Raises:
        TypeError: If the inputs are of another kind.

    Examples:
        >>> model = nn.Sequential(nn.Linear(4, 2))
        >>> calls_of(model, {"0": model[0]}, torch.ones(3, 5, 4))["0"][0].rows
        15
    """
    args, kwargs = _arguments(example_inputs)
    names: dict[nn.Module, list[str]] = {}
    for name, layer in layers.items():
        names.setdefault(layer, []).append(name)
    calls: dict[str, list[Call]] = {name: [] for name in layers}

    def ear(layer: nn.Module) -> Callable[..., None]:
        def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            x = given[0] if given else next(iter(named.values()), None)
            if isinstance(x, Tensor):
                for name in names[layer]:
                    calls[name].append(_call(x))

        return note

    with evaluating(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
        hooks = [layer.register_forward_pre_hook(ear(layer), with_kwargs=True) for layer in names]
        try:
            model(*args, **kwargs)
        finally:
            for hook in hooks:
                hook.remove()
    return calls


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode for as long as a `with` lasts.

    Examples:
        >>> model = nn.Dropout()
        >>> with evaluating(model):
        ...     model.training
        False
        >>> model.training
        True
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _arguments(given: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(given, Tensor):
        return (given,), {}
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return (), dict(given)
    if isinstance(given, tuple | list) and any(isinstance(each, Tensor) for each in given):
        return tuple(given), {}
    fix = "tokenize text first" if isinstance(given, str | tuple | list) else "pass one of these"
    raise TypeError(
        f"example_inputs: got {type(given).__name__} {given!r:.60}; allowed: a tensor, a tuple of "
        f"arguments with tensors, or a mapping of keyword arguments; {fix}"
    )


def _call(x: Tensor) -> Call:
    kind = x.device.type
    on = torch.is_autocast_enabled(kind)
    autocast = torch.get_autocast_dtype(kind) if on else None
    return Call(tuple(x.shape), x.dtype, x.device, autocast)
