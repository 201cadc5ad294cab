"""What a growth score is told about the layer that it is to extend."""

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Int64
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train._gradient import Gradient


@dataclass(frozen=True)
class Room:
    """A layer with room for new blocks.

    A position is `row * kb + column` in the grid of blocks.

    Attributes:
        layer: The layer.
        taken: Positions that cannot be chosen, ascending: the survivors and those dropped just now.
        generator: A generator on the CPU, so that every device and process chooses alike.
        gradient: What is known of the weight's gradient, for scores that asked for it.
        memory: What the score noted of this layer before; saved with the trainer.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> room = Room(Linear(4, 4, blocksize=2, density=0.5), torch.tensor([0, 3]))
        >>> room.grid, room.free
        ((2, 2), 2)
    """

    layer: BlockSparse
    taken: Int64[Tensor, " taken"]
    generator: torch.Generator = field(default_factory=torch.Generator)
    gradient: Gradient | None = None
    memory: MutableMapping[str, Tensor] = field(default_factory=dict)

    @property
    def grid(self) -> tuple[int, int]:
        """Block rows and block columns of the layer."""
        return self.layer.pattern.grid

    @property
    def free(self) -> int:
        """Number of positions that can be chosen."""
        rows, columns = self.grid
        return rows * columns - len(self.taken)

    @property
    def free_in_rows(self) -> Int64[Tensor, " mb"]:
        """Number of positions that can be chosen in each block row."""
        rows, columns = self.grid
        return columns - torch.bincount(self.taken // max(columns, 1), minlength=rows)
