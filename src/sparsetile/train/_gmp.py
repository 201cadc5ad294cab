"""Gradual magnitude pruning: from dense to sparse."""

from typing import Literal

import torch
from torch import nn

from sparsetile.train._budget import Cubic
from sparsetile.train._check import checked_int, last_step
from sparsetile.train._grow import uniform
from sparsetile.train._method import Method
from sparsetile.train._schedule import Constant, Within
from sparsetile.train._scores import Drop, block_l1
from sparsetile.train._trainer import Trainer


class GMP(Method):
    """Drops the weakest blocks until a density is reached, and grows none.

    Zhu and Gupta, "To prune, or not to prune: exploring the efficacy of pruning for model
    compression" (2017). It is not always sparse: the paper starts dense, so make the model by
    `sparsify_(model, density=1.0, …)`. Any density above the last one will do; from one that is
    not above it there is nothing to drop, and the first step refuses. Memory and time fall as
    blocks leave; compiled graphs are compiled again after each update.

    Args:
        density: Density to end with, in (0, 1].
        total_steps: Optimizer steps of the whole run.
        every: Steps between updates.
        start: Share of the run before the first block leaves.
        stop: Share of the run after which the density is reached.
        scope: "layer": every layer goes to this density; "global": the layers together do.
        drop: Score of the stored blocks.
        seed: Not used; all trainers take one.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> method = GMP(density=0.1, total_steps=1000)
        >>> [step for step in range(1, 1001) if method.clock.due(step)]
        [100, 200, 300, 400, 500, 600, 700, 750]
        >>> method.budget.density(750, initial=1.0)
        0.1
    """

    def __init__(
        self,
        *,
        density: float,
        total_steps: int,
        every: int = 100,
        start: float = 0.0,
        stop: float = 0.75,
        scope: Literal["layer", "global"] = "layer",
        drop: Drop = block_l1,
        seed: int = 0,
    ) -> None:
        first = last_step(total_steps, start, name="start", least=0)
        last = last_step(total_steps, stop)
        if last <= first:
            raise ValueError(f"stop must come after start, got start={start} and stop={stop}")
        super().__init__(
            drop=drop,
            grow=uniform,
            clock=Within(checked_int("every", every, least=1), first, last),
            amount=Constant(0.0),
            budget=Cubic(density, first, last, scope),
            seed=seed,
        )

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trainer:
        """Follow an optimizer from now on; the first step refuses a model as sparse already.

        Args:
            model: A model with sparse layers that store more than they are to have at the end.
            optimizer: The optimizer that holds their values.

        Returns:
            The trainer.

        Raises:
            TypeError: If the arguments are no module and optimizer.
            ValueError: If `Method.attach` refuses.
        """
        trainer = super().attach(model, optimizer)
        trainer.add_callback(_StartsDenser())
        return trainer


class _StartsDenser:
    """Refuses a run that has nothing to drop; not before its first step, as it may be resumed."""

    def on_step(self, trainer: Trainer) -> None:
        budget = trainer.method.budget
        if trainer.step_count > 1 or not isinstance(budget, Cubic) or budget.final == 1:
            return
        densities = {name: layer.density for name, layer in trainer.layers.items()}
        if max(densities.values()) <= budget.final:
            name, density = max(densities.items(), key=lambda item: item[1])
            raise ValueError(
                f"GMP(density={budget.final:g}) goes from dense to sparse, and the model is that "
                f"sparse already: layer {name!r}, the densest, has density {density:.3g}; begin "
                "with sparsify_(model, density=1.0, …), or take another method"
            )
