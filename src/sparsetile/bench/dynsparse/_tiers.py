"""How much of the experiment is done, by the time there is."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One size of the experiment.

    Args:
        layers: Transformer blocks of every model.
        width: Features of the sparse models.
        dense_widths: Features of the dense models; the matched one is interpolated between them.
        blocks: Sides of the blocks.
        rates: Learning rates to try first, ascending; more are tried where the best is at an end.
        steps: Steps of the runs that are compared.
        every: Steps between updates.
        short_steps: Steps of the runs that try learning rates, with the first seed, and of the
            ablations; as many as the compared ones have if 0.
        short_every: Steps between their updates; as in the compared ones if 0.
        swept: Whether learning rates are tried; else the middle one is taken.
        seeds: How many.
        batch: Rows of a step.
        rigl_blocks: Sides of the blocks of RigL's runs.
        ablated_blocks: Sides of the blocks of the ablations' runs; none for no ablations.
        intervals: Steps between updates, to compare.
        prune_ratios: Shares to move at first, to compare.
        drops: Scores of the blocks, to compare; at the last of `ablated_blocks` only.
        timed_rounds: Turns of each model when steps are timed.
        limit: Characters of the text to keep, where it is not Shakespeare's.
        objectives: `clm`, or both.
        vocabulary: Different tokens.
        shakespeare: Whether Shakespeare is the text, or the standard library's source.
    """

    layers: int
    width: int
    dense_widths: tuple[int, ...]
    blocks: tuple[int, ...]
    rates: tuple[float, ...]
    steps: int
    every: int
    short_steps: int = 0
    short_every: int = 0
    swept: bool = True
    seeds: int
    batch: int = 8
    sequence: int = 64
    density: float = 0.1
    prune_ratio: float = 0.5
    rigl_blocks: tuple[int, ...] = ()
    ablated_blocks: tuple[int, ...] = ()
    intervals: tuple[int, ...] = ()
    prune_ratios: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    drops: tuple[str, ...] = ("l1", "l2", "max")
    timed_rounds: int = 12
    limit: int = 8_000_000
    objectives: tuple[str, ...] = ("clm",)
    vocabulary: int = 1024
    shakespeare: bool = True

    @property
    def short(self) -> tuple[int, int]:
        """Steps of a short run, and between its updates."""
        return self.short_steps or self.steps, self.short_every or self.every


_RATES = (2e-3, 4e-3, 8e-3)

TIERS: dict[str, Tier] = {
    "ci": Tier(
        layers=2,
        width=128,
        dense_widths=(32, 48),
        blocks=(4, 8),
        rates=(8e-3,),
        steps=60,
        swept=False,
        every=15,
        seeds=1,
        vocabulary=512,
        timed_rounds=3,
        limit=150_000,
        shakespeare=False,
    ),
    "nightly": Tier(
        layers=2,
        width=256,
        dense_widths=(64, 92, 144),
        blocks=(1, 4, 8, 16),
        rates=_RATES,
        steps=9000,
        every=450,
        short_steps=3000,
        short_every=150,
        seeds=3,
        batch=16,
        rigl_blocks=(1, 16),
        ablated_blocks=(1, 16),
        intervals=(50, 150, 300, 600, 1500),
    ),
    "report": Tier(
        layers=4,
        width=384,
        dense_widths=(92, 132, 204),
        blocks=(1, 4, 8, 16),
        rates=_RATES,
        steps=10_000,
        every=450,
        seeds=3,
        batch=16,
        rigl_blocks=(1, 4, 8, 16),
        ablated_blocks=(1, 16),
        intervals=(150, 300, 450, 900, 2500),
    ),
    "long": Tier(
        layers=4,
        width=512,
        dense_widths=(120, 172, 268),
        blocks=(1, 4, 8, 16),
        rates=_RATES,
        steps=20_000,
        every=450,
        seeds=3,
        batch=16,
        rigl_blocks=(1, 16),
        ablated_blocks=(1, 16),
        intervals=(150, 450, 1500),
        objectives=("clm", "mlm"),
    ),
}
