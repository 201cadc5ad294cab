"""A method of sparse training: what to drop, where to grow, when, how much, in which layers."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from sparsetile.nn import BlockSparse, Linear
from sparsetile.train._budget import Budget, Keep
from sparsetile.train._check import checked_int
from sparsetile.train._constraint import Constraint
from sparsetile.train._grow import Grow
from sparsetile.train._idle import why_idle
from sparsetile.train._schedule import Amount, Clock, Never
from sparsetile.train._scores import Drop
from sparsetile.train._trainer import Trainer
from sparsetile.train._young import AsPublished, Young

_KINDS = (
    ("drop", Drop, "a function such as block_l1"),
    ("grow", Grow, "a function such as uniform"),
    ("clock", Clock, "an object with due(step) such as Every(100, total_steps=1000)"),
    ("amount", Amount, "an object with count(step, nnzb) such as Constant(0.3)"),
    ("budget", Budget, "an object with changes(step, stocks) such as Keep()"),
    ("constraint", Constraint, "an object such as EqualRows(), or None"),
    ("young", Young, "an object with steps and factors(…) such as AsPublished()"),
)


@dataclass(frozen=True, kw_only=True)
class Method:
    """Independent choices and a seed; the published methods are presets of it.

    Attributes:
        drop: Scores stored blocks; the lowest are dropped.
        grow: Chooses where new blocks come.
        clock: After which steps to update.
        amount: How many blocks to move.
        budget: How many blocks each layer has.
        constraint: What a pattern must look like; nothing special for None.
        young: How new blocks take their first steps.
        seed: Seed of what is random; equal seeds choose alike in every process.

    Raises:
        TypeError: If a choice is no function or object of its kind.
        ValueError: If the seed is negative.

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
    budget: Budget = field(default_factory=Keep)
    constraint: Constraint | None = None
    young: Young = field(default_factory=AsPublished)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind, wanted in _KINDS:
            given = getattr(self, name)
            if name == "constraint" and given is None:
                continue
            if isinstance(given, type) or not isinstance(given, kind):
                raise TypeError(f"{name} must be {wanted}, got {given!r}")
        checked_int("seed", self.seed, least=0, most=2**63 - 1)

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trainer:
        """Follow an optimizer from now on, through its step hook; the training loop stays as it is.

        The trainer's state travels inside the optimizer's: what saves `optimizer.state_dict()` and
        loads it resumes the trainer too. Warns of a run too short for its first update.

        Args:
            model: A model with sparse layers; its frozen ones stay as they are.
            optimizer: The optimizer that holds their values.

        Returns:
            The trainer: counts, history, coverage, state, and `detach()`.

        Raises:
            TypeError: If the arguments are no module and optimizer.
            ValueError: If the model has no trained sparse layer, or the optimizer does not hold
                the values of one or keeps no state by parameter (LBFGS), or a trainer is attached
                to a layer already.
        """
        trainer = Trainer(self, model, optimizer)
        if reason := why_idle(self.clock):
            warnings.warn(
                f"{type(self).__name__} will not move any block: {reason}; change that, or take "
                "Static() if the pattern is to stay",
                stacklevel=2,
            )
        return trainer

    def before_step(
        self, layers: Mapping[str, BlockSparse], optimizer: torch.optim.Optimizer
    ) -> None:
        """Change gradients before the optimizer's step; nothing here, for methods to override.

        Args:
            layers: The layers that are trained now.
            optimizer: The optimizer, about to step.
        """

    def after_update(
        self,
        layers: Mapping[str, BlockSparse],
        new: Mapping[str, Int64[Tensor, " grown"]],
        generator: torch.Generator,
    ) -> None:
        """Finish an update; for methods to override. Here, refuse what would be left stale.

        Args:
            layers: The layers that were updated, or all of them at the start.
            new: Which of the blocks of each layer are new; none at the start.
            generator: Where to take random numbers from.

        Raises:
            ValueError: If blocks move in a layer that computes with a part of its blocks.
        """
        for name, layer in layers.items():
            used = isinstance(layer, Linear) and layer.used is not None
            if used and not isinstance(self.clock, Never):
                raise ValueError(
                    f"layer {name!r} computes with a part of its blocks, which only TopKAST "
                    f"chooses anew when blocks move, and {type(self).__name__} moves them; call "
                    "set_forward_(None) on the layer first, or attach TopKAST or Static"
                )
