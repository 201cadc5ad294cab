"""Collects the gradients that a growth score asks for, while autograd computes them."""

import weakref
import zlib
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.ops import watch
from sparsetile.train._gradient import Gradient

if TYPE_CHECKING:
    from sparsetile.train._method import Method


class Listening:
    """The gradients of a model's layers, as far as the growth score of a method needs them.

    Args:
        method: The method.
    """

    def __init__(self, method: "Method") -> None:
        self._grow: Any = method.grow if hasattr(method.grow, "listen") else None
        self._seed = method.seed
        self._heard: dict[str, Any] = {}
        self._ends: list[Any] = []
        weakref.finalize(self, _all, self._ends)

    def begin(
        self,
        layers: Mapping[str, BlockSparse],
        memory: Mapping[str, MutableMapping[str, Tensor]],
        step: int,
        due: bool,
    ) -> None:
        """Listen during the step after `step`, if it is followed by an update or all are wanted."""
        if self._grow is None or not (due or self._grow.every_step):
            return
        for name, layer in layers.items():
            if name in self._heard:  # since a step before
                continue
            # By step and name, so that a resumed run draws the same without any state.
            seed = zlib.crc32(f"{self._seed} {step} {name}".encode())
            generator = torch.Generator().manual_seed(seed)
            heard = self._grow.listen(layer, memory[name], generator)
            self._heard[name] = heard
            self._ends.append(watch(layer.crow_indices, heard.see))

    def observe(self, memory: Mapping[str, MutableMapping[str, Tensor]]) -> None:
        """Let the growth score take in what was heard during a step."""
        if self._grow is not None and self._grow.every_step:
            for name, heard in self._heard.items():
                self._grow.observe(heard, memory[name])

    def gradient(self, name: str) -> Gradient | None:
        """What was heard of a layer."""
        heard: Gradient | None = self._heard.get(name)
        return heard

    def end(self) -> None:
        """Listen no longer, and let go of what was heard."""
        _all(self._ends)
        self._heard.clear()


def _all(ends: list[Any]) -> None:
    while ends:
        ends.pop()()
