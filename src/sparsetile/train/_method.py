"""A method of sparse training: what to drop, where to grow, when, and how much."""

from dataclasses import dataclass

import torch
from torch import nn

from sparsetile.train._schedule import Amount, Clock
from sparsetile.train._scores import Drop, Grow
from sparsetile.train._trainer import Trainer


@dataclass(frozen=True, kw_only=True)
class Method:
    """Four independent choices and a seed; the published methods are presets of it.

    Every update moves blocks within a layer, so each layer keeps its number of blocks.

    Attributes:
        drop: Scores stored blocks; the lowest are dropped.
        grow: Chooses where new blocks come.
        clock: After which steps to update.
        amount: How many blocks to move.
        seed: Seed of what is random; equal seeds choose alike in every process.

    Examples:
        >>> from sparsetile.train import Constant, Every, Method, block_l1, uniform
        >>> clock, amount = Every(100, total_steps=1000), Constant(0.3)
        >>> method = Method(drop=block_l1, grow=uniform, clock=clock, amount=amount)
        >>> method.amount.count(step=100, nnzb=50)
        15
    """

    drop: Drop
    grow: Grow
    clock: Clock
    amount: Amount
    seed: int = 0

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trainer:
        """Follow an optimizer from now on, through its step hook; the training loop stays as it is.

        Args:
            model: A model with sparse layers; its frozen ones stay as they are.
            optimizer: The optimizer that holds their values.

        Returns:
            The trainer: counts, history, coverage, state, and `detach()`.

        Raises:
            TypeError: If the arguments are no module and optimizer.
            ValueError: If the model has no trained sparse layer, or the optimizer does not hold
                the values of one, or a trainer is attached to them already.
        """
        return Trainer(self, model, optimizer)
