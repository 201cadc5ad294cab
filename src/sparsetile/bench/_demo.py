"""The demo: layers timed, three models trained for the same seconds, one report."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.bench._busy import Neighbours
from sparsetile.bench._complete import complete, pick_lines
from sparsetile.bench._errors import CommandError
from sparsetile.bench._layers import time_layers
from sparsetile.bench._machine import command
from sparsetile.bench._measure import Measurement
from sparsetile.bench._memory import memory_of
from sparsetile.bench._model import ModelSize, build, config_of, groups_of, make_sparse
from sparsetile.bench._progress import make_progress, say
from sparsetile.bench._race import Run, race
from sparsetile.bench._results import Results, outcome_of, shot_of
from sparsetile.bench._saved import load, save
from sparsetile.bench._text import Text, read_text
from sparsetile.bench._tokens import MASK, Batches, Corpus, Objective, tokenize
from sparsetile.bench._verdict import NAMES, steps_text
from sparsetile.bench._waiting import Waiting
from sparsetile.nn import Linear
from sparsetile.train import DynSparse, Evenly, Trainer, sparse_lr

_TURNS = (6, 12)  # fewest and most: as many as keep judging to a small share of the time
_GOOD_TURNS = 8  # for so many, judging makes do with less text
_JUDGING_SHARE = 0.15
_REPORT_SECONDS = 15.0  # kept back for the report, the saved model and its five lines
_SIZES = {
    "layers": "transformer blocks",
    "width": "features of a token",
    "heads": "attention heads",
    "sequence": "tokens of a row",
    "vocabulary": "different tokens, at most",
}
_JUDGED_ROWS = 32
_JUDGED_BATCHES = 4


@dataclass(frozen=True)
class Settings:
    """What a demo is asked to do.

    Args:
        minutes: Time for all of it.
        seconds_per_run: Training seconds of each run, in place of what `minutes` leaves.
        table_seconds: Seconds for timing layers; 0 leaves the table out.
        objective: `clm` or `mlm`.
        text: Files to train on; none for the standard library's source.
        density: Density of the sparse layers.
        blocksize: Their block size.
        batch: Rows of a batch.
        rate: Highest learning rate of the block layers in the dense run; the sparse runs get it
            by the rule of `train.sparse_lr`.
        rest_rate: Highest learning rate of embedding, norms and biases, the same in every run.
        steps_per_update: Steps between two changes of the DynSparse pattern, about.
        seed: Decides weights, patterns and the order of the data.
        size: The transformer.
    """

    minutes: float = 5.0
    seconds_per_run: float | None = None
    table_seconds: float = 30.0
    objective: Objective = "clm"
    text: tuple[Path, ...] = ()
    density: float = 0.1
    blocksize: int = 4
    batch: int = 8
    rate: float = 4e-4
    rest_rate: float = 2.5e-3
    steps_per_update: int = 100
    seed: int = 0
    size: ModelSize = field(default_factory=ModelSize)

    def described(self) -> dict[str, Any]:
        """Names and values, for people."""
        model = {f.name: getattr(self.size, f.name) for f in fields(self.size)}
        given = self.seconds_per_run
        return {
            "command": command(),
            "minutes for all": f"{self.minutes:g}",
            "training seconds a run": "what the minutes leave" if given is None else f"{given:g}",
            "seconds for timing layers": f"{self.table_seconds:g}",
            "learns": "the next token (clm)" if self.objective == "clm" else "masked tokens (mlm)",
            "text": ", ".join(map(str, self.text)) or "the standard library",
            "density of the sparse layers": f"{self.density:g}",
            "their blocks": f"{self.blocksize}×{self.blocksize}",
            "rows of a batch": self.batch,
            "highest learning rate of the dense run's block layers": f"{self.rate:g}",
            "that of embedding, norms and biases in every run": f"{self.rest_rate:g}",
            "steps between pattern updates, about": self.steps_per_update,
            "seed": self.seed,
            **{_SIZES.get(name, name): value for name, value in model.items()},
        }


@dataclass
class Trained:
    """What the training stage leaves for the later ones."""

    runs: list[Run]
    config: Any
    corpus: Corpus
    lines: list[str]
    held_out: Sequence[tuple[Tensor, Tensor]]
    trainer: Trainer | None = None


def check(settings: Settings) -> None:
    """Refuse settings that cannot work, before any time is spent on them.

    Raises:
        CommandError: Names the flag, what was given, what is allowed.
    """
    if not 0 < settings.density <= 1:
        raise CommandError(f"--density {settings.density:g}: must be above 0 and at most 1")
    size = settings.size
    if size.width % size.heads:
        raise CommandError(
            f"--width {size.width} and --heads {size.heads}: the heads must divide the width; "
            f"take --width {-(-size.width // size.heads) * size.heads}"
        )
    if size.vocabulary < 300:
        raise CommandError(f"--vocabulary {size.vocabulary}: must be at least 300 (256 are bytes)")
    if settings.blocksize > size.width:
        raise CommandError(
            f"--blocksize {settings.blocksize}: must be at most the width, {size.width}"
        )


def time_table(
    settings: Settings, results: Results, stop: Callable[[], bool], show: Callable[[Any], None]
) -> None:
    """Stage 2: time the layers and show the table."""
    from sparsetile.bench._layers import layer_table

    if not settings.table_seconds or stop():
        return
    say("Timing layers, dense against sparse …")
    neighbours = Neighbours()
    with _stage(results, "layers"), Waiting("Timing layers", settings.table_seconds) as waiting:
        rows: Iterator[Measurement] = time_layers(
            seconds=settings.table_seconds, seed=settings.seed, stop=waiting.between(stop)
        )
        for row in rows:
            results.timings.append(row)
    results.busy = neighbours.warning()
    show(layer_table(results.timings))


def train(
    settings: Settings, results: Results, deadline: float, stop: Callable[[], bool]
) -> Trained | None:
    """Stage 3: read, tokenize, build three models, let them take turns."""
    if stop():
        return None
    say("Reading the text and training a tokenizer on it …")
    with _stage(results, "text"):
        text = read_text(settings.text)
        corpus = tokenize(text, settings.size.vocabulary)
        results.text = (
            f"Trained on {len(corpus.train):,} tokens of {text.source}, judged on text held out "
            f"of it; byte-level BPE of {corpus.vocabulary:,} tokens made on the spot."
        )
    if stop():
        return None
    with _stage(results, "models"):
        trained = _prepare(settings, results, text, corpus)
        seconds, turns = _plan(settings, trained, deadline, stop)
    if stop():
        return None
    say(f"Training {len(trained.runs)} models for {seconds:.0f} s each, in turns …")
    with _stage(results, "training"), make_progress() as progress:
        race(
            trained.runs,
            seconds=seconds,
            turns=turns,
            held_out=trained.held_out,
            progress=progress,
            stop=stop,
            after_turn=lambda run: _picture(run, results),
        )
    results.outcomes = [
        outcome_of(run, memory_of(run.model, run.optimizer)) for run in trained.runs if run.trained
    ]
    if trained.trainer is not None:
        _describe(trained.trainer, results)
    return trained


def finish(settings: Settings, results: Results, trained: Trained, folder: Path) -> None:
    """Stage 4: save the sparse model, read it back, let it complete five lines."""
    run = next((r for r in reversed(trained.runs) if r.trained and r.name != "dense"), None)
    if run is None:
        return
    with _stage(results, "saved model"):
        model = run.model.eval()
        save(
            folder,
            model,
            trained.config,
            trained.corpus.tokenizer,
            density=settings.density,
            blocksize=settings.blocksize,
        )
        again, tokenizer = load(folder)
        results.finisher = f"{NAMES[run.name]} after {steps_text(len(run.trained))} of training"
        inputs, _ = trained.held_out[0]
        with torch.no_grad():
            results.reloaded = torch.equal(
                model(input_ids=inputs).logits, again(input_ids=inputs).logits
            )
        results.completions = complete(
            again, tokenizer, trained.lines, settings.objective, settings.size.sequence
        )


def _prepare(settings: Settings, results: Results, text: Text, corpus: Corpus) -> Trained:
    size = settings.size
    config = config_of(
        settings.objective,
        ModelSize(size.layers, size.width, size.heads, size.sequence, corpus.vocabulary),
    )
    mask = corpus.tokenizer.token_to_id(MASK)

    def batches(tokens: Tensor, rows: int) -> Batches:
        return Batches(
            tokens,
            settings.objective,
            sequence=size.sequence,
            batch=rows,
            mask_token=mask,
            vocabulary=corpus.vocabulary,
            seed=settings.seed,
        )

    runs = []
    for name in ("dense", "static", "dynsparse"):
        model = build(config, settings.seed)
        rate = settings.rate
        if name != "dense":
            rate = sparse_lr(rate, 1 - settings.density)
            make_sparse(
                model,
                density=settings.density,
                blocksize=settings.blocksize,
                seed=settings.seed,
            )
        optimizer = torch.optim.AdamW(
            groups_of(model, rate, settings.rest_rate),
            fused=True,
        )
        run = Run(name, model, optimizer, batches(corpus.train, settings.batch))
        run.warm_up()
        runs.append(run)
    rows = max(1, min(_JUDGED_ROWS, (len(corpus.held_out) - 1) // size.sequence))
    judged = batches(corpus.held_out, rows)
    held_out = [judged[i] for i in range(min(_JUDGED_BATCHES, len(judged)))]
    trained = Trained(runs, config, corpus, pick_lines(text.held_out), held_out)
    runs[-1].prepare = lambda steps: _lay_out(settings, results, trained, steps)
    return trained


def _lay_out(settings: Settings, results: Results, trained: Trained, steps: int) -> None:
    updates = max(1, round(steps / settings.steps_per_update))
    method = DynSparse(total_steps=steps, updates=updates, seed=settings.seed)
    if trained.trainer is not None:
        # The machine may have become faster or slower: the schedule ends when the time does.
        trained.trainer.method = method
        return
    run = trained.runs[-1]
    trained.trainer = method.attach(run.model, run.optimizer)
    results.layer = _shown_layer(run.model)
    results.shots.append(shot_of(run.model.get_submodule(results.layer), run))


def _describe(trainer: Trainer, results: Results) -> None:
    clock = trainer.method.clock
    assert isinstance(clock, Evenly)  # DynSparse with `updates`
    results.schedule_share = trainer.step_count / clock.total_steps
    results.coverage = trainer.coverage().layers[results.layer]
    if not trainer.history:
        results.schedule = "DynSparse moved no blocks: the run was too short for an update."
        return
    results.schedule = (
        f"DynSparse moved blocks {len(trainer.history)} times, at first half of them, by a cosine "
        f"to none at step {clock.total_steps:,}: the steps it should make, judged anew at each "
        "turn by its speed so far."
    )


def _shown_layer(model: nn.Module) -> str:
    # The smallest layer in the middle of the model: its blocks are large enough to be seen.
    names = [n for n, layer in model.named_modules() if isinstance(layer, Linear)]
    sizes = {n: model.get_submodule(n).values.numel() for n in names}  # type: ignore[operator]
    smallest = [n for n in names if sizes[n] == min(sizes.values())]
    return smallest[len(smallest) // 2]


def _picture(run: Run, results: Results) -> None:
    if run.name == "dynsparse":
        results.shots.append(shot_of(run.model.get_submodule(results.layer), run))


def _plan(
    settings: Settings, trained: Trained, deadline: float, stop: Callable[[], bool]
) -> tuple[float, int]:
    """Seconds of training for each run, and turns, from what judging costs and what is left."""
    start = time.monotonic()
    for run in trained.runs:
        if not stop():
            run.judge(0, trained.held_out)
            run.judged.clear()
    judging = max(time.monotonic() - start, 1e-9)
    given = settings.seconds_per_run
    if given is None:
        left = max(0.0, deadline - time.monotonic() - _REPORT_SECONDS)
    else:
        left = given * len(trained.runs)
    while _JUDGING_SHARE * left / judging < _GOOD_TURNS and len(trained.held_out) > 1:
        kept = len(trained.held_out) // 2
        judging *= kept / len(trained.held_out)
        trained.held_out = trained.held_out[:kept]
    turns = min(max(int(_JUDGING_SHARE * left / judging), _TURNS[0]), _TURNS[1])
    return given or max(2.0, (left - turns * judging) / len(trained.runs)), turns


@contextmanager
def _stage(results: Results, name: str) -> Iterator[None]:
    start = time.monotonic()
    yield
    results.stages[name] = time.monotonic() - start
