"""Latency and peak memory: all models in turns, in one run."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sparsetile.bench._busy import Neighbours
from sparsetile.bench._errors import CommandError
from sparsetile.bench._measure import interleave
from sparsetile.bench._progress import say
from sparsetile.bench.minilm._cells import Data, Row
from sparsetile.bench.minilm._contenders import (
    DENSE,
    Contender,
    dense_contenders,
    sparse_contender,
)
from sparsetile.bench.minilm._files import load, path_of, save_dense
from sparsetile.bench.minilm._peak import peak_bytes

COLUMNS = (
    "name", "density", "blocksize", "batch", "sequence", "threads", "rounds", "ms", "least_ms",
    "most_ms", "dense_ratio", "peak_bytes", "peak_ratio", "others", "why_not",
)  # fmt: skip
# Longest that the turns of one batch may take, in seconds.
_SECONDS = 1800.0


def time_models(
    folder: Path,
    data: Data,
    names: Mapping[str, tuple[float, int]],
    stop: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Time dense and pruned models on the same tokens, and weigh each in a process of its own.

    Args:
        folder: Of the proof; holds the pruned models.
        data: The dense model.
        names: Pruned models by the names of their folders: density and block size.
        stop: Asked before every call.

    Returns:
        One row for each model and batch; a dense one that cannot be timed says why.

    Raises:
        KeyboardInterrupt: If `stop` said so.
    """
    tier, threads = data.tier, torch.get_num_threads()
    draw = torch.Generator().manual_seed(0)
    most = int(getattr(data.subject.model.config, "vocab_size", 2))
    contenders = dense_contenders(
        data.subject.model, torch.randint(most, (1, tier.sequence), generator=draw)
    )
    for one in contenders:
        if one.why_not:
            say(f"  {one.name} is not timed: {one.why_not}")
    contenders += [sparse_contender(name, load(path_of(folder, name))) for name in names]
    peaks = _peaks(folder, data, list(names), threads) if tier.peaks else {}
    rows: list[Row] = []
    for batch in tier.batches:
        tokens = torch.randint(most, (batch, tier.sequence), generator=draw)
        say(f"timing {len(contenders)} models at batch {batch}")
        neighbours = Neighbours()
        times = interleave(
            {one.name: _call(one, tokens) for one in contenders if one.run is not None},
            seconds=_SECONDS,
            rounds=(min(3, tier.rounds), tier.rounds),
            stop=stop,
        )
        if stop():
            raise KeyboardInterrupt
        others = neighbours.cpus()
        for one in contenders:
            density, blocksize = names.get(one.name, (None, None))
            row = dict.fromkeys(COLUMNS) | _told(times, one.name)
            row |= {"name": one.name, "density": density, "blocksize": blocksize, "batch": batch}
            row |= {"sequence": tier.sequence, "threads": threads, "others": others}
            row |= {"why_not": one.why_not, "peak_bytes": peaks.get(one.name)}
            if peaks.get(one.name) and peaks.get(DENSE):
                row["peak_ratio"] = peaks[one.name] / peaks[DENSE]
            rows.append(row)
    return rows


def _call(one: Contender, tokens: torch.Tensor) -> Callable[[], object]:
    run = one.run
    assert run is not None
    return lambda: run(tokens)


def _told(times: Mapping[str, Sequence[float]], name: str) -> Row:
    """Medians; the ratio is that of each turn, dense over this one."""
    mine = times.get(name)
    if not mine:
        return {}
    ratios = [dense / own for dense, own in zip(times[DENSE], mine, strict=True)]
    return {
        "rounds": len(mine),
        "ms": median(mine) * 1e3,
        "least_ms": min(mine) * 1e3,
        "most_ms": max(mine) * 1e3,
        "dense_ratio": median(ratios),
    }


def _peaks(folder: Path, data: Data, names: Sequence[str], threads: int) -> dict[str, int]:
    """Peak bytes by name, without what the libraries alone take."""
    tier = data.tier
    asked: dict[str, Any] = {"batch": max(tier.batches), "sequence": tier.sequence}
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as place:
        save_dense(data.subject.model, Path(place))
        folders = {DENSE: Path(place)} | {name: path_of(folder, name) for name in names}
        try:
            bare = peak_bytes(None, **asked, threads=threads)
            for name, at in folders.items():
                found[name] = max(0, peak_bytes(at, **asked, threads=threads) - bare)
                say(f"  {name}: {found[name] / 1e6:.0f} MB at most, beside the libraries")
        except CommandError as error:
            say(f"  peak memory is not known: {error}")
    return found
