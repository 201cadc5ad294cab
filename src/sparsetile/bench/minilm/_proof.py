"""`sparsetile reproduce minilm`: prune, recover, time, then draw what came out."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter

from torch import nn

from sparsetile.bench import _pages
from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import write_csv, write_text
from sparsetile.bench._plot_style import on_white, save_small_svg
from sparsetile.bench._progress import say
from sparsetile.bench.dynsparse._store import rows_in
from sparsetile.bench.minilm import _page, _timing, _verdict
from sparsetile.bench.minilm._cells import Cells, Data, told
from sparsetile.bench.minilm._figure import quality_figure
from sparsetile.bench.minilm._files import kept, path_of
from sparsetile.bench.minilm._joined import COLUMNS, joined, model_name
from sparsetile.bench.minilm._methods import pruned
from sparsetile.bench.minilm._recover import recover
from sparsetile.bench.minilm._sentences import sentences
from sparsetile.bench.minilm._subject import subject
from sparsetile.bench.minilm._tiers import Recovery, Tier

PICTURE = "quality-latency"
#: The method whose models are timed and recovered; those of other methods store as many blocks.
BASE = "sparsegpt"

Stop = Callable[[], bool]


def data_of(folder: Path, tier: Tier) -> Data:
    """The model and the sentences of a tier; what they are goes into `about.json`.

    Args:
        folder: Of the proof; it exists.
        tier: The tier.

    Returns:
        What models are judged with.

    Raises:
        CommandError: If model or sentences cannot be had, or the folder is of others.
    """
    found = sentences(
        calibration=tier.calibration,
        held_out=tier.held_out,
        training=tier.training,
        files=tier.files,
        plays=tier.plays,
    )
    data = Data.of(tier, subject(tier.real), found)
    about = {
        "model": data.subject.name,
        "source": found.source,
        "calibration": len(found.calibration),
        "held_out": len(found.held_out),
        "training": len(found.training),
        "dense_bytes": data.dense_bytes,
        "tier": {name: value for name, value in asdict(tier).items() if name != "recoveries"},
    }
    path = folder / "about.json"
    text = json.dumps(about, indent=1)
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        raise CommandError(
            f"--output {folder}: holds results on other sentences or of another tier; its rows "
            "cannot stand beside new ones: name another folder"
        )
    write_text(path, text)
    say(
        f"{data.subject.name}: {len(found.calibration)} sentences to calibrate on, "
        f"{len(found.held_out)} to judge on, {len(found.training):,} to learn from; "
        f"{found.source}"
    )
    return data


def prune(folder: Path, data: Data, stop: Stop = lambda: False) -> None:
    """Fill the cells that are not done yet; one line on stderr for each.

    Args:
        folder: Of the proof.
        data: What to judge with.
        stop: Asked before each cell.

    Raises:
        KeyboardInterrupt: If `stop` said so.
    """
    tier, cells = data.tier, Cells(folder)
    todo = [
        (method, density, blocksize)
        for density in tier.densities
        for blocksize in tier.blocksizes
        for method in tier.methods
    ]
    for at, (method, density, blocksize) in enumerate(todo, 1):
        if cells.has(density, blocksize, method):
            continue
        _ask(stop)
        begin = perf_counter()
        model = _pruned(folder, data, method, density, blocksize)
        row = cells.add(
            data,
            model,
            density=density,
            blocksize=blocksize,
            method=method,
            seconds=perf_counter() - begin,
        )
        say(f"[{at}/{len(todo)}] {told(row)}")


def learn(folder: Path, data: Data, stop: Stop = lambda: False) -> None:
    """Recover the models of a tier that are not recovered yet.

    Args:
        folder: Of the proof.
        data: The dense model and the sentences.
        stop: Asked before each step.

    Raises:
        KeyboardInterrupt: If `stop` said so; a run goes on from its last checkpoint.
    """
    cells = Cells(folder)
    for one in data.tier.recoveries:
        if cells.has(one.density, one.blocksize, BASE, one.method):
            continue
        start = partial(_pruned, folder, data, BASE, one.density, one.blocksize)
        model, seconds = recover(folder, data, one, start, stop)
        kept(folder, _recovered(one), lambda model=model: model)  # type: ignore[misc]
        row = cells.add(
            data,
            model,
            density=one.density,
            blocksize=one.blocksize,
            method=BASE,
            recovery=one.method,
            seconds=seconds,
        )
        say(told(row))


def measure(folder: Path, data: Data, stop: Stop = lambda: False) -> None:
    """Time the dense model and the pruned ones there are; writes `timing.csv`.

    Args:
        folder: Of the proof.
        data: The dense model.
        stop: Asked before every call.

    Raises:
        KeyboardInterrupt: If `stop` said so; nothing is written then.
    """
    names = {
        model_name(row): (row["density"], row["blocksize"])
        for row in Cells(folder).rows
        if path_of(folder, model_name(row)).is_dir()
    }
    write_csv(
        folder / "timing.csv", _timing.COLUMNS, _timing.time_models(folder, data, names, stop)
    )


def draw(folder: Path) -> list[Path]:
    """Write what the CSVs of a folder say: the picture and a page.

    Args:
        folder: Holds the CSVs; all goes there too.

    Returns:
        The files written.

    Raises:
        CommandError: If the folder holds no results.
    """
    about = folder / "about.json"
    if not about.is_file():
        raise CommandError(f"--output {folder}: holds no results yet; run it without --only page")
    made = {name: rows_in(folder / f"{name}.csv") for name in ("cells", "timing", "recovery")}
    made["verdicts"] = _verdict.verdicts(made["cells"], made["timing"])
    points = joined(made["cells"], made["timing"])
    write_csv(folder / "verdicts.csv", _verdict.COLUMNS, made["verdicts"])
    write_csv(folder / f"{PICTURE}.csv", COLUMNS, points)
    written = [folder / "cells.csv", folder / "verdicts.csv", folder / f"{PICTURE}.csv"]
    if points:
        with on_white():
            written.append(folder / f"{PICTURE}.svg")
            title = "Quality against latency of a pruned sentence encoder"
            save_small_svg(quality_figure(points, made["timing"], title), written[-1])
    tables = _page.tables(made)
    parts = [part for part in _page.PARTS if part[1] is None or points]
    told_by = _page.intro(json.loads(about.read_text(encoding="utf-8")))
    for end, page in ((".md", _pages.markdown), (".html", _pages.page_html)):
        written.append(folder / f"index{end}")
        write_text(written[-1], page(_page.TITLE, told_by, parts, tables))
    return written


def _pruned(folder: Path, data: Data, method: str, density: float, blocksize: int) -> nn.Module:
    """A model pruned by a method; those that are timed are kept in the folder."""

    def make() -> nn.Module:
        return pruned(
            data.subject.model,
            method,
            density=density,
            blocksize=blocksize,
            calibration=data.calibration,
        )

    if method != BASE:
        return make()
    return kept(folder, f"{density:g}-{blocksize}-{method}", make)


def _recovered(one: Recovery) -> str:
    return f"{one.density:g}-{one.blocksize}-{BASE}-{one.method}"


def _ask(stop: Stop) -> None:
    if stop():
        raise KeyboardInterrupt
