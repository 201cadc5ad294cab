"""Top-KAST: compute with the strongest blocks, and train more of them than that."""

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Int64
from torch import Tensor, nn

from sparsetile.nn import BlockSparse, Linear
from sparsetile.train._check import checked_int, checked_share, last_step
from sparsetile.train._constraint import weakest
from sparsetile.train._grow import uniform
from sparsetile.train._layers import trained_layers
from sparsetile.train._method import Method
from sparsetile.train._schedule import Every
from sparsetile.train._scores import block_l1
from sparsetile.train._trainer import Trainer


@dataclass(frozen=True)
class Spare:
    """A share of the stored blocks, but none that the product is to use.

    Attributes:
        ratio: Share of the stored blocks to move.
        forward: Share of the stored blocks that the product uses.

    Examples:
        >>> Spare(0.1, forward=0.75).count(step=100, nnzb=40)
        4
        >>> Spare(0.5, forward=0.75).count(step=100, nnzb=40)
        10
    """

    ratio: float
    forward: float

    def used(self, nnzb: int) -> int:
        """Blocks that the product uses, of `nnzb` stored ones."""
        return math.ceil(round(self.forward * nnzb, 6))

    def count(self, step: int, nnzb: int) -> int:
        """Blocks to move after step `step`."""
        return min(math.ceil(round(self.ratio * nnzb, 6)), nnzb - self.used(nnzb))


@dataclass(frozen=True, kw_only=True, init=False)
class TopKAST(Method):
    """Multiplies by a layer's strongest blocks, but computes gradients of all that it stores.

    Jayakumar et al., "Top-KAST: Top-K Always Sparse Training" (2020). The model stores the paper's
    backward set B: make it sparse at the density D + M. The forward set A, the `forward` share of
    B that is largest by sum of magnitudes, gives outputs and input gradients, so D is `forward`
    times the model's density. Every update chooses A anew, in place: blocks of B that have grown
    beyond those of A replace them. Gradients get `penalty` · w added in A and `penalty` / D · w
    outside of it, so that a block must be of use to come in and to stay.

    It departs from the paper where that keeps a dense weight in memory. There B is the largest
    part of all weights, and those outside of it wait at their first value. Here nothing is stored
    outside of B: every update drops the `exchange` share that is weakest, none of it in A, and
    draws as many new blocks at random free positions, with new first values and no optimizer
    state; they begin outside of A. The paper chooses by single weights, this by blocks (blocks of
    1×1 are the paper's). It calls its penalty L2 but prints magnitudes; this is L2, the gradient
    of `penalty` · w² / 2, and optimizers that divide by the gradient's size (Adam) rescale it.

    After the run, `layer.set_pattern_(layer.weight.pattern)` stores A alone.

    Args:
        total_steps: Optimizer steps of the whole run; the last one is not followed by an update.
        forward: Share of the stored blocks that the product uses, in (0, 1].
        every: Steps between updates.
        exchange: Share of the stored blocks to replace in an update, at most those outside of A.
        penalty: Strength of the penalty in A, 0 or more. The default is ours.
        stop: Share of the run after which A and B stay, in [0, 1].
        seed: Seed of the new blocks.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Examples:
        >>> model = nn.Sequential(Linear(64, 64, density=0.5))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> trainer = TopKAST(total_steps=1000, forward=0.25).attach(model, optimizer)
        >>> model[0].nnzb, model[0].weight.nnzb
        (8, 2)
    """

    penalty: float

    def __init__(
        self,
        *,
        total_steps: int,
        forward: float = 0.5,
        every: int = 100,
        exchange: float = 0.1,
        penalty: float = 1e-4,
        stop: float = 1.0,
        seed: int = 0,
    ) -> None:
        if not checked_share("forward", forward):
            raise ValueError("forward must be more than 0, got 0; a model needs blocks to use")
        object.__setattr__(self, "penalty", _checked_penalty(penalty))
        super().__init__(
            drop=block_l1,
            grow=uniform,
            clock=Every(checked_int("every", every, least=1), last_step(total_steps, stop)),
            amount=Spare(checked_share("exchange", exchange), float(forward)),
            seed=seed,
        )

    def attach(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Trainer:
        """Follow an optimizer from now on, and choose what the product uses.

        A layer whose forward set has the right size keeps it: a resumed run goes on with its own.

        Args:
            model: A model with sparse layers; its frozen ones stay as they are.
            optimizer: The optimizer that holds their values.

        Returns:
            The trainer.

        Raises:
            TypeError: If the arguments are no module and optimizer.
            ValueError: If a trained sparse layer is no `Linear`, or `Method.attach` refuses.
        """
        for name, layer in trained_layers(model, optimizer).items():
            if not isinstance(layer, Linear):
                raise ValueError(
                    f"layer {name!r} is a sparse {type(layer).__name__}, which uses all that it "
                    "stores; TopKAST is for Linear layers: leave this one dense, or freeze it"
                )
        return super().attach(model, optimizer)

    @torch.no_grad()
    def before_step(
        self, layers: Mapping[str, BlockSparse], optimizer: torch.optim.Optimizer
    ) -> None:
        """Add the gradient of the penalty.

        Args:
            layers: The layers that are trained now.
            optimizer: The optimizer, about to step.
        """
        # A fused optimizer divides gradients by the scale of a gradient scaler itself.
        scale = getattr(optimizer, "grad_scale", None)
        for layer in layers.values():
            gradient = layer.values.grad
            if not self.penalty or gradient is None or not isinstance(layer, Linear):
                continue
            used = layer.forward_blocks
            assert used is not None
            inside = len(used) / max(layer.nnzb, 1) * layer.density  # the paper's D
            factors = gradient.new_full((layer.nnzb, 1, 1), self.penalty / max(inside, 1e-30))
            factors[used.long()] = self.penalty
            factors = factors if scale is None else factors * scale.to(factors)
            gradient.addcmul_(layer.values, factors)

    @torch.no_grad()
    def after_update(
        self,
        layers: Mapping[str, BlockSparse],
        new: Mapping[str, Int64[Tensor, " grown"]],
        generator: torch.Generator,
    ) -> None:
        """Choose anew what the product uses, and draw the values of new blocks.

        Args:
            layers: The layers that were updated, or all of them at the start.
            new: Which of the blocks of each layer are new; none at the start.
            generator: Where to take random numbers from.
        """
        amount = self.amount
        assert isinstance(amount, Spare)
        for name, layer in layers.items():
            assert isinstance(layer, Linear)
            used, kept = amount.used(layer.nnzb), layer.forward_blocks
            if name not in new and kept is not None and len(kept) == used:
                continue
            # New blocks are zero still, so they begin outside.
            layer.set_forward_(~weakest(block_l1(layer), layer.nnzb - used))
            if name in new:
                layer.redraw_(new[name], generator)


def _checked_penalty(penalty: object) -> float:
    """Check the strength of a penalty.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is negative or not finite.
    """
    if isinstance(penalty, bool) or not isinstance(penalty, numbers.Real):
        raise TypeError(f"penalty must be a number, got {type(penalty).__name__}")
    strength = float(penalty)
    if not 0 <= strength < math.inf:
        raise ValueError(f"penalty must be 0 or more, and finite, got {penalty}")
    return strength
