"""The tokens of the experiment, small enough to be sent to each process."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt16
from numpy import ndarray
from torch import Tensor

from sparsetile.bench._text import read_text
from sparsetile.bench._tokens import MASK, Batches, Objective, tokenize
from sparsetile.bench.dynsparse._shakespeare import shakespeare

_JUDGED_ROWS = 512  # of the held-out text, evenly spread


@dataclass(frozen=True)
class Data:
    """A text as tokens.

    Args:
        source: Where it comes from.
        train: Tokens to learn from.
        held_out: Tokens to be judged on.
        vocabulary: Different tokens.
        mask: The token that stands for a hidden one.
    """

    source: str
    train: UInt16[ndarray, " t"]
    held_out: UInt16[ndarray, " h"]
    vocabulary: int
    mask: int

    @property
    def unigram(self) -> float:
        """Loss on the held-out text of who knows only how often each token comes, in nats."""
        counts = np.bincount(self.train, minlength=self.vocabulary) + 1.0
        return float(-np.log(counts / counts.sum())[self.held_out].mean())

    def batches(self, objective: Objective, *, sequence: int, batch: int, seed: int) -> Batches:
        """Training batches; one seed gives one order, whatever the model."""
        return Batches(
            torch.from_numpy(self.train.astype(np.int64)),
            objective,
            sequence=sequence,
            batch=batch,
            mask_token=self.mask,
            vocabulary=self.vocabulary,
            seed=seed,
        )

    def judged(
        self, objective: Objective, *, sequence: int, batch: int
    ) -> list[tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]]:
        """Batches to judge every run on: the same ones always."""
        rows = (len(self.held_out) - 1) // sequence
        chosen = np.linspace(0, rows - 1, min(rows, _JUDGED_ROWS)).astype(np.int64)
        taken = np.concatenate(
            [self.held_out[row * sequence : (row + 1) * sequence + 1] for row in chosen]
        )
        starts = torch.from_numpy(taken.astype(np.int64)).view(len(chosen), sequence + 1)
        if objective == "clm":
            return [(part[:, :-1], part[:, 1:]) for part in starts.split(batch)]
        masked = Batches(
            starts[:, :-1].reshape(-1),
            objective,
            sequence=sequence,
            batch=batch,
            mask_token=self.mask,
            vocabulary=self.vocabulary,
            seed=0,
        )
        return [masked[step] for step in range(len(masked))]


def load(texts: Sequence[Path] | None, *, vocabulary: int, limit: int) -> Data:
    """Read and tokenize a text.

    Args:
        texts: The user's files; empty for the standard library's source, None for Shakespeare.
        vocabulary: Number of tokens wanted.
        limit: Characters to keep at most of other texts than Shakespeare's.

    Returns:
        The tokens.
    """
    text = shakespeare() if texts is None else read_text(texts, limit=limit)
    corpus = tokenize(text, vocabulary)
    return Data(
        corpus.source,
        corpus.train.numpy().astype(np.uint16),
        corpus.held_out.numpy().astype(np.uint16),
        corpus.vocabulary,
        int(corpus.tokenizer.token_to_id(MASK)),
    )
