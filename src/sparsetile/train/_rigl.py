"""RigL: drop small weights, grow where the gradient is large."""

from sparsetile.train._check import checked_int, checked_share, last_step
from sparsetile.train._gradient import Norm
from sparsetile.train._grow_gradient import ByGradient
from sparsetile.train._method import Method
from sparsetile.train._schedule import Cosine, Every
from sparsetile.train._scores import block_l1
from sparsetile.train._young import AsPublished, Young


class RigL(Method):
    """Moves a layer's weakest blocks to where the gradient of the last step is largest.

    Evci et al., "Rigging the Lottery: Making All Tickets Winners" (2020). The share of moved blocks
    falls as half a cosine and updates stop after `stop` of the run. New blocks start at zero. In
    language models a few input features with large activations draw all growth, so coverage stays
    low: compare with `DynSparse`.

    Args:
        total_steps: Optimizer steps of the whole run.
        every: Steps between updates.
        prune_ratio: Share of the stored blocks to move at first, in [0, 1].
        stop: Share of the run after which patterns stay, in [0, 1].
        norm: Score of a block of the gradient.
        candidates: Free blocks whose gradient is looked at, as a multiple of the stored ones; None
            for all, exactly, as published.
        young: How new blocks take their first steps.
        seed: Seed of what is random: the candidates.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> method = RigL(total_steps=1000)
        >>> [step for step in range(1, 1001) if method.clock.due(step)]
        [100, 200, 300, 400, 500, 600, 700]
    """

    def __init__(
        self,
        *,
        total_steps: int,
        every: int = 100,
        prune_ratio: float = 0.3,
        stop: float = 0.75,
        norm: Norm = "l1",
        candidates: float | None = None,
        young: Young | None = None,
        seed: int = 0,
    ) -> None:
        last = last_step(total_steps, stop)
        super().__init__(
            drop=block_l1,
            grow=ByGradient(norm, candidates=candidates),
            clock=Every(checked_int("every", every, least=1), last),
            amount=Cosine(checked_share("prune_ratio", prune_ratio), last),
            young=AsPublished() if young is None else young,
            seed=seed,
        )
