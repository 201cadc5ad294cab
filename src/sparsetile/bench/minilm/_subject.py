"""The model under test and its tokenizer: the real one, or a tiny one with random weights."""

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.bench.minilm._wheel import minilm_files

Batch = dict[str, Tensor]
_TINY: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,  # so large that what pruning takes away is missed
}
_START, _END, _FIRST = 1, 2, 3  # tokens of the tiny model; 0 is padding


@dataclass(frozen=True)
class Subject:
    """A dense model and what makes tokens of sentences.

    Args:
        name: In words.
        model: BERT without its pooler, in evaluation mode; nothing of it wants a gradient.
        ids: Tokens of each sentence, at most so many.
    """

    name: str
    model: nn.Module
    ids: Callable[[Sequence[str], int], list[list[int]]]

    def batches(self, sentences: Sequence[str], size: int, tokens: int) -> list[Batch]:
        """Tokens of sentences in the order given, `size` of them padded together."""
        every = self.ids(sentences, tokens)
        return [padded(every[at : at + size]) for at in range(0, len(every), size)]


def padded(rows: Sequence[Sequence[int]]) -> Batch:
    """Rows of one length, and which of their tokens count.

    Args:
        rows: Tokens of each sentence.

    Returns:
        `input_ids` and `attention_mask`, `[rows, longest]` each.

    Examples:
        >>> padded([[1, 5, 2], [1, 2]])["attention_mask"].tolist()
        [[1, 1, 1], [1, 1, 0]]
    """
    longest = max(map(len, rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        mask[at, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def subject(real: bool) -> Subject:
    """Build the model under test.

    Args:
        real: all-MiniLM-L6-v2, fetched if it is not in the cache; else a tiny BERT.

    Returns:
        The model and its tokenizer.

    Raises:
        CommandError: If the real one cannot be had.
    """
    if not real:
        state = torch.get_rng_state()
        torch.manual_seed(0)
        model = _bert(_TINY)
        torch.set_rng_state(state)
        return Subject("a tiny BERT with random weights", model, _hashed)
    from safetensors.torch import load
    from tokenizers import Tokenizer

    names = ("config.json", "tokenizer.json", "model.safetensors")
    config, tokens, weights = minilm_files(names).values()
    model = _bert(json.loads(config))
    # The package's pooler is not part of the embeddings, nor of this model.
    missing = model.load_state_dict(load(weights), strict=False).missing_keys
    assert not missing, f"the package lacks {missing}"
    tokenizer = Tokenizer.from_str(tokens.decode())
    tokenizer.no_padding()

    def ids(sentences: Sequence[str], most: int) -> list[list[int]]:
        tokenizer.enable_truncation(most)
        return [one.ids for one in tokenizer.encode_batch(list(sentences))]

    return Subject("all-MiniLM-L6-v2", model, ids)


def _bert(config: dict[str, Any]) -> nn.Module:
    from transformers import BertConfig, BertModel

    model: nn.Module = BertModel(BertConfig(**config), add_pooling_layer=False)
    return model.eval().requires_grad_(False)


def _hashed(sentences: Sequence[str], most: int) -> list[list[int]]:
    """A token for each word, by its checksum: the tiny model needs no vocabulary."""
    kinds = _TINY["vocab_size"] - _FIRST
    return [
        [
            _START,
            *(zlib.crc32(word.encode()) % kinds + _FIRST for word in text.split()[: most - 2]),
            _END,
        ]
        for text in sentences
    ]
