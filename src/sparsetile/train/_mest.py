"""MEST: drop by magnitude and gradient, grow at random, a little more than fits for a while."""

from collections.abc import Sequence

from sparsetile.train._budget import Keep, Overshoot
from sparsetile.train._check import checked_int
from sparsetile.train._grow import uniform
from sparsetile.train._method import Method
from sparsetile.train._schedule import Every, Stepped
from sparsetile.train._scores import MagnitudeAndGradient


class MEST(Method):
    """Moves few blocks, fewer and fewer in steps; weak ones with a large gradient stay.

    Yuan et al., "MEST: Accurate and Fast Memory-Economic Sparse Training Framework on the Edge"
    (2021), elastic mutation. With `soft` (its soft memory bound) new blocks come first and the
    weakest leave at the next update, so a layer stores a little more than its budget until the
    last update. The gradient is that of the last step: leave it in place until after
    `optimizer.step()`, as loops do that clear it before the backward pass.

    Args:
        total_steps: Optimizer steps of the whole run.
        every: Steps between updates; the paper's are about five epochs.
        ratios: Share of the stored blocks to move in each of so many equal parts of the run.
        gradient_weight: How much the gradient's magnitude counts beside the weight's.
        soft: Whether to grow before dropping.
        seed: Seed of the random regrowth.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> method = MEST(total_steps=900, every=100)
        >>> [method.amount.count(step, nnzb=1000) for step in (100, 400, 700)]
        [20, 10, 0]
    """

    def __init__(
        self,
        *,
        total_steps: int,
        every: int,
        ratios: Sequence[float] = (0.02, 0.01, 0.0),
        gradient_weight: float = 0.01,
        soft: bool = False,
        seed: int = 0,
    ) -> None:
        if soft and ratios and ratios[-1] != 0:
            raise ValueError(
                f"soft=True needs a last ratio of 0, in whose part the layers come back to their "
                f"budget; got ratios={tuple(ratios)}"
            )
        amount = Stepped(tuple(ratios), total_steps)
        every = checked_int("every", every, least=1)
        last = (total_steps - 1) // every * every
        if soft and last and amount.count(last, 10**6):
            raise ValueError(
                f"soft=True needs an update in the last part of the run, in which the layers come "
                f"back to their budget; with total_steps={total_steps}, every={every} and "
                f"{len(ratios)} ratios the last one comes after step {last}, too early: give a "
                "smaller every"
            )
        super().__init__(
            drop=MagnitudeAndGradient(gradient_weight),
            grow=uniform,
            clock=Every(every, total_steps),
            amount=amount,
            budget=Overshoot() if soft else Keep(),
            seed=seed,
        )
