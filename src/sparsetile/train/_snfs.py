"""SNFS, sparse momentum: grow where the smoothed gradient is large, in the layers that need it."""

from sparsetile.train._budget import ByMeanMomentum, Keep
from sparsetile.train._check import checked_int, checked_share
from sparsetile.train._grow_gradient import ByMomentum
from sparsetile.train._method import Method
from sparsetile.train._schedule import Cosine, Every
from sparsetile.train._scores import block_l1


class SNFS(Method):
    """Moves blocks to where the smoothed gradient is largest, and between layers by its mean.

    Dettmers and Zettlemoyer, "Sparse Networks from Scratch: Faster Training without Losing
    Performance" (2019). The paper keeps the momentum of the dense weight; here it is kept for
    random candidates, so memory stays that of a sparse model (`candidates=None` looks at all).

    Args:
        total_steps: Optimizer steps of the whole run; the last one is not followed by an update.
        every: Steps between updates; the paper's are an epoch.
        prune_ratio: Share of the stored blocks to move at first, in [0, 1]; falls as half a cosine.
        smoothing: Share of the old momentum that a step keeps, in [0, 1).
        candidates: Free blocks whose momentum is kept, as a multiple of the stored ones.
        redistribute: Whether layers share what grows by their mean momentum. They then change their
            number of blocks, and compiled graphs are compiled again.
        seed: Seed of the candidates.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> SNFS(total_steps=1000, every=100).amount.count(step=1, nnzb=1000)
        500
    """

    def __init__(
        self,
        *,
        total_steps: int,
        every: int,
        prune_ratio: float = 0.5,
        smoothing: float = 0.9,
        candidates: float | None = 1.0,
        redistribute: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__(
            drop=block_l1,
            grow=ByMomentum(smoothing, candidates=candidates),
            clock=Every(checked_int("every", every, least=1), total_steps),
            amount=Cosine(checked_share("prune_ratio", prune_ratio), total_steps),
            budget=ByMeanMomentum() if redistribute else Keep(),
            seed=seed,
        )
