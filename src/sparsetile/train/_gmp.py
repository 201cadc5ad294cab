"""Gradual magnitude pruning: from dense to sparse."""

from typing import Literal

from sparsetile.train._budget import Cubic
from sparsetile.train._check import checked_int, last_step
from sparsetile.train._grow import uniform
from sparsetile.train._method import Method
from sparsetile.train._schedule import Constant, Within
from sparsetile.train._scores import Drop, block_l1


class GMP(Method):
    """Drops the weakest blocks until a density is reached, and grows none.

    Zhu and Gupta, "To prune, or not to prune: exploring the efficacy of pruning for model
    compression" (2017). It is not always sparse: start it from `sparsify_(model, density=1.0, …)`,
    or from any density. Memory and time fall as blocks leave; compiled graphs are compiled again
    after each update.

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
