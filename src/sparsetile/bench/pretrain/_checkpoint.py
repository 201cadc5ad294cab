"""Checkpoints: folders that are whole or not there, of which the last two are kept."""

import json
import os
import shutil
from pathlib import Path

import torch
from torch import nn

from sparsetile.bench._errors import CommandError
from sparsetile.bench._files import write_text
from sparsetile.bench._saved import load_weights, save_weights
from sparsetile.bench._tokens import Corpus
from sparsetile.bench.pretrain._session import Session
from sparsetile.bench.pretrain._settings import Settings

FOLDER = "checkpoints"
_KEPT = 2
_WEIGHTS, _REST, _CONFIG = "model.safetensors", "training.pt", "config.json"


def save(session: Session, folder: Path) -> Path:
    """Write all that a resumed run needs, beside its text and its settings.

    Args:
        session: The run, between two steps.
        folder: The folder of the run.

    Returns:
        The checkpoint: a folder with `model.safetensors`, `training.pt` and `config.json`.
    """
    inside = folder / FOLDER
    whole = inside / f"step-{session.step:08d}"
    if whole.is_dir():  # a run that was stopped where it had just saved
        return whole
    half = inside / f".{whole.name}.{os.getpid()}.part"
    half.mkdir(parents=True)
    try:
        save_weights(half / _WEIGHTS, session.model)
        write_text(half / _CONFIG, json.dumps(session.config.to_dict(), indent=2, default=str))
        rest = {
            "step": session.step,
            "seconds": session.seconds,
            "recent": session.recent,
            "optimizer": session.optimizer.state_dict(),
            "trainer": session.trainer.state_dict() if session.trainer else None,
            "flops": session.meter.state_dict(),
            "random": torch.get_rng_state(),
            "text": session.corpus.fingerprint,
        }
        torch.save(rest, half / _REST)
        half.rename(whole)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    for old in checkpoints(folder)[:-_KEPT]:
        shutil.rmtree(old)
    return whole


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run, the last one last."""
    return sorted((folder / FOLDER).glob("step-*"))


def resume(settings: Settings, corpus: Corpus, checkpoint: Path) -> Session:
    """Build a session as it was when a checkpoint was written.

    Args:
        settings: The run.
        corpus: Its text as tokens.
        checkpoint: What `save` returned.

    Returns:
        The session; it goes on as if it had never stopped.

    Raises:
        CommandError: If the checkpoint is of other text.
    """
    rest = torch.load(checkpoint / _REST, weights_only=True)
    if rest["text"] != corpus.fingerprint:
        raise CommandError(
            f"{checkpoint}: was trained on other text than --text gives now; bring the files back "
            "to what they were, or start a run in another --output"
        )

    def fill(model: nn.Module) -> None:
        load_weights(checkpoint / _WEIGHTS, model)

    session = Session(settings, corpus, before_optimizer=fill)
    session.optimizer.load_state_dict(rest["optimizer"])
    if session.trainer is not None:
        session.trainer.load_state_dict(rest["trainer"])
        session.meter.load_state_dict(rest["flops"])
        session.coverage = session.trainer.coverage().mean
    session.step, session.seconds = rest["step"], rest["seconds"]
    session.recent = rest["recent"]
    torch.set_rng_state(rest["random"])
    return session
