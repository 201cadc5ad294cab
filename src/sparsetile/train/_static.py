"""Static sparse training: the pattern stays."""

from sparsetile.train._grow import uniform
from sparsetile.train._method import Method
from sparsetile.train._schedule import Constant, Never
from sparsetile.train._scores import block_l1


class Static(Method):
    """Never changes a pattern: the baseline of every other method, with the same trainer.

    Examples:
        >>> import torch
        >>> from sparsetile import nn
        >>> layer = nn.Linear(32, 32, density=0.5, blocksize=8)
        >>> trainer = Static().attach(layer, torch.optim.SGD(layer.parameters(), lr=0.1))
        >>> trainer.coverage().mean
        0.5
    """

    def __init__(self) -> None:
        super().__init__(drop=block_l1, grow=uniform, clock=Never(), amount=Constant(0.0))
