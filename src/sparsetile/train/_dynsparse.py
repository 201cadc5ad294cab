"""DynSparse: drop small blocks, regrow at random, on a cosine schedule.

Dietrich, Gressmann, Orr, Chelombiev, Justus, Luschi: "Towards Structured Dynamic Sparse
Pre-Training of BERT" (2021).
"""

from sparsetile.train._check import checked_int, checked_share
from sparsetile.train._grow import uniform
from sparsetile.train._method import Method
from sparsetile.train._schedule import Cosine, Evenly, Every
from sparsetile.train._scores import Drop, block_l1
from sparsetile.train._young import AsPublished, Young


class DynSparse(Method):
    """Moves a layer's weakest blocks to random new places, fewer and fewer through the run.

    At each update the stored blocks with the smallest sum of magnitudes are dropped and as many
    are grown at positions that are free and were so before the update. Their share falls from
    `prune_ratio` to 0 as half a cosine. New blocks start at zero, with zero optimizer state.

    Args:
        total_steps: Optimizer steps of the whole run; the last one is not followed by an update.
        updates: Equal pieces to cut the run into, with an update between each two. The paper
            found 80 best for blocks of 16×16 and 160 for 1×1, whatever the length.
        every: Update every so many steps instead.
        prune_ratio: Share of the stored blocks to move at first, in [0, 1].
        drop: Score of the stored blocks; the paper found the sum of magnitudes best.
        young: How new blocks take their first steps.
        seed: Seed of the random regrowth.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or both `updates` and `every` are given.

    Examples:
        >>> method = DynSparse(total_steps=8000)
        >>> sum(method.clock.due(step) for step in range(1, 8001))
        79
        >>> method.amount.count(step=100, nnzb=1000)
        500
    """

    def __init__(
        self,
        *,
        total_steps: int,
        updates: int | None = None,
        every: int | None = None,
        prune_ratio: float = 0.5,
        drop: Drop = block_l1,
        young: Young | None = None,
        seed: int = 0,
    ) -> None:
        total_steps = checked_int("total_steps", total_steps, least=1)
        if updates is not None and every is not None:
            raise ValueError(f"give updates or every, not both; got {updates=} and {every=}")
        clock: Every | Evenly
        if every is not None:
            clock = Every(checked_int("every", every, least=1), total_steps)
        else:
            pieces = checked_int("updates", 80 if updates is None else updates, least=1)
            if pieces > total_steps:
                raise ValueError(
                    f"updates={pieces} does not fit into total_steps={total_steps}; "
                    f"give updates of at most {total_steps}, or every=…"
                )
            clock = Evenly(pieces, total_steps)
        super().__init__(
            drop=drop,
            grow=uniform,
            clock=clock,
            amount=Cosine(checked_share("prune_ratio", prune_ratio), total_steps),
            young=AsPublished() if young is None else young,
            seed=checked_int("seed", seed, least=0, most=2**63 - 1),
        )
