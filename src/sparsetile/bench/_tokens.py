"""From text to batches of tokens, in the same order for every run."""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from sparsetile.bench._errors import CommandError
from sparsetile.bench._text import Text, pieces

Objective = Literal["clm", "mlm"]
MASK, PAD = "<|mask|>", "<|pad|>"
_IGNORED = -100  # torch's cross entropy leaves such targets out
_TRAINED_ON = 2_000_000  # characters: more does not change the merges of a small vocabulary


@dataclass(frozen=True)
class Corpus:
    """A text as tokens.

    Args:
        tokenizer: The `tokenizers.Tokenizer` trained on it.
        train: Tokens to learn from.
        held_out: Tokens to be judged on.
        source: Where the text comes from.
    """

    tokenizer: Any
    train: Int[Tensor, " t"]
    held_out: Int[Tensor, " h"]
    source: str

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def fingerprint(self) -> str:
        """Differs for other tokens."""
        digest = hashlib.sha256()
        for tokens in (self.train, self.held_out):
            digest.update(tokens.numpy().tobytes())
        return digest.hexdigest()


def tokenize(text: Text, vocabulary: int) -> Corpus:
    """Train a byte-level BPE tokenizer on a text and encode it.

    Args:
        text: The text.
        vocabulary: Number of tokens wanted; a short text may give fewer.

    Returns:
        The tokens of both parts.

    Examples:
        >>> corpus = tokenize(Text("rhyme", "one two, two one. " * 50, "two two"), 270)
        >>> corpus.tokenizer.decode(corpus.held_out.tolist())
        'two two'
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[MASK, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(pieces(text.train[:_TRAINED_ON]), trainer)
    return encode(text, tokenizer)


def encode(text: Text, tokenizer: Any) -> Corpus:
    """Encode a text by a tokenizer that exists already."""
    return Corpus(
        tokenizer, _encode(tokenizer, text.train), _encode(tokenizer, text.held_out), text.source
    )


def _encode(tokenizer: Any, text: str) -> Tensor:
    encoded = tokenizer.encode_batch_fast(pieces(text), add_special_tokens=False)
    return torch.cat([torch.tensor(e.ids, dtype=torch.int64) for e in encoded])


class Batches:
    """Batches of a token stream by step number: the same step gives the same batch, always.

    Args:
        tokens: The stream.
        objective: `clm`: every token predicts the next; `mlm`: 15 % of them are to be restored.
        sequence: Tokens of one row.
        batch: Rows of one batch.
        mask_token: Stands for a token to be restored.
        vocabulary: Number of different tokens.
        seed: Decides the order of the rows and the masks.

    Examples:
        >>> batches = Batches(torch.arange(100), "clm", sequence=8, batch=2, mask_token=0,
        ...                   vocabulary=100, seed=0)
        >>> inputs, targets = batches[3]
        >>> inputs.shape, bool((targets == inputs + 1).all())
        (torch.Size([2, 8]), True)
    """

    def __init__(
        self,
        tokens: Int[Tensor, " t"],
        objective: Objective,
        *,
        sequence: int,
        batch: int,
        mask_token: int,
        vocabulary: int,
        seed: int,
    ) -> None:
        self.objective = objective
        self.batch = batch
        self.mask_token = mask_token
        self.vocabulary = vocabulary
        self.seed = seed
        self.rows = tokens.unfold(0, sequence + 1, sequence) if len(tokens) > sequence else None
        if self.rows is None or len(self.rows) < batch:
            raise CommandError(
                f"the text has {len(tokens):,} tokens in this part; one batch of {batch} rows of "
                f"{sequence} needs {batch * sequence + 1:,}; give a longer text or a smaller batch"
            )
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        """Batches of one pass over the text."""
        assert self.rows is not None
        return len(self.rows) // self.batch

    def __getitem__(self, step: int) -> tuple[Int[Tensor, "b s"], Int[Tensor, "b s"]]:
        """Inputs and targets of one step; steps beyond the text go round in a new order."""
        assert self.rows is not None
        epoch, place = divmod(step, len(self))
        if epoch != self._epoch:
            self._order = torch.randperm(len(self.rows), generator=_generator(self.seed, epoch))
            self._epoch = epoch
        rows = self.rows[self._order[place * self.batch : (place + 1) * self.batch]]
        if self.objective == "clm":
            return rows[:, :-1], rows[:, 1:]
        return self._masked(rows[:, :-1], _generator(self.seed + 1, step))

    def _masked(self, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        # BERT's rule: of the 15 % to restore, 8 in 10 are hidden, 1 is another token, 1 is itself.
        draw = torch.rand(rows.shape, generator=generator)
        targets = torch.where(draw < 0.15, rows, _IGNORED)
        noise = torch.randint(self.vocabulary, rows.shape, generator=generator)
        inputs = torch.where(draw < 0.12, self.mask_token, rows)
        return torch.where((draw >= 0.12) & (draw < 0.135), noise, inputs), targets


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % (1 << 62))
