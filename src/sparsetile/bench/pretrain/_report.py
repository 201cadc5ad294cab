"""What a run came to, in a few lines."""

import math
from pathlib import Path
from statistics import median

import torch

from sparsetile import nn
from sparsetile.bench._files import human_bytes
from sparsetile.bench._tokens import Corpus
from sparsetile.bench.pretrain._logs import EVAL, TRAIN, read_rows
from sparsetile.bench.pretrain._session import Session
from sparsetile.train import count_flops


def report(session: Session, folder: Path) -> dict[str, str]:
    """Sum up a finished run.

    Args:
        session: The run, after its last step.
        folder: Its folder, with the CSVs.

    Returns:
        Names and values, for people.
    """
    settings = session.settings
    loss = float(read_rows(folder / EVAL)[-1]["loss"])
    step_ms = median(float(row["step_ms"]) for row in read_rows(folder / TRAIN))
    flops = count_flops(
        session.model, sequence=settings.sequence, batch=settings.batch * settings.accumulate
    )
    lines = {
        "held-out loss": f"{loss:.4f} nats per token",
        "by token counts alone": f"{unigram_loss(session.corpus):.4f}",
        "perplexity": f"{math.exp(min(loss, 700.0)):.2f}",
        "training": f"{session.seconds:,.1f} s, {step_ms:.1f} ms a step (median), "
        f"{settings.tokens_per_step / step_ms * 1000:,.0f} tokens/s",
        "operations": f"{flops.total:.3g} a step, {flops.non_embedding:.3g} without the head",
        "weights, gradients, state": bytes_text(session.model),
    }
    if session.trainer is not None:
        lines["coverage"] = (
            f"{session.trainer.coverage().mean:.1%} of the block positions, "
            f"{len(session.trainer.history)} updates"
        )
    return lines


def bytes_text(model: torch.nn.Module) -> str:
    """Bytes that training with AdamW holds beside activations, and what the dense twin would.

    Examples:
        >>> bytes_text(torch.nn.Linear(50, 20, bias=False))
        '16 kB'
    """
    size = nn.summary(model)
    weights = sum(p.nbytes for p in model.parameters())
    # Weights, their gradients and two moments; the indices are needed once.
    now, dense = 4 * weights + size.bytes - weights, 4 * size.dense_bytes
    return human_bytes(now) + (f"; its dense twin {human_bytes(dense)}" if now != dense else "")


def unigram_loss(corpus: Corpus) -> float:
    """Loss on the held-out tokens of guessing by how often each token occurs in training.

    A model that has learned nothing of order gets no further.

    Args:
        corpus: The tokens.

    Returns:
        Nats per token.

    Examples:
        >>> import torch
        >>> same = torch.zeros(1000, dtype=torch.int64)
        >>> class Two:
        ...     def get_vocab_size(self): return 2
        >>> round(unigram_loss(Corpus(Two(), same, same, "")), 3)
        0.001
    """
    counts = torch.bincount(corpus.train, minlength=corpus.vocabulary).double() + 1
    return float(-(counts / counts.sum()).log()[corpus.held_out].mean())
