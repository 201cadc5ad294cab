"""Knows when each block was born, and keeps new ones from stepping too far."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sparsetile.nn import BlockSparse
from sparsetile.train._update import Move
from sparsetile.train._young import Young


class Infancy:
    """The birth of every block of some layers: the step after which it was grown, if that matters.

    Blocks that were there at the start are of step 0 and never young. Where new blocks step as all
    others do, one byte a block tells which ones the last update grew.

    Args:
        young: How new blocks take their first steps.
        layers: The layers.

    Examples:
        >>> from sparsetile.nn import Linear
        >>> from sparsetile.train import AsPublished, Ramp
        >>> layers = {"up": Linear(4, 4, blocksize=2, density=0.5)}
        >>> Infancy(Ramp(3), layers).born
        {'up': tensor([0, 0], dtype=torch.int32)}
        >>> Infancy(AsPublished(), layers).born
        {'up': tensor([0, 0], dtype=torch.uint8)}
    """

    def __init__(self, young: Young, layers: Mapping[str, BlockSparse]) -> None:
        self.young = young
        self.layers = layers
        self.dtype = torch.int32 if young.steps else torch.uint8
        self.born: dict[str, Int[Tensor, " nnzb"]] = {}
        for name, layer in layers.items():
            self.forget(name, layer)
        self._before: dict[str, tuple[Tensor, Tensor]] = {}

    def forget(self, name: str, layer: BlockSparse) -> None:
        """Take all blocks of a layer for old ones."""
        device = layer.values.device
        self.born[name] = torch.zeros(layer.nnzb, dtype=self.dtype, device=device)

    def newest(self, name: str, step: int) -> Bool[Tensor, " nnzb"]:
        """Tell which blocks the last update grew, which came after step `step`."""
        return self.born[name] == (step if self.young.steps else 1)

    def move(self, name: str, move: Move, step: int) -> None:
        """Note the birth of new blocks after step `step`."""
        if self.young.steps:
            self.born[name] = move.carry(self.born[name]).index_fill_(0, move.new, step)
        else:
            self.born[name] = (move.source < 0).to(self.dtype)

    @torch.no_grad()
    def before_step(self, step: int) -> None:
        """Remember the values of young blocks before optimizer step `step`."""
        self._before.clear()
        if not self.young.steps:
            return
        for name, layer in self.layers.items():
            born = self.born[name]
            if not layer.values.requires_grad:
                continue
            index = ((born > 0) & (born >= step - self.young.steps)).nonzero()[:, 0]
            if len(index):
                self._before[name] = (index, layer.values.index_select(0, index))

    @torch.no_grad()
    def after_step(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Shorten the step that young blocks took."""
        for name, (index, old) in self._before.items():
            values = self.layers[name].values
            if values.grad is None:  # known only now, for a closure may have computed it
                continue
            group = next(g for g in optimizer.param_groups if any(p is values for p in g["params"]))
            ages = step - self.born[name][index].long()
            factors = self.young.factors(ages, group, optimizer.state.get(values, {}))
            factors = factors.to(old.device, old.dtype)[:, None, None]
            new = values.index_select(0, index)
            values.index_copy_(0, index, old + factors * (new - old))
        self._before.clear()
