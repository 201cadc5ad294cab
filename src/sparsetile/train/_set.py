"""SET: drop the weakest of each sign, regrow at random, always the same share."""

from sparsetile.train._check import checked_int, checked_share
from sparsetile.train._grow import uniform
from sparsetile.train._method import Method
from sparsetile.train._schedule import Constant, Every
from sparsetile.train._scores import signed


class SET(Method):
    """Moves the same share of every layer at the end of each epoch.

    Mocanu et al., "Scalable training of artificial neural networks with adaptive sparse
    connectivity inspired by network science" (2018). Of single values the smallest positive and the
    largest negative are dropped, of larger blocks those with the smallest sum of magnitudes. The
    paper's densities by layer are those of `nn.ER`.

    Args:
        total_steps: Optimizer steps of the whole run; the last one is not followed by an update.
        every: Steps between updates; the paper's are an epoch.
        prune_ratio: Share of the stored blocks to move, in [0, 1].
        seed: Seed of the random regrowth.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> method = SET(total_steps=1000, every=100)
        >>> [method.amount.count(step, nnzb=1000) for step in (100, 900)]
        [300, 300]
    """

    def __init__(
        self, *, total_steps: int, every: int, prune_ratio: float = 0.3, seed: int = 0
    ) -> None:
        super().__init__(
            drop=signed,
            grow=uniform,
            clock=Every(checked_int("every", every, least=1), total_steps),
            amount=Constant(checked_share("prune_ratio", prune_ratio)),
            seed=seed,
        )
