"""How many blocks each layer drops and grows in an update."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train._check import checked_int, checked_share


@dataclass(frozen=True)
class Stock:
    """A layer as a budget sees it.

    Attributes:
        layer: The layer.
        scores: Strength of its stored blocks, by the method's drop score.
        at_start: Blocks it stored when the trainer was attached.
        move: Blocks that the schedule wants to move now.
        momentum: The optimizer's smoothed gradient of its values; None where it keeps none.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> Stock(Linear(8, 8, blocksize=4, density=0.5), torch.ones(2), at_start=2, move=1).size
        4
    """

    layer: BlockSparse
    scores: Float[Tensor, " nnzb"]
    at_start: int
    move: int
    momentum: Float[Tensor, "nnzb r c"] | None = None

    @property
    def size(self) -> int:
        """Block positions of the layer."""
        rows, columns = self.layer.pattern.grid
        return rows * columns


@dataclass(frozen=True)
class Change:
    """How many of a layer's blocks an update drops and how many it grows.

    Examples:
        >>> Change(drop=3, grow=3)
        Change(drop=3, grow=3)
    """

    drop: int
    grow: int


@runtime_checkable
class Budget(Protocol):
    """Decides how many blocks each layer has after an update."""

    def changes(self, step: int, stocks: Mapping[str, Stock]) -> Mapping[str, Change]:
        """Say how many blocks each layer drops and grows after step `step`."""
        ...


@dataclass(frozen=True)
class Keep:
    """Every layer keeps its number of blocks.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(8, 8, blocksize=4, density=0.5)
        >>> Keep().changes(10, {"up": Stock(layer, torch.ones(2), at_start=2, move=1)})
        {'up': Change(drop=1, grow=1)}
    """

    def changes(self, step: int, stocks: Mapping[str, Stock]) -> Mapping[str, Change]:
        """Say how many blocks each layer drops and grows after step `step`."""
        return {name: _moving(stock, stock.move) for name, stock in stocks.items()}


@dataclass(frozen=True)
class Overshoot:
    """Layers grow first and drop at the next update, so new blocks can prove themselves.

    Between updates a layer stores more than its budget by what was grown; after the last update,
    at which the schedule moves nothing, it is back (Yuan et al., "MEST", 2021, elastic mutation
    with soft memory bound).

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(8, 8, blocksize=4, density=0.75)
        >>> Overshoot().changes(10, {"up": Stock(layer, torch.ones(3), at_start=2, move=2)})
        {'up': Change(drop=1, grow=1)}
    """

    def changes(self, step: int, stocks: Mapping[str, Stock]) -> Mapping[str, Change]:
        """Say how many blocks each layer drops and grows after step `step`."""
        changes = {}
        for name, stock in stocks.items():
            spare = max(stock.layer.nnzb - stock.at_start, 0)
            free = stock.size - stock.layer.nnzb
            changes[name] = Change(spare, min(stock.move, free))
        return changes


@dataclass(frozen=True)
class Cubic:
    """Density falls along a cubic from what it was at the start to `final`; nothing is grown.

    Zhu and Gupta, "To prune, or not to prune" (2017), equation 1: after step t between `start` and
    `stop` the density is final + (initial - final) · (1 - (t - start) / (stop - start))³.

    Attributes:
        final: Density to end with, in (0, 1].
        start: Step at which it begins to fall.
        stop: Step from which it is `final`.
        scope: "layer": every layer goes to this density; "global": the layers together do, and
            the weakest blocks of all go. Blocks of one size are compared by their scores, those of
            different sizes by scores per value.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> layer = Linear(8, 8, blocksize=1, density=1.0)
        >>> budget = Cubic(0.25, start=0, stop=100)
        >>> [budget.density(step, 1.0) for step in (0, 50, 100)]
        [1.0, 0.34375, 0.25]
        >>> budget.changes(50, {"up": Stock(layer, torch.ones(64), at_start=64, move=0)})
        {'up': Change(drop=42, grow=0)}
    """

    final: float
    start: int
    stop: int
    scope: Literal["layer", "global"] = "layer"

    def __post_init__(self) -> None:
        checked_share("final", self.final)
        checked_int("start", self.start, least=0)
        checked_int("stop", self.stop, least=self.start + 1)
        if self.scope not in ("layer", "global"):
            raise ValueError(f'scope must be "layer" or "global", got {self.scope!r}')

    def density(self, step: int, initial: float) -> float:
        """Density after a step, of layers that had `initial` at the start."""
        done = min(max((step - self.start) / (self.stop - self.start), 0.0), 1.0)
        return self.final + max(initial - self.final, 0.0) * (1 - done) ** 3

    def changes(self, step: int, stocks: Mapping[str, Stock]) -> Mapping[str, Change]:
        """Say how many blocks each layer drops after step `step`."""
        if self.scope == "layer":
            return {name: Change(self._surplus(step, [stock]), 0) for name, stock in stocks.items()}
        surplus = self._surplus(step, list(stocks.values()))
        values = [
            stock.scores / (stock.layer.blocksize[0] * stock.layer.blocksize[1])
            for stock in stocks.values()
        ]
        order = torch.cat(values).argsort(stable=True)[:surplus]
        owner = torch.repeat_interleave(torch.tensor([len(v) for v in values]))
        dropped = torch.bincount(owner[order.cpu()], minlength=len(values)).tolist()
        return {name: Change(n, 0) for name, n in zip(stocks, dropped, strict=True)}

    def _surplus(self, step: int, stocks: list[Stock]) -> int:
        size = sum(stock.size for stock in stocks)
        initial = sum(stock.at_start for stock in stocks) / max(size, 1)
        wanted = math.ceil(round(self.density(step, initial) * size, 6))
        return max(sum(stock.layer.nnzb for stock in stocks) - wanted, 0)


@dataclass(frozen=True)
class ByMeanMomentum:
    """Layers share what grows by the mean momentum of their values.

    What all layers drop together grows where the mean magnitude of the optimizer's momentum is
    largest, so the total stays and layers change their number of blocks (Dettmers and Zettlemoyer,
    "Sparse Networks from Scratch", 2019). What does not fit into a layer goes to the others. Layers
    compete with those of their block size only, so that the number of values stays too.

    Raises:
        ValueError: At an update, if the optimizer keeps no momentum.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> up, down = (Linear(8, 8, blocksize=4, density=0.5) for _ in range(2))
        >>> stocks = {
        ...     "up": Stock(up, torch.ones(2), 2, move=1, momentum=torch.full((2, 4, 4), 3.0)),
        ...     "down": Stock(down, torch.ones(2), 2, move=1, momentum=torch.ones(2, 4, 4)),
        ... }
        >>> ByMeanMomentum().changes(10, stocks)
        {'up': Change(drop=1, grow=2), 'down': Change(drop=1, grow=0)}
    """

    def changes(self, step: int, stocks: Mapping[str, Stock]) -> Mapping[str, Change]:
        """Say how many blocks each layer drops and grows after step `step`."""
        kinds: dict[tuple[int, int], dict[str, Stock]] = {}
        for name, stock in stocks.items():
            if stock.momentum is None:
                raise ValueError(
                    f"sharing growth by momentum needs an optimizer that keeps one, and it keeps "
                    f"none for layer {name!r}; use Adam, AdamW or SGD with momentum, or budget="
                    "Keep()"
                )
            kinds.setdefault(stock.layer.blocksize, {})[name] = stock
        changes: dict[str, Change] = {}
        for kind in kinds.values():
            drops = {name: _moving(stock, stock.move).drop for name, stock in kind.items()}
            free = {name: stock.size - stock.layer.nnzb for name, stock in kind.items()}
            weights = {
                name: float(stock.momentum.abs().mean()) if stock.layer.nnzb else 0.0
                for name, stock in kind.items()
                if stock.momentum is not None
            }
            grows = shared(sum(drops.values()), weights, free)
            changes |= {name: Change(drops[name], grows[name]) for name in kind}
        return {name: changes[name] for name in stocks}


def shared(total: int, weights: Mapping[str, float], most: Mapping[str, int]) -> dict[str, int]:
    """Share a number out by weights, with a limit for each.

    Args:
        total: What to share out; at most the sum of the limits.
        weights: Weight of each, 0 or more.
        most: Limit of each.

    Returns:
        Whole numbers that add up to the total.

    Examples:
        >>> shared(10, {"a": 3.0, "b": 1.0}, {"a": 6, "b": 9})
        {'a': 6, 'b': 4}
    """
    given = dict.fromkeys(weights, 0)
    left = min(total, sum(most.values()))
    while left:
        open_ = [name for name in weights if given[name] < most[name]]
        scale = sum(weights[name] for name in open_)
        parts = {n: weights[n] / scale if scale > 0 else 1 / len(open_) for n in open_}
        # Whole parts first; what is left goes one by one to the largest remainders.
        whole = {n: min(int(left * part), most[n] - given[n]) for n, part in parts.items()}
        if not any(whole.values()):
            order = sorted(open_, key=lambda n: (left * parts[n] % 1, parts[n]), reverse=True)
            whole = dict.fromkeys(order[:left], 1)
        for name, count in whole.items():
            given[name] += count
            left -= count
    return given


def _moving(stock: Stock, count: int) -> Change:
    """Move blocks within a layer, as many as have somewhere to go."""
    count = min(count, stock.layer.nnzb, stock.size - stock.layer.nnzb)
    return Change(count, count)
