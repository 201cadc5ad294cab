"""One dense layer that is about to be pruned, and what a method makes of it."""

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sparsetile.prune._inputs import Inputs
from sparsetile.prune._nm import NM

Needs = Literal["nothing", "norms", "gram"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Layer:
    """A dense layer as pruning methods see it.

    Attributes:
        name: Its name in the model.
        weight: Its values `[m, k]`, outputs first, in float32 or float64.
        blocksize: Shape `(r, c)` of the blocks.
        count: How many blocks to keep.
        live: Which blocks may be kept: all, or those that an earlier step of a gradual run kept.
        nm: At most so many of each group are kept; None where nothing special is asked.
        given: Which blocks to keep, where a budget or a user chose them; None for free choice.
        inputs: What calibration saw of its inputs; None without calibration.

    Examples:
        >>> layer = Layer(name="up", weight=torch.zeros(20, 64), blocksize=(16, 16), count=3)
        >>> layer.grid, int(layer.live.sum())
        ((2, 4), 8)
    """

    name: str
    weight: Float[Tensor, "m k"]
    blocksize: tuple[int, int]
    count: int
    live: Bool[Tensor, "mb kb"] = field(default_factory=lambda: torch.ones(0, 0).bool())
    nm: NM | None = None
    given: Bool[Tensor, "mb kb"] | None = None
    inputs: Inputs | None = None

    def __post_init__(self) -> None:
        if tuple(self.live.shape) != self.grid:
            every = torch.ones(self.grid, dtype=torch.bool, device=self.weight.device)
            object.__setattr__(self, "live", every)

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns, ragged ones included."""
        (m, k), (r, c) = self.weight.shape, self.blocksize
        return -(-m // r), -(-k // c)


@dataclass(frozen=True, eq=False)
class Kept:
    """What a method makes of a layer.

    Attributes:
        blocks: Which blocks are kept.
        weight: The weight `[m, k]`; what lies in other blocks is not read.

    Examples:
        >>> Kept(torch.tensor([[True, False]]), torch.ones(2, 4)).blocks.sum().item()
        1
    """

    blocks: Bool[Tensor, "mb kb"]
    weight: Float[Tensor, "m k"]


@runtime_checkable
class OneShot(Protocol):
    """A pruning method: any object with these two will do.

    Examples:
        >>> from torch import nn
        >>> from sparsetile.prune import prune_
        >>> class First:
        ...     needs = "nothing"
        ...     def prune(self, layer):
        ...         blocks = torch.zeros(layer.grid, dtype=torch.bool)
        ...         blocks.view(-1)[: layer.count] = True
        ...         return Kept(blocks, layer.weight)
        >>> model = nn.Sequential(nn.Linear(64, 64))
        >>> report = prune_(model, density=0.25, blocksize=16, method=First())
        >>> model[0].col_indices.tolist()
        [0, 1, 2, 3]
    """

    @property
    def needs(self) -> Needs:
        """What it reads of the inputs: `"nothing"`, `"norms"` or the `"gram"` matrix."""
        ...

    def prune(self, layer: Layer) -> Kept:
        """Choose `layer.count` blocks of a layer, and perhaps change the weights."""
        ...
