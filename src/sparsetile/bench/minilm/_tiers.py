"""How much of the proof is done, by the time there is."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One model that is trained again after pruning.

    Args:
        density: Of its layers.
        blocksize: Side of their blocks.
        method: `static`, or `dynsparse` where blocks move.
        steps: Optimizer steps.
        batch: Sentences a step.
        rate: Highest learning rate.
        updates: Times that blocks move, for `dynsparse`.
        prune_ratio: Share of the blocks that moves at first.
    """

    density: float
    blocksize: int
    method: str
    steps: int
    batch: int
    rate: float
    updates: int = 20
    prune_ratio: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Tier:
    """One size of the proof.

    Args:
        real: The real weights, or a tiny model with random ones.
        densities: Of the pruned layers.
        blocksizes: Sides of the blocks.
        methods: Names of `minilm.METHODS`.
        calibration: Sentences that pruning looks at.
        held_out: Sentences that models are judged on.
        training: Sentences that recovery learns from.
        files: Files of the standard library to read; all if None.
        plays: Shakespeare's sentences too.
        tokens: Longest sentence, in tokens.
        recoveries: Models that are trained again.
        every: Steps between checkpoints.
        sequence: Tokens of a row when models are timed.
        batches: Rows of a batch when models are timed.
        rounds: Turns of each model when models are timed.
        peaks: Peak memory too, a process for each model.
    """

    real: bool
    densities: tuple[float, ...]
    blocksizes: tuple[int, ...]
    methods: tuple[str, ...]
    calibration: int
    held_out: int
    training: int
    files: int | None = None
    plays: bool = True
    tokens: int = 128
    recoveries: tuple[Recovery, ...]
    every: int = 200
    sequence: int = 128
    batches: tuple[int, ...] = (1, 32)
    rounds: int = 9
    peaks: bool = True


ALL = ("magnitude", "magnitude+solve", "wanda", "wanda+solve", "sparsegpt", "sparsegpt+solve")

TIERS: dict[str, Tier] = {
    "ci": Tier(
        real=False,
        densities=(0.5,),
        blocksizes=(1, 4),
        methods=("magnitude", "sparsegpt", "sparsegpt+solve"),
        calibration=16,
        held_out=24,
        training=64,
        files=12,
        plays=False,
        tokens=32,
        recoveries=(
            Recovery(
                density=0.5,
                blocksize=4,
                method="dynsparse",
                steps=12,
                batch=8,
                rate=1e-3,
                updates=3,
            ),
        ),
        every=5,
        sequence=16,
        batches=(1, 4),
        rounds=3,
        peaks=False,
    ),
    "nightly": Tier(
        real=True,
        densities=(0.75, 0.5, 0.3, 0.2),
        blocksizes=(1, 4, 16),
        methods=ALL,
        calibration=128,
        held_out=512,
        training=60_000,
        recoveries=tuple(
            Recovery(
                density=0.3,
                blocksize=4,
                method=method,
                steps=3000,
                batch=32,
                rate=5e-4,
            )
            for method in ("dynsparse", "static")
        ),
    ),
}
