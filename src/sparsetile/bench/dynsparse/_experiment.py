"""`sparsetile reproduce dynsparse`: train, time, then draw what came out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparsetile.bench import _pages
from sparsetile.bench._files import write_csv, write_text
from sparsetile.bench._plot_style import on_white, save_small_svg
from sparsetile.bench._progress import say
from sparsetile.bench.dynsparse import _figures as figures
from sparsetile.bench.dynsparse import _figures_choices as choices
from sparsetile.bench.dynsparse import _page, _timing
from sparsetile.bench.dynsparse._chosen import by_family, chosen
from sparsetile.bench.dynsparse._data import Data, load
from sparsetile.bench.dynsparse._drive import drive, time_steps
from sparsetile.bench.dynsparse._plan import Job, jobs
from sparsetile.bench.dynsparse._results import Results, keep, results
from sparsetile.bench.dynsparse._setting import setting_of
from sparsetile.bench.dynsparse._store import Store, commit, rows_in
from sparsetile.bench.dynsparse._tiers import Tier

#: How each picture is drawn from the rows of the CSVs.
PICTURES: dict[str, Callable[[Results], Any]] = {
    "loss-flops": lambda made: figures.flops_figure(made["loss-flops"]),
    "loss-seconds": lambda made: figures.seconds_figure(made["lines"], made["loss-seconds"]),
    "loss-bytes": lambda made: figures.bytes_figure(made["loss-bytes"]),
    "coverage": lambda made: figures.coverage_figure(made["coverage"]),
    "sweeps": lambda made: choices.sweeps_figure(made["sweeps"]),
    "updates": lambda made: choices.updates_figure(made["updates"]),
    "ratio": lambda made: choices.ratio_figure(made["ratio"]),
    "norm": lambda made: choices.norm_figure(made["norm"]),
}


def data_of(tier: Tier, texts: Sequence[Path] | None) -> Data:
    """The tokens a tier trains on.

    Args:
        tier: The tier.
        texts: The user's files; empty for the standard library's source, None for the tier's own.

    Returns:
        The tokens.
    """
    if texts is None and not tier.shakespeare:
        texts = []
    data = load(texts, vocabulary=tier.vocabulary, limit=tier.limit)
    say(
        f"{data.source}: {len(data.train):,} tokens to learn from, {len(data.held_out):,} held "
        f"out; knowing only how often each comes gives {data.unigram:.3f} nats"
    )
    return data


def train(
    folder: Path, tier: Tier, data: Data, processes: int, methods: Sequence[str] = ()
) -> None:
    """Do the runs of a tier that are not done yet.

    Args:
        folder: Where the CSVs are, and go; it exists.
        tier: The tier.
        data: What to train on.
        processes: Runs at a time, one thread each.
        methods: Only runs of these; all if empty.
    """
    tier = replace(tier, vocabulary=data.vocabulary)
    store = Store(folder)

    def wanted() -> Iterator[Job]:
        for job in jobs(tier, data.source, store.losses):
            if not methods or job.setting.method in methods:
                yield job

    drive(store, data, wanted, processes)


def measure(folder: Path, tier: Tier, data: Data) -> None:
    """Time a step of each line whose runs are done, in turns; writes `timing.csv`."""
    main = chosen(tier, rows_in(folder / "runs.csv")).get("main", [])
    settings = [setting_of(runs[0]) for runs in by_family(main).values()]
    if settings:
        rows = [row | {"commit": commit()} for row in time_steps(settings, tier.timed_rounds, data)]
        write_csv(folder / "timing.csv", _timing.COLUMNS, rows)


def draw(folder: Path, tier: Tier) -> list[Path]:
    """Write what the finished runs say: CSVs, pictures and a page.

    Args:
        folder: Holds the runs; all goes there too.
        tier: Says which runs belong together.

    Returns:
        The files written; a picture without finished runs is left out.
    """
    made = results(tier, folder)
    written = keep(made, folder)
    shown = [name for name in PICTURES if made[name]]
    with on_white():
        for name in shown:
            written.append(folder / f"{name}.svg")
            save_small_svg(PICTURES[name](made), written[-1])
    tables = _page.tables(made)
    parts = [part for part in _page.PARTS if part[1] is None or part[1] in shown]
    for end, page in ((".md", _pages.markdown), (".html", _pages.page_html)):
        written.append(folder / f"index{end}")
        write_text(written[-1], page(_page.TITLE, _page.INTRO, parts, tables))
    return written


def fill(page: str, folder: Path, tier: Tier) -> str:
    """A page of prose whose marked tables are renewed."""
    return _pages.filled(page, _page.tables(results(tier, folder)))
