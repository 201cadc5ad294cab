"""Collects the gradients that a growth score asks for, while autograd computes them."""

import weakref
import zlib
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.ops import watch

if TYPE_CHECKING:
    from sparsetile.train._method import Method


class Listening:
    """The gradients of a model's layers, as far as the growth score of a method needs them.

    Args:
        method: The method.
        memory: What the growth score notes of each layer; looked up when it is needed.
    """

    def __init__(self, method: "Method", memory: Mapping[str, MutableMapping[str, Tensor]]) -> None:
        self._grow: Any = method.grow if hasattr(method.grow, "listen") else None
        self._seed = method.seed
        self._memory = memory
        self._step = 0
        self._layers: dict[str, BlockSparse] = {}
        self._heard: dict[str, Any] = {}
        self._ends: list[Callable[[], None]] = []
        weakref.finalize(self, _call_all, self._ends)

    def begin(self, layers: Mapping[str, BlockSparse], step: int, due: bool) -> None:
        """Listen during the step after `step`, if it is followed by an update or all are wanted."""
        if self._grow is None or not (due or self._grow.every_step):
            return
        if self._heard.keys() == layers.keys():  # since a step before
            return
        self.end()
        self._step, self._layers = step, dict(layers)
        here = weakref.ref(self)
        for name, layer in layers.items():
            self._ends.append(watch(layer.crow_indices, _Ear(here, name)))

    def observe(self) -> None:
        """Let the growth score take in what was heard during a step."""
        if self._grow is not None and self._grow.every_step:
            for name in self._layers:
                self._grow.observe(self.heard(name), self._memory[name])

    def heard(self, name: str) -> Any:
        """What is heard of a layer; the ear is made when the first gradient comes.

        Not before, since a checkpoint may be loaded into the model after the trainer's.
        """
        if name not in self._layers:
            return None
        if name not in self._heard:
            # By step and name, so that a resumed run draws the same without any state.
            seed = zlib.crc32(f"{self._seed} {self._step} {name}".encode())
            generator = torch.Generator().manual_seed(seed)
            layer = self._layers[name]
            self._heard[name] = self._grow.listen(layer, self._memory[name], generator)
        return self._heard[name]

    def release(self, name: str) -> None:
        """Let go of what was heard of a layer, which is as large as its inputs."""
        self._heard.pop(name, None)

    def end(self) -> None:
        """Listen no longer, and let go of what was heard."""
        _call_all(self._ends)
        self._layers.clear()
        self._heard.clear()


class _Ear:
    """Hands the factors of one layer's gradient on; it does not keep the trainer alive."""

    def __init__(self, listening: "weakref.ref[Listening]", name: str) -> None:
        self._listening, self._name = listening, name

    def __call__(self, a: Tensor, b: Tensor) -> None:
        if listening := self._listening():
            listening.heard(self._name).see(a, b)


def _call_all(ends: list[Callable[[], None]]) -> None:
    while ends:
        ends.pop()()
