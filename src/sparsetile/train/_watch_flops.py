"""Adds up the operations of a run, step by step, as its patterns change."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from sparsetile.train._check import checked_int
from sparsetile.train._flops import FlopCount, Head, Products, stored
from sparsetile.train._trainer import Trainer


class FlopMeter:
    """Counts the operations that a run has spent; a callback of its trainer.

    Each step is counted with the patterns it ran with. Growth by gradient is counted where its
    method asks for it: the products that give the gradient of the blocks it scores.

    Args:
        model: The model that the trainer was attached to.
        sequence: Tokens of a sequence; 1 for models without attention.
        batch: Sequences of one optimizer step, over all its micro-batches.
        head: Says of a module and its name whether it belongs to the head, as for `count_flops`.

    Attributes:
        spent: The operations so far.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a number is out of range.

    Examples:
        >>> import torch
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import Static
        >>> layer = Linear(64, 64, density=0.25)
        >>> optimizer = torch.optim.SGD(layer.parameters())
        >>> trainer = Static().attach(layer, optimizer)
        >>> meter = trainer.add_callback(FlopMeter(layer, batch=10))
        >>> for _ in range(3):
        ...     layer(torch.randn(10, 64)).sum().backward()
        ...     optimizer.step()
        >>> meter.spent.total == 3 * 3 * 2 * 10 * (64 * 64 // 4)
        True
    """

    def __init__(
        self, model: nn.Module, *, sequence: int = 1, batch: int = 1, head: Head | None = None
    ) -> None:
        self._products = Products(model, head)
        self.sequence = checked_int("sequence", sequence, least=1)
        self.batch = checked_int("batch", batch, least=1)
        self.spent = FlopCount()
        self._step = 0

    def on_step(self, trainer: Trainer) -> None:
        """Add a step; once, however many callbacks ask for it."""
        if trainer.step_count == self._step:
            return
        self._step = trainer.step_count
        step = self._products.count(self.sequence, self.batch)
        self.spent = self.spent + step + FlopCount(growth=self._growth(trainer))

    def state_dict(self) -> dict[str, float]:
        """Collect what a resumed run needs to go on counting.

        Returns:
            Plain numbers.
        """
        return {"step": self._step, **asdict(self.spent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Args:
            state: The numbers.

        Raises:
            ValueError: If one is missing.
        """
        names = ("step", *asdict(FlopCount()))
        if missing := [name for name in names if name not in state]:
            raise ValueError(
                f"state lacks {', '.join(missing)}; pass what FlopMeter.state_dict() returned"
            )
        self._step = int(state["step"])
        self.spent = FlopCount(**{name: float(state[name]) for name in names[1:]})

    def _growth(self, trainer: Trainer) -> float:
        """What scoring free blocks by their gradient took in this step."""
        grow: Any = trainer.method.grow
        if not hasattr(grow, "listen"):
            return 0.0
        if not (grow.every_step or trainer.method.clock.due(trainer.step_count)):
            return 0.0
        candidates = getattr(grow, "candidates", None)
        values = 0.0
        for layer in trainer.layers.values():
            if layer.values.requires_grad:
                taken, size = stored(layer), math.prod(layer.shape)
                values += size if candidates is None else min(size - taken, candidates * taken)
        return 2.0 * self.sequence * self.batch * values
