"""The transformer of the demo, built from a Hugging Face config, dense or sparse."""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.bench._tokens import Objective
from sparsetile.nn import sparsify_

# The fully connected layers of the blocks; embeddings and the head tied to them stay dense.
_BLOCK = re.compile(r"\.(h|encoder\.layer)\.\d+\.")


@dataclass(frozen=True)
class ModelSize:
    """How big the transformer is.

    Args:
        layers: Transformer blocks.
        width: Features of a token.
        heads: Attention heads.
        sequence: Tokens of a row.
        vocabulary: Different tokens.
    """

    layers: int = 4
    width: int = 512
    heads: int = 8
    sequence: int = 64
    vocabulary: int = 2048


def config_of(objective: Objective, size: ModelSize, dropout: float = 0.0) -> Any:
    """The Hugging Face config: GPT-2 for `clm`, BERT for `mlm`."""
    from transformers import BertConfig, GPT2Config

    if objective == "clm":
        return GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=size.sequence,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            resid_pdrop=dropout,
            embd_pdrop=dropout,
            attn_pdrop=dropout,
            # GPT-2's approximation of this function, made to be cheap, is three times slower here.
            activation_function="gelu",
            bos_token_id=None,
            eos_token_id=None,
            use_cache=False,
        )
    return BertConfig(
        vocab_size=size.vocabulary,
        max_position_embeddings=size.sequence,
        hidden_size=size.width,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=None,
    )


def build(config: Any, seed: int) -> nn.Module:
    """A fresh dense model; one seed gives one model."""
    from transformers import BertForMaskedLM, GPT2LMHeadModel

    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind = GPT2LMHeadModel if config.model_type == "gpt2" else BertForMaskedLM
        model: nn.Module = kind(config)
    return model


def make_sparse(model: nn.Module, *, density: float, blocksize: int, seed: int) -> nn.Module:
    """Replace the fully connected layers of the blocks by sparse ones with a random pattern."""
    torch.manual_seed(seed)
    sparsify_(model, density=density, blocksize=blocksize, method="random", filter=in_block)
    return model


def groups_of(
    model: nn.Module, block_rate: float, rest_rate: float, decay: float = 0.01
) -> list[dict[str, Any]]:
    """Parameters for an optimizer: the matrices of the blocks get a rate of their own.

    Args:
        model: The model, dense or sparse.
        block_rate: Learning rate of the weights that are sparse in a sparse model.
        rest_rate: Learning rate of embedding, norms and biases, which never are.
        decay: Weight decay of matrices.

    Returns:
        Groups for AdamW; matrices decay, vectors do not.
    """
    named = list(model.named_parameters())
    blocks = {id(p) for name, p in named if p.ndim > 1 and in_block(model, name)}
    groups = [
        ([p for _, p in named if id(p) in blocks], block_rate, decay),
        ([p for _, p in named if p.ndim > 1 and id(p) not in blocks], rest_rate, decay),
        ([p for _, p in named if p.ndim < 2], rest_rate, 0.0),
    ]
    return [{"params": p, "lr": rate, "weight_decay": wd} for p, rate, wd in groups]


def in_block(module: nn.Module, name: str) -> bool:
    """True for the layers of the transformer blocks."""
    return _BLOCK.search(f".{name}") is not None


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of the targets, in nats per token."""
    logits = model(input_ids=inputs).logits.float()  # under autocast they are bfloat16
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
