"""Which runs a tier has, in the order in which they are worth most."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sparsetile.bench.dynsparse._setting import Setting
from sparsetile.bench.dynsparse._tiers import Tier

_FACTOR, _WIDER = 2.0, 2  # between learning rates tried, and how often a sweep is widened

#: Parts of the experiment.
STAGES = ("sweep", "main", "updates", "ratio", "norm")


@dataclass(frozen=True)
class Job:
    """A run and the part of the experiment that asks for it."""

    stage: str
    setting: Setting


def jobs(tier: Tier, text: str, losses: Mapping[Setting, float]) -> Iterator[Job]:
    """List the runs of a tier that are known so far.

    The compared runs take the best learning rate of their own sweep, so they appear when that
    sweep is done.

    Args:
        tier: The tier.
        text: What is trained on.
        losses: Final losses of the runs that are done.

    Yields:
        Runs, done ones too, the most wanted first.
    """
    for objective in tier.objectives:
        yield from _jobs_of(tier, text, losses, objective)


def _jobs_of(
    tier: Tier, text: str, losses: Mapping[Setting, float], objective: str
) -> Iterator[Job]:
    families = [replace(f, objective=objective, text=text) for f in _families(tier)]
    rigl = [replace(f, objective=objective, text=text) for f in _rigl(tier)]
    if tier.swept:
        for family in families:
            for setting in _sweep(tier, family, losses):
                yield Job("sweep", setting)
    for seed in range(tier.seeds):
        for family in families:
            yield from _at_best(tier, family, losses, "main", seed=seed)
        if seed == 0:
            for family in rigl:
                yield from _at_best(tier, family, losses, "main", seed=0)
    for blocksize in tier.ablated_blocks:
        yield from _ablations(tier, families, blocksize, losses)
    for seed in range(1, tier.seeds):
        for family in rigl:
            yield from _at_best(tier, family, losses, "main", seed=seed)


def best_rate(tier: Tier, family: Setting, losses: Mapping[Setting, float]) -> float | None:
    """The learning rate for a run of so many steps; None until the sweep is done.

    It is that of the best run of the sweep; where those were shorter, times the root of the ratio
    of steps, since longer runs want lower rates.
    """
    if not tier.swept:
        return tier.rates[len(tier.rates) // 2]
    tried = list(_sweep(tier, _swept_as(family), losses))
    if any(setting not in losses for setting in tried):
        return None
    best = min(tried, key=lambda setting: losses[setting])
    if best.steps == family.steps:
        return best.lr
    return float(f"{best.lr * (best.steps / family.steps) ** 0.5:.2g}")


def _sweep(tier: Tier, family: Setting, losses: Mapping[Setting, float]) -> Sequence[Setting]:
    shape = _short(tier, family)
    tried = [replace(shape, lr=rate) for rate in tier.rates]
    for _ in range(_WIDER):
        if any(setting not in losses for setting in tried):
            break
        best = min(tried, key=lambda setting: losses[setting])
        if best is tried[0]:
            tried.insert(0, replace(best, lr=best.lr / _FACTOR))
        elif best is tried[-1]:
            tried.append(replace(best, lr=best.lr * _FACTOR))
    return tried


def _at_best(
    tier: Tier,
    family: Setting,
    losses: Mapping[Setting, float],
    stage: str,
    **changes: float | int | str,
) -> Iterator[Job]:
    rate = best_rate(tier, family, losses)
    if rate is not None:
        yield Job(stage, replace(family, lr=rate, **changes))  # type: ignore[arg-type]


def _ablations(
    tier: Tier, families: Sequence[Setting], blocksize: int, losses: Mapping[Setting, float]
) -> Iterator[Job]:
    [family] = [f for f in families if (f.method, f.blocksize) == ("dynsparse", blocksize)]
    [static] = [f for f in families if (f.method, f.blocksize) == ("static", blocksize)]
    family, static = _short(tier, family), _short(tier, static)
    yield from _at_best(tier, static, losses, "updates")
    for every in tier.intervals:
        yield from _at_best(tier, family, losses, "updates", every=every)
    for ratio in tier.prune_ratios:
        yield from _at_best(tier, family, losses, "ratio", prune_ratio=ratio)
    if blocksize == tier.ablated_blocks[-1]:
        for drop in tier.drops:
            yield from _at_best(tier, family, losses, "norm", drop=drop)


def _short(tier: Tier, family: Setting) -> Setting:
    steps, every = tier.short
    return replace(family, steps=steps, every=every if family.moves else 0, seed=0)


def _families(tier: Tier) -> Iterator[Setting]:
    """One setting for each line of the comparison; learning rate, steps and seed are open."""
    for width in tier.dense_widths:
        yield _setting(tier, "dense", 0, width=width)
    for blocksize in tier.blocks:
        for method in ("static", "dynsparse"):
            yield _setting(tier, method, blocksize)


def _rigl(tier: Tier) -> list[Setting]:
    return [_setting(tier, "rigl", blocksize) for blocksize in tier.rigl_blocks]


def _swept_as(family: Setting) -> Setting:
    """RigL takes the rate of DynSparse: only where blocks grow differs."""
    if family.method != "rigl":
        return family
    return replace(family, method="dynsparse", prune_ratio=0.5, drop="l1")


def _setting(tier: Tier, method: str, blocksize: int, width: int = 0) -> Setting:
    moves = method in ("dynsparse", "rigl")
    return Setting(
        method=method,
        blocksize=blocksize,
        width=width or tier.width,
        layers=tier.layers,
        lr=0.0,
        steps=tier.steps,
        every=tier.every if moves else 0,
        prune_ratio=tier.prune_ratio if moves else 0.0,
        drop="l1" if moves else "",
        density=tier.density if blocksize else 1.0,
        batch=tier.batch,
        sequence=tier.sequence,
        vocabulary=tier.vocabulary,
    )
