"""The language model of the experiment: small, causal, with an embedding of one fixed width.

Embedding and head are the same in every model, whatever its width (as in ALBERT, Lan et al. 2019):
a wider sparse model would else get a wider embedding, and win by that.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sparsetile.nn import Linear, sparsify_

EMBEDDING = 64
HEADS = 4
_STD = 0.02  # of the blocks' weights at first, as in BERT, sparse or dense


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Args:
        layers: Transformer blocks.
        width: Features of a token inside the blocks.
        sequence: Tokens of a row.
        vocabulary: Different tokens.
    """

    layers: int
    width: int
    sequence: int
    vocabulary: int


class LanguageModel(nn.Module):
    """A transformer that predicts the next token; layer norm comes before each part.

    Args:
        size: How large it is.
        causal: False for a model that sees both sides, to restore masked tokens.

    Examples:
        >>> model = LanguageModel(Size(layers=1, width=32, sequence=8, vocabulary=50))
        >>> tokens = torch.zeros(2, 8, dtype=torch.int64)
        >>> model(tokens, tokens).shape
        torch.Size([])
    """

    def __init__(self, size: Size, causal: bool = True) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, EMBEDDING)
        self.up = nn.Linear(EMBEDDING, size.width)
        self.places = nn.Parameter(torch.empty(size.sequence, size.width))
        self.blocks = nn.ModuleList(Block(size.width, causal) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.width)
        self.down = nn.Linear(size.width, EMBEDDING)
        self.head_bias = nn.Parameter(torch.zeros(size.vocabulary))
        # What stands around the blocks is the same for all widths and keeps features at size 1.
        for parameter in (self.embedding.weight, self.places):
            nn.init.normal_(parameter, std=EMBEDDING**-0.5)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=_STD, a=-2 * _STD, b=2 * _STD)
                nn.init.zeros_(module.bias)
        for around in (self.up, self.down):
            nn.init.normal_(around.weight, std=around.in_features**-0.5)

    def forward(self, inputs: Int[Tensor, "b s"], targets: Int[Tensor, "b s"]) -> Float[Tensor, ""]:
        """Mean cross entropy of the targets, nats per token; targets of -100 do not count."""
        x = self.up(self.embedding(inputs)) + self.places
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.down(self.norm(x)), self.embedding.weight, self.head_bias)
        return F.cross_entropy(logits.flatten(0, 1), targets.reshape(-1))


class Block(nn.Module):
    """Attention, then two fully connected layers, each added to what came in."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Float[Tensor, "b s h"]) -> Float[Tensor, "b s h"]:
        """Transform the features of each token."""
        b, s, h = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(b, s, 3, HEADS, h // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(b, s, h))
        return x + self.narrow(F.gelu(self.wide(self.norm_2(x))))


def build(
    size: Size, *, blocksize: int | None, density: float, seed: int, causal: bool = True
) -> LanguageModel:
    """Make a model; one seed gives one model.

    Args:
        size: How large it is.
        blocksize: Side of the blocks of the sparse layers; None leaves it dense.
        density: Share of the blocks each sparse layer keeps.
        seed: Of first values and pattern.
        causal: As for `LanguageModel`.

    Returns:
        The model; what is sparse in it are the fully connected layers of the transformer blocks.
    """
    torch.manual_seed(seed)
    model = LanguageModel(size, causal)
    if blocksize is not None:
        sparsify_(
            model,
            density=density,
            blocksize=blocksize,
            filter=in_block,
        )
    return model


def in_block(module: nn.Module, name: str) -> bool:
    """Tell the layers that are sparse in a sparse model, in a dense one too."""
    return name.startswith("blocks.") and isinstance(module, nn.Linear | Linear)
