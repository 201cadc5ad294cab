"""The cells of the table: each a model pruned in one way, judged and weighed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparsetile.bench._files import write_csv
from sparsetile.bench.dynsparse._store import commit, rows_in
from sparsetile.bench.minilm._files import dense_bytes, stored_as
from sparsetile.bench.minilm._quality import embed, quality
from sparsetile.bench.minilm._sentences import Sentences
from sparsetile.bench.minilm._subject import Batch, Subject
from sparsetile.bench.minilm._tiers import Tier

Row = dict[str, Any]
COLUMNS = (
    "density", "blocksize", "method", "recovery", "cosine", "worst", "overlap", "bytes",
    "bytes_ratio", "bf16_cosine", "bf16_overlap", "bf16_bytes", "bf16_bytes_ratio", "seconds",
    "commit",
)  # fmt: skip
_FILE = "cells.csv"
_BATCH = 32


@dataclass(frozen=True)
class Data:
    """What a tier judges with: the dense model, its embeddings and the sentences.

    Args:
        tier: The tier.
        subject: The dense model.
        sentences: In three parts.
        calibration: Batches that pruning may look at.
        held_out: Batches to be judged on.
        embeddings: Of the dense model, on `held_out`.
        dense_bytes: Of the dense model's folder in float32.
    """

    tier: Tier
    subject: Subject
    sentences: Sentences
    calibration: tuple[Batch, ...]
    held_out: tuple[Batch, ...]
    embeddings: Tensor
    dense_bytes: int

    @classmethod
    def of(cls, tier: Tier, subject: Subject, sentences: Sentences) -> "Data":
        """Tokenize the sentences, short ones together, and embed them by the dense model."""

        def batches(part: tuple[str, ...]) -> tuple[Batch, ...]:
            # Sentences of like length together need the least padding.
            return tuple(
                subject.batches(sorted(part, key=lambda s: (len(s), s)), _BATCH, tier.tokens)
            )

        held_out = batches(sentences.held_out)
        return cls(
            tier,
            subject,
            sentences,
            batches(sentences.calibration),
            held_out,
            embed(subject.model, held_out),
            dense_bytes(subject.model),
        )

    def judged(self, model: nn.Module) -> Row:
        """Quality and size of a model, stored in float32 and in bfloat16."""
        found = quality(self.embeddings, embed(model, self.held_out))
        size, _ = stored_as(model, torch.float32)
        small, rounded = stored_as(model, torch.bfloat16)
        half = quality(self.embeddings, embed(rounded, self.held_out))
        return {
            "cosine": found.cosine,
            "worst": found.worst,
            "overlap": found.overlap,
            "bytes": size,
            "bytes_ratio": size / self.dense_bytes,
            "bf16_cosine": half.cosine,
            "bf16_overlap": half.overlap,
            "bf16_bytes": small,
            "bf16_bytes_ratio": small / self.dense_bytes,
        }


@dataclass
class Cells:
    """The finished cells of a folder, in a CSV that is always whole.

    Args:
        folder: Of the proof.
    """

    folder: Path
    rows: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = rows_in(self.folder / _FILE)

    def has(self, density: float, blocksize: int, method: str, recovery: str = "") -> bool:
        """Whether a cell is done."""
        return any(_key(row) == (density, blocksize, method, recovery) for row in self.rows)

    def add(
        self,
        data: Data,
        model: nn.Module,
        *,
        density: float,
        blocksize: int,
        method: str,
        recovery: str = "",
        seconds: float,
    ) -> Row:
        """Judge a model and keep the row.

        Args:
            data: What to judge with.
            model: The pruned model.
            density: Of its layers.
            blocksize: Side of its blocks.
            method: How it was pruned.
            recovery: How it was trained after that; empty for not at all.
            seconds: That this took.

        Returns:
            The row.
        """
        head: Row = {"density": density, "blocksize": blocksize, "method": method}
        head |= {"recovery": recovery}
        row = head | data.judged(model) | {"seconds": seconds, "commit": commit()}
        self.rows = [one for one in self.rows if _key(one) != _key(row)] + [row]
        write_csv(self.folder / _FILE, COLUMNS, self.rows)
        return row


def told(row: Mapping[str, Any]) -> str:
    """A cell as one line for the person who waits."""
    recovery = f", recovered by {row['recovery']}" if row["recovery"] else ""
    return (
        f"{row['density']:g} {row['blocksize']}×{row['blocksize']} {row['method']}{recovery}: "
        f"cosine {row['cosine']:.4f}, neighbours {row['overlap']:.3f}, "
        f"file {row['bytes_ratio']:.2f}× ({row['bf16_bytes_ratio']:.2f}× in bfloat16), "
        f"{row['seconds']:.0f} s"
    )


def _key(row: Mapping[str, Any]) -> tuple[float, int, str, str]:
    return float(row["density"]), int(row["blocksize"]), row["method"], row["recovery"] or ""
