"""Floating point operations of training: by the published formula, and of a model at hand."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from sparsetile.nn import BlockSparse, Embedding, SelfAttention, TiedHead
from sparsetile.train._check import checked_int

#: Whether a module, of this name, belongs to the head of a model.
Head = Callable[[nn.Module, str], bool]


def transformer_flops(
    layers: int, width: int, sequence: int, *, density: float = 1.0, ffn: int | None = None
) -> float:
    """Count the operations of one training step of a transformer encoder, for each sequence.

    Forward and backward together: `3·L·(2·S·(4·H² + 2·H·F)·density + 4·S²·H)` with `L` layers,
    width `H`, sequence `S` and inner width `F`. The two products of attention are counted dense;
    embeddings, head, softmax, norms and pattern updates are not counted. This is how Dietrich et
    al., "Towards Structured Dynamic Sparse Pre-Training of BERT" (2021), count.

    Args:
        layers: Transformer blocks.
        width: Features of a token.
        sequence: Tokens of a sequence.
        density: Share of the weights of the linear layers that is stored, in [0, 1].
        ffn: Width between the two layers of the feed-forward part; four times `width` if None.

    Returns:
        Floating point operations, a multiplication and an addition counted as two.

    Raises:
        TypeError: If an argument is no number of its kind.
        ValueError: If one is out of range.

    Examples:
        >>> f"{transformer_flops(4, 256, 128):.4g}"  # BERT-Mini
        '2.617e+09'
        >>> f"{transformer_flops(8, 512, 128, density=0.1):.4g}"  # BERT-Medium, sparse
        '2.738e+09'
    """
    layers = checked_int("layers", layers, least=1)
    width = checked_int("width", width, least=1)
    sequence = checked_int("sequence", sequence, least=1)
    inner = 4 * width if ffn is None else checked_int("ffn", ffn, least=1)
    if isinstance(density, bool) or not isinstance(density, numbers.Real):
        raise TypeError(f"density must be a number from 0 to 1, got {density!r}")
    if not 0 <= density <= 1:
        raise ValueError(f"density must be between 0 and 1, got {density}")
    weights = (4 * width * width + 2 * width * inner) * float(density)
    return layers * (6 * sequence * weights + _attention(sequence, width))


@dataclass(frozen=True)
class FlopCount:
    """Floating point operations of training, forward and backward together.

    Attributes:
        sparse: Products of sparse layers with their stored values.
        dense: Products of dense linear layers.
        attention: The two products of attention, counted dense.
        head: Products of the output head, which published counts leave out.
        growth: What scoring free blocks by their gradient took; 0 for methods that do not.

    Examples:
        >>> count = FlopCount(sparse=2e9, dense=1e9, attention=1e9, head=4e9)
        >>> count.non_embedding, count.total
        (4000000000.0, 8000000000.0)
    """

    sparse: float = 0.0
    dense: float = 0.0
    attention: float = 0.0
    head: float = 0.0
    growth: float = 0.0

    @property
    def non_embedding(self) -> float:
        """What papers count: all but the head (looking up an embedding is no product)."""
        return self.sparse + self.dense + self.attention + self.growth

    @property
    def total(self) -> float:
        """All of it."""
        return self.non_embedding + self.head

    def __add__(self, other: "FlopCount") -> "FlopCount":
        return FlopCount(
            self.sparse + other.sparse,
            self.dense + other.dense,
            self.attention + other.attention,
            self.head + other.head,
            self.growth + other.growth,
        )


def count_flops(
    model: nn.Module, *, sequence: int = 1, batch: int = 1, head: Head | None = None
) -> FlopCount:
    """Count the operations of one training step of a model as it is now.

    A linear layer takes `2 · tokens · stored values` forward, as much for the gradient of its
    input and, unless it is frozen, as much for that of its values. Every layer is taken to see
    every token once. Counted are sparse layers, `torch.nn.Linear`, `Conv1D` of transformers,
    `torch.nn.MultiheadAttention`, `torch.nn.LSTM`, `GRU` and `RNN`, and the products of attention
    of `MultiheadAttention` and `SelfAttention` modules or, by its config, of a Hugging Face model;
    norms, activations, softmax, convolutions and the optimizer are not.

    Args:
        model: Any module.
        sequence: Tokens of a sequence; 1 for models without attention.
        batch: Sequences of one optimizer step, over all its micro-batches.
        head: Says of a module and its name whether it belongs to the head. If None, the head is
            what shares its weight with an embedding and, in a Hugging Face model, what lies outside
            its base model.

    Returns:
        The operations of the step, by what needs them.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a number is out of range.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> model = nn.Sequential(Linear(64, 64, density=0.25), nn.Linear(64, 8))
        >>> count_flops(model, batch=10)
        FlopCount(sparse=61440.0, dense=30720.0, attention=0.0, head=0.0, growth=0.0)
    """
    return Products(model, head).count(sequence, batch)


class Products:
    """The products of a model, found once, counted as often as patterns change.

    Args:
        model: Any module.
        head: As for `count_flops`.

    Examples:
        >>> Products(nn.Linear(4, 2)).count(sequence=1, batch=1).dense
        48.0
    """

    def __init__(self, model: nn.Module, head: Head | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        if head is not None and (isinstance(head, type) or not callable(head)):
            raise TypeError(f"head must be a function of a module and its name, got {head!r}")
        is_head = head or _head_of(model)
        self._sparse: list[tuple[BlockSparse, bool]] = []
        self._dense: list[tuple[nn.Parameter, bool]] = []
        self._widths = _widths(model)
        for name, module in model.named_modules():
            if isinstance(module, TiedHead):
                self._sparse.append((module.embedding, True))
            elif isinstance(module, Embedding):
                continue  # its rows are gathered, not multiplied
            elif isinstance(module, BlockSparse):
                self._sparse.append((module, is_head(module, name)))
            else:
                found = is_head(module, name)
                self._dense += [(weight, found) for weight in _dense_weights(module)]

    def count(self, sequence: int, batch: int) -> FlopCount:
        """Count one training step; see `count_flops`."""
        sequence = checked_int("sequence", sequence, least=1)
        batch = checked_int("batch", batch, least=1)
        tokens = sequence * batch
        sparse = dense = head = 0.0
        for layer, in_head in self._sparse:
            flops = tokens * 2.0 * multiplied(layer)
            head, sparse = (head + flops, sparse) if in_head else (head, sparse + flops)
        for weight, in_head in self._dense:
            flops = tokens * _passes(weight) * 2.0 * weight.numel()
            head, dense = (head + flops, dense) if in_head else (head, dense + flops)
        attention = float(batch * sum(_attention(sequence, width) for width in self._widths))
        return FlopCount(sparse, dense, attention, head)


def stored(layer: BlockSparse) -> int:
    """Stored values of a layer that lie inside its weight."""
    return round(layer.density * math.prod(layer.shape))


def multiplied(layer: BlockSparse) -> float:
    """Values that a token is multiplied by in a step: forward, for the input and the weight.

    The first two use the forward set, where a layer has one.
    """
    every = stored(layer)
    blocks = getattr(layer, "forward_blocks", None)
    used = every if blocks is None else every * len(blocks) / max(layer.nnzb, 1)
    return 2 * used + (every if layer.values.requires_grad else 0)


def _attention(sequence: int, width: int) -> float:
    """Forward and backward of the two products of one attention: scores and weighted values."""
    return 3.0 * 4 * sequence * sequence * width


def _passes(weight: nn.Parameter) -> int:
    """Products of a step: forward, gradient of the input, and of the weight unless frozen."""
    return 3 if weight.requires_grad else 2


def _dense_weights(module: nn.Module) -> list[nn.Parameter]:
    """The weights of a dense layer that every token is multiplied by."""
    own = module._parameters
    if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
        names = ["weight"]
    elif isinstance(module, nn.MultiheadAttention):
        names = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
    elif isinstance(module, nn.RNNBase):
        names = [name for name in own if name.startswith("weight_")]
    else:
        return []
    return [weight for name in names if (weight := own.get(name)) is not None]


def _head_of(model: nn.Module) -> Head:
    """What shares its weight with an embedding, or lies outside a Hugging Face base model."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    base = getattr(model, "base_model", None)
    inside = set(base.modules()) if isinstance(base, nn.Module) and base is not model else None

    def is_head(module: nn.Module, name: str) -> bool:
        if id(module._parameters.get("weight")) in tables:
            return True
        return inside is not None and module not in inside

    return is_head


def _widths(model: nn.Module) -> list[int]:
    """Width of each attention: heads times what each of them sees of a token."""
    widths = [m.embed_dim for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    widths += [m.out.in_features for m in model.modules() if isinstance(m, SelfAttention)]
    # The outermost config; parts of a model have it too, or a copy of it.
    configs = (getattr(module, "config", None) for module in model.modules())
    config: Any = next((c for c in configs if hasattr(c, "num_hidden_layers")), None)
    if widths or config is None:
        return widths
    heads = getattr(config, "num_attention_heads", None)
    each = getattr(config, "head_dim", None) or getattr(config, "d_kv", None)
    width = heads * each if heads and each else config.hidden_size
    layers = config.num_hidden_layers
    if getattr(config, "is_encoder_decoder", False):
        # A decoder layer attends to itself and to the encoder.
        layers += 2 * (getattr(config, "num_decoder_layers", None) or config.num_hidden_layers)
    return [width] * layers
