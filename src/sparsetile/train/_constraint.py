"""What a layer's pattern must look like after every update."""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from sparsetile.train._check import checked_share
from sparsetile.train._grow import Grow
from sparsetile.train._room import Room


@runtime_checkable
class Constraint(Protocol):
    """Chooses what to drop and where to grow so that the pattern has some structure."""

    def choose(
        self, room: Room, scores: Float[Tensor, " nnzb"], drop: int, grow: int, where: Grow
    ) -> tuple[Bool[Tensor, " nnzb"], Int64[Tensor, " grown"]]:
        """Say which stored blocks leave and at which positions new ones come."""
        ...


class EqualRows:
    """Every block row stores equally many blocks; numbers differ by one where they must.

    At blocks of 1×1 this is the constant fan-in of SRigL (Lasby et al., "Dynamic Sparse Training
    with Structured Sparsity", 2024). The weakest blocks of the layer are dropped; then rows with
    too many drop more of theirs and rows with too few grow. With `ablate_below`, a block row that
    would keep or newly attract fewer salient blocks than this share of its due is given up for
    good, and the others get its blocks.

    Args:
        ablate_below: Share of the due blocks that must be salient, in [0, 1]; 0 keeps all rows.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is out of range.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import uniform
        >>> layer = Linear(32, 32, blocksize=4, density=0.25)
        >>> room = Room(layer, layer.pattern.row_indices.long() * 8 + layer.pattern.col_indices)
        >>> leaves, grown = EqualRows().choose(room, torch.rand(16), 4, 4, uniform)
        >>> after = torch.cat([room.taken[~leaves], grown])
        >>> torch.bincount(after // 8, minlength=8).tolist()
        [2, 2, 2, 2, 2, 2, 2, 2]
    """

    def __init__(self, ablate_below: float = 0.0) -> None:
        self.ablate_below = checked_share("ablate_below", ablate_below)

    def choose(
        self, room: Room, scores: Float[Tensor, " nnzb"], drop: int, grow: int, where: Grow
    ) -> tuple[Bool[Tensor, " nnzb"], Int64[Tensor, " grown"]]:
        """Say which stored blocks leave and at which positions new ones come.

        Args:
            room: The layer; all stored positions are taken.
            scores: Strength of the stored blocks.
            drop: Blocks that are to leave at least.
            grow: Blocks to grow if no more than `drop` left.
            where: The growth score.

        Returns:
            A mark for each stored block that leaves, and the new positions, ascending.
        """
        mb, kb = room.grid
        row = room.taken // max(kb, 1)
        stored = torch.bincount(row, minlength=mb)
        total = len(row) - drop + grow
        gone = self._given_up(room, scores, row, drop, grow, where, total)
        due = _equal(total, kb, gone)
        # What a row drops it must find room to regrow, and not where it was dropped just now.
        least, most = stored - due, torch.where(gone, stored, torch.minimum(stored, kb - due))
        rank = _rank_in_rows(scores, row, stored)
        leaves = (weakest(scores, drop) & (rank < most[row])) | (rank < least[row])
        kept = torch.bincount(row[~leaves], minlength=mb)
        rows = due - kept
        return leaves, where(room, int(rows.sum()), rows)

    def _given_up(
        self,
        room: Room,
        scores: Tensor,
        row: Tensor,
        drop: int,
        grow: int,
        where: Grow,
        total: int,
    ) -> Tensor:
        mb, kb = room.grid
        gone = room.memory.get("given_up", torch.zeros(mb, dtype=torch.bool, device=row.device))
        if self.ablate_below and grow:
            kept = torch.bincount(row[~weakest(scores, drop)], minlength=mb)
            # A growth score may use up what it noted; it is asked again for what really grows.
            asked = replace(room, memory=dict(room.memory))
            wished = torch.bincount(where(asked, grow) // max(kb, 1), minlength=mb)
            weak = kept + wished < self.ablate_below * _equal(total, kb, gone)
            # The rows that are left must have room for all blocks.
            rows = (~(gone | weak)).sum()
            if int(rows) * kb >= total:
                gone = gone | weak
        room.memory["given_up"] = gone
        return gone


def weakest(scores: Float[Tensor, " n"], count: int) -> Bool[Tensor, " n"]:
    """Mark the lowest scores, of equal ones the first; NaN is never low.

    Args:
        scores: Scores.
        count: How many to mark.

    Returns:
        True at `count` places.

    Examples:
        >>> weakest(torch.tensor([2.0, 1.0, 1.0]), 1)
        tensor([False,  True, False])
    """
    if count == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    scores = scores.nan_to_num(nan=torch.inf, posinf=torch.inf)
    # topk promises nothing about ties, so it gives the threshold only; a full sort is slower.
    threshold = scores.topk(count, largest=False, sorted=False).values.amax()
    below, level = scores < threshold, scores == threshold
    return below | (level & (level.cumsum(0) <= count - below.sum()))


def _equal(total: int, kb: int, gone: Tensor) -> Tensor:
    """Blocks due to each row: equally many, the first rows one more, none where given up."""
    alive = (~gone).nonzero()[:, 0]
    due = torch.zeros(len(gone), dtype=torch.int64, device=gone.device)
    if len(alive):
        due[alive] = total // len(alive)
        due[alive[: total % len(alive)]] += 1
    return due.clamp(max=kb)


def _rank_in_rows(scores: Tensor, row: Tensor, stored: Tensor) -> Tensor:
    """Rank of each block among those of its row, from 0 for the weakest; rows are ascending."""
    order = scores.nan_to_num(nan=torch.inf).argsort(stable=True)
    order = order[row[order].argsort(stable=True)]
    start = stored.cumsum(0) - stored
    rank = torch.empty_like(row)
    rank[order] = torch.arange(len(row), device=row.device) - start[row[order]]
    return rank
