"""What the tests of `sparsetile train` share: a text and settings that train in a second."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from sparsetile.bench._text import read_text
from sparsetile.bench._tokens import tokenize
from sparsetile.bench.pretrain import Settings
from sparsetile.bench.pretrain._checkpoint import checkpoints

STORY = "one for the master, two for the dame, and three for the boy who lives down the lane\n"
TINY = Settings(
    preset="tiny",
    layers=1,
    width=32,
    heads=2,
    sequence=16,
    vocabulary=300,
    batch=4,
    density=0.25,
    steps=7,
    every=3,
    dropout=0.1,
    log_every=2,
    eval_every=100,
    save_every=100,
    plots=False,
)


def write_story(folder: Path) -> Path:
    """A text file of the same line, over and over."""
    path = folder / "story.txt"
    path.write_text(STORY * 600)
    return path


def tiny(folder: Path, **more) -> Settings:
    """Settings of a run in a folder on the story beside it."""
    story = folder / "story.txt"
    text = story if story.is_file() else write_story(folder)
    return replace(TINY, text=(text,), output=folder / "run", **more)


def corpus_of(settings: Settings):
    """The tokens of its text."""
    return tokenize(read_text(settings.text), settings.vocabulary)


def training_state(settings: Settings):
    """Tensors of the last checkpoint of a run, and the rest of it but for the seconds."""
    last = checkpoints(settings.output)[-1]
    rest = torch.load(last / "training.pt", weights_only=True)
    del rest["seconds"]
    return load_file(last / "model.safetensors"), rest
