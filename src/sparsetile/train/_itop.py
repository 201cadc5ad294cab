"""ITOP: rare updates, so that new weights have the time to prove themselves."""

from typing import Literal

from sparsetile.train._check import checked_int, checked_share
from sparsetile.train._grow import Grow, uniform
from sparsetile.train._grow_gradient import ByGradient
from sparsetile.train._method import Method
from sparsetile.train._schedule import Cosine, Every
from sparsetile.train._scores import block_l1

_EVERY = {"random": 1500, "gradient": 4000}


class ITOP(Method):
    """Explores all positions over time, with long intervals between updates.

    Liu et al., "Do We Actually Need Dense Over-Parameterization? In-Time Over-Parameterization in
    Sparse Training" (2021). Both of its methods: growth at random (SET-ITOP) and by gradient
    (RigL-ITOP). `Trainer.coverage()` is its exploration rate. The paper's densities by layer are
    those of `nn.ERK`.

    Args:
        total_steps: Optimizer steps of the whole run; the last one is not followed by an update.
        grow: "random" or "gradient".
        every: Steps between updates; the paper's 1,500 for random and 4,000 for gradient growth if
            not given.
        prune_ratio: Share of the stored blocks to move at first, in [0, 1]; falls as half a cosine.
        seed: Seed of the random regrowth.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> method = ITOP(total_steps=10_000)
        >>> [step for step in range(1, 10_001) if method.clock.due(step)]
        [1500, 3000, 4500, 6000, 7500, 9000]
    """

    def __init__(
        self,
        *,
        total_steps: int,
        grow: Literal["random", "gradient"] = "random",
        every: int | None = None,
        prune_ratio: float = 0.5,
        seed: int = 0,
    ) -> None:
        if grow not in _EVERY:
            raise ValueError(f'grow must be "random" or "gradient", got {grow!r}')
        score: Grow = uniform if grow == "random" else ByGradient()
        every = _EVERY[grow] if every is None else checked_int("every", every, least=1)
        super().__init__(
            drop=block_l1,
            grow=score,
            clock=Every(every, total_steps),
            amount=Cosine(checked_share("prune_ratio", prune_ratio), total_steps),
            seed=seed,
        )
