"""SRigL: RigL with equally many weights in every row."""

from sparsetile.train._check import checked_int, checked_share, last_step
from sparsetile.train._constraint import EqualRows
from sparsetile.train._grow_gradient import ByGradient
from sparsetile.train._method import Method
from sparsetile.train._schedule import Cosine, Every
from sparsetile.train._scores import block_l1


class SRigL(Method):
    """Moves blocks as RigL does, with equally many blocks in every block row.

    Lasby et al., "Dynamic Sparse Training with Structured Sparsity" (2024), whose constant fan-in
    this is at blocks of 1×1. Rows with too few salient weights are given up and the others get
    theirs (`ablate_below`, the paper's γ: 0.3, and 0.95 for vision transformers). Numbers differ by
    one where the total is no multiple of the rows. Start from `sparsify_(…, balanced=True)`, or
    the first update balances.

    Args:
        total_steps: Optimizer steps of the whole run.
        every: Steps between updates.
        prune_ratio: Share of the stored blocks to move at first, in [0, 1].
        stop: Share of the run after which patterns stay, in [0, 1].
        ablate_below: Share of a row's blocks that must be salient; 0 keeps all rows.
        seed: Seed of what is random.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> SRigL(total_steps=1000).constraint.ablate_below
        0.3
    """

    def __init__(
        self,
        *,
        total_steps: int,
        every: int = 100,
        prune_ratio: float = 0.3,
        stop: float = 0.75,
        ablate_below: float = 0.3,
        seed: int = 0,
    ) -> None:
        last = last_step(total_steps, stop)
        super().__init__(
            drop=block_l1,
            grow=ByGradient(),
            clock=Every(checked_int("every", every, least=1), last),
            amount=Cosine(checked_share("prune_ratio", prune_ratio), last),
            constraint=EqualRows(ablate_below),
            seed=seed,
        )
