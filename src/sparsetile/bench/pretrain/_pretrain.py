"""A pre-training run from its text to its report."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from sparsetile.bench._files import write_text
from sparsetile.bench._progress import say
from sparsetile.bench._text import read_text
from sparsetile.bench._tokens import encode, tokenize
from sparsetile.bench.pretrain import _folder
from sparsetile.bench.pretrain._checkpoint import resume
from sparsetile.bench.pretrain._config_file import write_config
from sparsetile.bench.pretrain._loop import train
from sparsetile.bench.pretrain._pictures import draw
from sparsetile.bench.pretrain._report import report, unigram_loss
from sparsetile.bench.pretrain._session import Session
from sparsetile.bench.pretrain._settings import Settings, check


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes:
        step: Steps done.
        finished: Whether those are all.
        lines: Names and values of the report; none if it is not finished.
        pictures: Pictures drawn.
    """

    step: int
    finished: bool
    lines: dict[str, str]
    pictures: list[Path]


def pretrain(
    settings: Settings,
    *,
    resumed: bool = False,
    overwrite: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train a model as settings say, in their folder.

    Args:
        settings: The run.
        resumed: Go on from the last checkpoint in the folder.
        overwrite: Replace a run that is in the folder.
        stop: Asked between steps; if true, a checkpoint is written and the run can be resumed.

    Returns:
        What it came to.

    Raises:
        CommandError: If the settings, the text, or the folder cannot be used, or the loss is no
            number any more.
    """
    check(settings)
    folder = settings.output
    checkpoint = _folder.last_checkpoint(folder) if resumed else None
    if not resumed and not overwrite:
        _folder.refuse_run(folder)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    say("Reading the text …")
    text = read_text(settings.text, limit=settings.characters)
    if checkpoint is None:
        corpus = tokenize(text, settings.vocabulary)
        session = Session(settings, corpus)
        _folder.start(folder)
        write_text(folder / _folder.TOKENIZER, corpus.tokenizer.to_str(pretty=False) + "\n")
        write_config(folder / _folder.CONFIG, settings)
    else:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / _folder.TOKENIZER))
        session = resume(settings, encode(text, tokenizer), checkpoint)
    _announce(session)
    train(session, folder, stop)
    if session.step < settings.steps:
        return Outcome(session.step, False, {}, [])
    pictures = []
    if settings.plots and find_spec("matplotlib") is not None:
        pictures = draw(folder, what=_words(settings), unigram=unigram_loss(session.corpus))
    return Outcome(session.step, True, report(session, folder), pictures)


def _announce(session: Session) -> None:
    corpus = session.corpus
    say(
        f"{len(corpus.train):,} tokens of {corpus.source}, {corpus.vocabulary:,} different ones; "
        f"{len(corpus.held_out):,} are held out"
    )
    settings = session.settings
    if session.step >= settings.steps:
        say(
            f"The run in {settings.output} was finished already, at step {session.step:,}: nothing "
            "is trained. Rates and patterns follow --steps from the first step on, so a longer run "
            f"is a new one: sparsetile train --config {settings.output / _folder.CONFIG} "
            f"--steps {2 * settings.steps} -o …"
        )
        return
    if settings.method not in ("dense", "static") and not session.moves:
        say(
            f"--every {settings.every} does not fit into --steps {settings.steps}: the pattern "
            "will not move; give a smaller --every for it to"
        )
    at = f"from step {session.step:,} " if session.step else ""
    say(f"Training {_words(settings)}, {at}to step {settings.steps:,} …")


def _words(settings: Settings) -> str:
    layers, width, _ = settings.size
    name = "GPT-2" if settings.objective == "clm" else "BERT"
    words = f"{name} of {layers} layers, width {width}, {settings.method}"
    if settings.method == "dense":
        return words
    r, c = settings.block
    return f"{words}, density {settings.density:g}, blocks {r}×{c}"
