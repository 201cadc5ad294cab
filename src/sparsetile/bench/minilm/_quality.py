"""How near a model's sentence embeddings are to those of the dense model."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sparsetile.bench.minilm._subject import Batch

NEIGHBOURS = 10


@dataclass(frozen=True)
class Quality:
    """What pruning left of the embeddings.

    Args:
        cosine: Mean cosine between the dense and the pruned embedding of a sentence.
        worst: The cosine that a tenth of the sentences are below.
        overlap: Mean share of a sentence's ten nearest sentences that both models agree on.
    """

    cosine: float
    worst: float
    overlap: float


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    """Embeddings out of the states of tokens: their mean, of length 1.

    Args:
        states: Of the last layer `[n, tokens, width]`.
        mask: 1 where a token counts `[n, tokens]`.

    Returns:
        `[n, width]`.

    Examples:
        >>> pooled(torch.tensor([[[3.0, 4.0], [9.0, 9.0]]]), torch.tensor([[1, 0]]))
        tensor([[0.6000, 0.8000]])
    """
    counts = mask.unsqueeze(-1).to(states.dtype)
    return F.normalize((states * counts).sum(1) / counts.sum(1), dim=-1)


@torch.no_grad()
def embed(model: nn.Module, batches: Iterable[Batch]) -> Tensor:
    """Embeddings of sentences `[n, width]`, one row each."""
    found = [
        pooled(model(**batch).last_hidden_state.float(), batch["attention_mask"])
        for batch in batches
    ]
    return torch.cat(found)


def quality(dense: Tensor, pruned: Tensor) -> Quality:
    """Compare embeddings.

    Args:
        dense: Of the dense model `[n, width]`, of length 1.
        pruned: Of the pruned one, of the same sentences.

    Returns:
        How near they are.

    Examples:
        >>> rows = F.normalize(torch.randn(20, 8), dim=-1)
        >>> found = quality(rows, rows)
        >>> round(found.cosine, 4), found.overlap
        (1.0, 1.0)
    """
    cosines = (dense * pruned).sum(-1)
    count = min(NEIGHBOURS, len(dense) - 1)
    same = (_nearest(dense, count).unsqueeze(2) == _nearest(pruned, count).unsqueeze(1)).any(2)
    return Quality(float(cosines.mean()), float(cosines.quantile(0.1)), float(same.float().mean()))


def _nearest(rows: Tensor, count: int) -> Tensor:
    near = rows @ rows.T
    return near.fill_diagonal_(-2.0).topk(count, dim=1).indices
