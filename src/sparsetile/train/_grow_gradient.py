"""Where new blocks come: where the gradient is largest."""

from collections.abc import MutableMapping
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train._gradient import NORMS, Norm, SampledGradient, WholeGradient, pooled, spread
from sparsetile.train._grow import best_in_rows, check_room, checked_count, mark_taken_, uniform
from sparsetile.train._positions import positions
from sparsetile.train._room import Room


class ByGradient:
    """Grows blocks where the gradient of the last step is largest, as RigL does.

    The dense gradient of a layer never exists at once. Exactly, the factors of the gradient are
    kept during the one step before an update (as much memory as autograd needed for them) and the
    product is scored chunk by chunk. With `candidates`, only the gradient at random free blocks is
    computed, by a sampled product, as in guided stochastic exploration. Where there is no gradient,
    as in a layer that was not used, blocks grow at random.

    Args:
        norm: Score of a block of the gradient: sum of magnitudes, root of the sum of squares, or
            largest magnitude.
        candidates: Free blocks to look at, as a multiple of the stored ones; None for all.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If it is out of range.

    Examples:
        >>> ByGradient("l2", candidates=2.0)
        ByGradient('l2', candidates=2.0)
    """

    #: Listens during the steps that an update follows, or during all of them.
    every_step = False

    def __init__(self, norm: Norm = "l1", *, candidates: float | None = None) -> None:
        self.norm = checked_norm(norm)
        self.candidates = None if candidates is None else checked_multiple("candidates", candidates)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.norm!r}, candidates={self.candidates})"

    def listen(
        self, layer: BlockSparse, memory: MutableMapping[str, Tensor], generator: torch.Generator
    ) -> WholeGradient | SampledGradient:
        """Begin to collect the gradient of a layer.

        Args:
            layer: The layer.
            memory: Not used.
            generator: Draws the candidates.

        Returns:
            What is to see the factors of the gradient.
        """
        if self.candidates is None:
            return WholeGradient(layer)
        return SampledGradient(layer, drawn(layer, self.candidates, generator))

    @torch.no_grad()
    def __call__(
        self, room: Room, count: int, rows: Int64[Tensor, " mb"] | None = None
    ) -> Int64[Tensor, " count"]:
        """Choose the free positions with the largest gradient.

        Raises:
            ValueError: If nothing is known of the gradient.
        """
        check_room(room)
        count = checked_count(room, count, rows)
        if room.gradient is None:
            raise ValueError(
                "growing by gradient needs a step with a backward pass through the layer, and none "
                "was seen; train through the layer, freeze it, or grow with uniform"
            )
        return strongest(room, count, rows, room.gradient.scores(self.norm))


class ByMomentum:
    """Grows blocks where the smoothed gradient is largest, as SNFS does.

    A momentum of the whole weight would take the memory of the dense layer. Here it is that of
    candidates: random free blocks, drawn anew after every update, whose gradient is smoothed over
    the steps up to the next. Their sampled product costs as much as that of so many stored blocks.

    Args:
        smoothing: Share of the old momentum that a step keeps, in [0, 1).
        norm: Score of a block of the momentum.
        candidates: Free blocks to look at, as a multiple of the stored ones; None for all.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If it is out of range.

    Examples:
        >>> ByMomentum(0.9).candidates
        1.0
    """

    every_step = True

    def __init__(
        self, smoothing: float = 0.9, *, norm: Norm = "l1", candidates: float | None = 1.0
    ) -> None:
        self.norm = checked_norm(norm)
        self.candidates = None if candidates is None else checked_multiple("candidates", candidates)
        if not isinstance(smoothing, int | float) or not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be at least 0 and below 1, got {smoothing!r}")
        self.smoothing = float(smoothing)

    def listen(
        self, layer: BlockSparse, memory: MutableMapping[str, Tensor], generator: torch.Generator
    ) -> SampledGradient:
        """Begin to collect the gradient of a layer at its candidates.

        Args:
            layer: The layer.
            memory: Where the candidates and their momentum are kept.
            generator: Draws new candidates if there are none.

        Returns:
            What is to see the factors of the gradient.
        """
        if "candidates" not in memory:
            memory["candidates"] = drawn(layer, self.candidates, generator)
        sampled = SampledGradient(layer, memory["candidates"])
        memory.setdefault("momentum", torch.zeros_like(sampled.total))
        return sampled

    @torch.no_grad()
    def observe(self, heard: SampledGradient, memory: MutableMapping[str, Tensor]) -> None:
        """Take a step's gradient into the momentum."""
        memory["momentum"].lerp_(heard.taken(), 1 - self.smoothing)

    @torch.no_grad()
    def __call__(
        self, room: Room, count: int, rows: Int64[Tensor, " mb"] | None = None
    ) -> Int64[Tensor, " count"]:
        """Choose the free positions with the largest momentum, and forget it.

        Raises:
            ValueError: If nothing is known of the momentum.
        """
        check_room(room)
        count = checked_count(room, count, rows)
        if "momentum" not in room.memory:
            raise ValueError(
                "growing by momentum needs steps with a backward pass through the layer, and none "
                "was observed; attach a method with grow=ByMomentum() and train, or grow with "
                "uniform"
            )
        momentum, places = room.memory.pop("momentum"), room.memory.pop("candidates")
        chunks = spread(pooled(momentum, self.norm), places, room.grid)
        return strongest(room, count, rows, chunks)


def strongest(room: Room, count: int, rows: Tensor | None, chunks: Any) -> Tensor:
    """Choose free positions by scores that come in chunks; at random where they do not suffice.

    Args:
        room: A layer and its taken positions.
        count: How many to choose.
        rows: How many in each block row, or None.
        chunks: First block row and scores of each chunk, negative where unknown; overwritten.

    Returns:
        Different free positions, ascending.
    """
    if rows is not None:
        found = []
        for first, part in chunks:
            # Unknown ones come after all known ones, in random order.
            keys = torch.rand(part.shape, generator=room.generator).to(part.device).neg()
            scores = torch.where(_known(part) < 0, keys, part)
            found.append(best_in_rows(room, first, scores, rows))
        return torch.cat([*found, room.taken[:0]])
    kb = room.grid[1]
    best, places = torch.empty(0, device=room.taken.device), room.taken[:0]
    for first, part in chunks:
        part = _known(part)
        mark_taken_(room, first, part, -2)
        flat = part.view(-1)
        # Of later chunks only what beats the worst so far is looked at: a sort of all is slow.
        bar = best.amin() if 0 < count == len(best) else -0.5
        top = (flat > bar).nonzero()[:, 0]
        if len(top) > count:
            top = top[flat[top].topk(count, sorted=False).indices.sort().values]
        best = torch.cat([best.to(flat.dtype), flat[top]])
        places = torch.cat([places, top + first * kb])
        if len(best) > count:
            keep = best.topk(count, sorted=False).indices.sort().values
            best, places = best[keep], places[keep]
    if len(places) == count:
        return places
    taken = torch.cat([room.taken, places]).sort().values
    rest = Room(room.layer, taken, room.generator)
    return torch.cat([places, uniform(rest, count - len(places))]).sort().values


def drawn(layer: BlockSparse, multiple: float | None, generator: torch.Generator) -> Tensor:
    """Draw candidates among the free positions of a layer; all of them for None."""
    room = Room(layer, positions(layer), generator)
    wanted = room.free if multiple is None else min(room.free, round(multiple * layer.nnzb))
    return uniform(room, wanted)


def checked_norm(norm: Any) -> Norm:
    """Check the name of a block norm.

    Raises:
        ValueError: If there is none of that name.
    """
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {', '.join(map(repr, NORMS))}, got {norm!r}")
    checked: Norm = norm
    return checked


def checked_multiple(name: str, value: Any) -> float:
    """Check a positive number.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is not positive and finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be above 0 and finite, got {value}")
    return float(value)


def _known(scores: Tensor) -> Tensor:
    """Take a gradient of nothing, as of a layer that was not used, for unknown."""
    return scores.nan_to_num_(nan=0.0).masked_fill_(scores == 0, -1)
