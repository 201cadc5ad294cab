"""Bytes that training holds, counted from the tensors and not estimated."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sparsetile.nn import BlockSparse


@dataclass(frozen=True)
class Bytes:
    """Bytes of one part of a model and of what training keeps beside it.

    Examples:
        >>> Bytes(weights=400, indices=40, gradients=400, optimizer=800).total
        1640
    """

    weights: int = 0
    indices: int = 0
    gradients: int = 0
    optimizer: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.indices + self.gradients + self.optimizer


@dataclass(frozen=True)
class Memory:
    """Bytes of a model in training.

    Attributes:
        sparse: The sparse layers, biases included.
        rest: All else.
        dense: What the sparse layers would take with every block stored.

    Examples:
        >>> Memory(sparse=Bytes(weights=10), rest=Bytes(), dense=Bytes(weights=100)).share
        0.1
    """

    sparse: Bytes
    rest: Bytes
    dense: Bytes

    @property
    def share(self) -> float:
        """Bytes of the sparse layers over those of their dense twins; 1 without any."""
        return self.sparse.total / self.dense.total if self.dense.total else 1.0


def bytes_of(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    layers: Callable[[nn.Module, str], bool] | None = None,
) -> Memory:
    """Count the bytes of weights, indices, gradients and optimizer state.

    Gradients and optimizer state are those that exist now: ask after a training step. What kernels
    keep for a moment, and activations, are not counted.

    Args:
        model: Any module.
        optimizer: Its optimizer, or None to count none of its state.
        layers: Says of a module and its name whether it counts as sparse; the sparse layers if
            None. For comparing with a dense model: the layers that would be sparse.

    Returns:
        The bytes, of the sparse layers and the rest apart, beside the dense twin.

    Raises:
        TypeError: If an argument is of the wrong type.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(64, 64, bias=False, density=0.25)
        >>> bytes_of(layer, torch.optim.SGD(layer.parameters())).sparse
        Bytes(weights=4096, indices=36, gradients=0, optimizer=0)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer must be a torch optimizer or None, got {kind}")
    if layers is not None and (isinstance(layers, type) or not callable(layers)):
        raise TypeError(f"layers must be a function of a module and its name, got {layers!r}")
    chosen = layers or (lambda module, name: isinstance(module, BlockSparse))
    inside = [module for name, module in model.named_modules() if chosen(module, name)]
    return memory_of(inside, model.parameters(), optimizer)


def memory_of(
    layers: Sequence[nn.Module],
    parameters: Iterable[nn.Parameter],
    optimizer: torch.optim.Optimizer | None,
) -> Memory:
    """Count the bytes of some layers, and of all other parameters.

    Args:
        layers: The layers that count as sparse; parameters that several share count once.
        parameters: All parameters, or the others.
        optimizer: What keeps state for them, or None.

    Returns:
        The bytes.

    Examples:
        >>> layer = nn.Linear(4, 2)
        >>> memory_of([layer], [], None).sparse.weights
        40
    """
    own = {id(p): p for layer in layers for p in layer._parameters.values() if p is not None}
    others = [p for p in parameters if id(p) not in own]
    indices = sum(b.nbytes for layer in layers for b in _indices(layer))
    # How much larger each block-sparse parameter is in the dense twin.
    growth = {
        id(layer.values): (layer.values.shape, math.prod(layer.shape))
        for layer in layers
        if isinstance(layer, BlockSparse)
    }

    def in_dense(parameter: nn.Parameter, tensor: Tensor) -> int:
        shape, size = growth.get(id(parameter), (None, 0))
        return size * tensor.element_size() if tensor.shape == shape else tensor.nbytes

    def as_it_is(parameter: nn.Parameter, tensor: Tensor) -> int:
        return tensor.nbytes

    return Memory(
        _counted(own.values(), optimizer, as_it_is, indices),
        _counted(others, optimizer, as_it_is, 0),
        _counted(own.values(), optimizer, in_dense, 0),
    )


def _counted(
    parameters: Iterable[nn.Parameter],
    optimizer: torch.optim.Optimizer | None,
    size: Callable[[nn.Parameter, Tensor], int],
    indices: int,
) -> Bytes:
    weights = gradients = state = 0
    for p in parameters:
        weights += size(p, p)
        gradients += 0 if p.grad is None else size(p, p.grad)
        state += sum(size(p, tensor) for tensor in _state(optimizer, p))
    return Bytes(weights, indices, gradients, state)


def _indices(layer: nn.Module) -> Iterator[Tensor]:
    """The index tensors of a sparse layer."""
    if isinstance(layer, BlockSparse):
        for buffer in layer._buffers.values():
            if buffer is not None:
                yield buffer


def _state(optimizer: torch.optim.Optimizer | None, parameter: nn.Parameter) -> Iterator[Tensor]:
    if optimizer is not None:
        for value in optimizer.state.get(parameter, {}).values():
            if isinstance(value, Tensor):
                yield value
