"""Where new blocks come: at random."""

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.train._check import checked_int
from sparsetile.train._room import Room

_CHUNK = 1 << 20  # random numbers that exist at once
_DENSE = 32  # numbers in the range for each drawn one, up to which all of them are marked


@runtime_checkable
class Grow(Protocol):
    """Chooses where a layer gets new blocks.

    A score that needs the weight's gradient has a method `listen` beside this, as `ByGradient` and
    `ByMomentum` have.
    """

    def __call__(
        self, room: Room, count: int, rows: Int64[Tensor, " mb"] | None = None
    ) -> Int64[Tensor, " count"]:
        """Choose different free positions, ascending: `count`, or so many in each block row."""
        ...


def uniform(
    room: Room, count: int, rows: Int64[Tensor, " mb"] | None = None
) -> Int64[Tensor, " count"]:
    """Choose free positions with equal chances.

    Args:
        room: A layer and its taken positions.
        count: How many to choose; at most as many as are free.
        rows: How many to choose in each block row; they add up to `count`.

    Returns:
        Different free positions, ascending.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If fewer positions than asked for are free.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> uniform(Room(Linear(4, 4, blocksize=2, density=0.5), torch.tensor([0, 3])), 2)
        tensor([1, 2])
    """
    check_room(room)
    count = checked_count(room, count, rows)
    if rows is not None:
        return torch.cat([*_in_rows(room, rows), room.taken[:0]])
    taken = room.taken
    ranks = distinct(room.free, count, room.generator).to(taken.device)
    # The free position of rank j lies behind every taken one with at most j free before it.
    before = taken - torch.arange(len(taken), device=taken.device)
    return ranks + torch.searchsorted(before, ranks, right=True)


def check_room(room: Any) -> None:
    """Refuse what is no room.

    Raises:
        TypeError: If it is none, or holds no vector of positions or no generator.
    """
    if not isinstance(room, Room):
        raise TypeError(f"room must be a sparsetile.train.Room, got {type(room).__name__}")
    taken = room.taken
    if not isinstance(taken, Tensor) or taken.dtype != torch.int64 or taken.ndim != 1:
        raise TypeError(f"room.taken must be a vector of int64 positions, got {taken!r}")
    if not isinstance(room.generator, torch.Generator):
        kind = type(room.generator).__name__
        raise TypeError(f"room.generator must be a torch.Generator, got {kind}")


def checked_count(room: Room, count: Any, rows: Tensor | None) -> int:
    """Check how many blocks are to grow.

    Raises:
        TypeError: If it is no whole number.
        ValueError: If fewer positions are free, or the rows do not add up to it.
    """
    count = checked_int("count", count, least=0, most=room.free)
    if rows is not None:
        if int(rows.sum()) != count:
            raise ValueError(f"rows must add up to count={count}, got {int(rows.sum())}")
        if (rows > room.free_in_rows).any():
            row = int((rows > room.free_in_rows).nonzero()[0, 0])
            raise ValueError(
                f"rows asks for {int(rows[row])} blocks in block row {row}, where "
                f"{int(room.free_in_rows[row])} positions are free; ask for fewer"
            )
    return count


def distinct(limit: int, count: int, generator: torch.Generator) -> Int64[Tensor, " count"]:
    """Draw a uniformly random set of different integers.

    The memory it takes is that of some `count` numbers, however large `limit` is.

    Args:
        limit: One more than the largest number.
        count: How many, at most `limit`.
        generator: A generator on the CPU.

    Returns:
        The numbers, ascending.

    Examples:
        >>> distinct(4, 4, torch.Generator())
        tensor([0, 1, 2, 3])
    """
    if 2 * count > limit:
        rest = torch.ones(limit, dtype=torch.bool)
        rest[distinct(limit, limit - count, generator)] = False
        return rest.nonzero()[:, 0]
    # No number is favoured: what a round does depends only on how many are still missing.
    if limit <= _DENSE * count:  # a byte for each number is less than sorting them takes
        marks, missing = torch.zeros(limit, dtype=torch.bool), count
        while missing:
            marks[torch.randint(limit, (missing,), generator=generator)] = True
            missing = count - int(marks.count_nonzero())
        return marks.nonzero()[:, 0]
    chosen = torch.empty(0, dtype=torch.int64)
    while len(chosen) < count:
        more = torch.randint(limit, (count - len(chosen),), generator=generator)
        chosen = torch.cat([chosen, more]).unique()
    return chosen


def _in_rows(room: Room, rows: Tensor) -> list[Tensor]:
    mb, kb = room.grid
    step = max(1, _CHUNK // max(kb, 1))
    found = []
    for first in range(0, mb, step):
        keys = torch.rand(min(step, mb - first), kb, generator=room.generator)
        found.append(best_in_rows(room, first, keys.to(room.taken.device), rows))
    return found


def best_in_rows(
    room: Room, first: int, scores: Tensor, rows: Int64[Tensor, " mb"]
) -> Int64[Tensor, " n"]:
    """Choose the free positions with the highest scores, so many in each block row.

    Args:
        room: A layer and its taken positions.
        first: The first block row of the scores.
        scores: One score for each position `[rows, kb]`, 0 or more; overwritten.
        rows: How many to choose in each block row of the layer.

    Returns:
        Different free positions, ascending.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> room = Room(Linear(2, 2, blocksize=1, density=0.5), torch.tensor([0, 3]))
        >>> best_in_rows(room, 0, torch.ones(2, 2), torch.tensor([1, 0]))
        tensor([1])
    """
    kb = room.grid[1]
    mark_taken_(room, first, scores, -2)
    order = scores.argsort(dim=1, descending=True, stable=True)
    wanted = rows[first : first + len(scores), None]
    place, rank = (torch.arange(kb, device=scores.device) < wanted).nonzero(as_tuple=True)
    return ((first + place) * kb + order[place, rank]).sort().values


def mark_taken_(room: Room, first: int, scores: Tensor, value: float) -> None:
    """Overwrite the scores of taken positions in a chunk that begins at block row `first`."""
    low, high = first * room.grid[1], (first + len(scores)) * room.grid[1]
    bounds = torch.tensor([low, high], device=room.taken.device)
    start, stop = torch.searchsorted(room.taken, bounds).tolist()
    scores.view(-1)[room.taken[start:stop] - low] = value
