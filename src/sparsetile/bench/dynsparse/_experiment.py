"""`sparsetile reproduce dynsparse`: trains what a tier asks for, then draws what came out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sparsetile.bench._progress import say
from sparsetile.bench.dynsparse._data import Data, load
from sparsetile.bench.dynsparse._drive import drive
from sparsetile.bench.dynsparse._plan import jobs
from sparsetile.bench.dynsparse._store import Store
from sparsetile.bench.dynsparse._tiers import TIERS, Tier


def data_of(tier: Tier, texts: Sequence[Path] | None) -> Data:
    """The tokens a tier trains on: the user's texts, or the tier's own."""
    if texts is None and not tier.shakespeare:
        texts = []
    return load(texts, vocabulary=tier.vocabulary, limit=tier.limit)


def train(
    folder: Path, tier_name: str, texts: Sequence[Path] | None = None, processes: int = 1,
    stages: Sequence[str] = (), methods: Sequence[str] = (),
) -> None:
    """Do the runs of a tier that are not done yet."""
    tier = TIERS[tier_name]
    data = data_of(tier, texts)
    tier = replace(tier, vocabulary=data.vocabulary)
    store = Store(folder)
    say(
        f"{data.source}: {len(data.train):,} tokens to learn from, {len(data.held_out):,} held "
        f"out; knowing only how often each comes gives {data.unigram:.3f} nats"
    )

    def wanted():
        for job in jobs(tier, data.source, store.losses):
            if (not stages or job.stage in stages) and (
                not methods or job.setting.method in methods
            ):
                yield job

    drive(store, data, wanted, processes)
